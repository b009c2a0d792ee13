"""How fast the product serves: the real parts on one core, the load on another, a table of what came of it."""
