"""How many people a deployment serves well: users in growing numbers, until one of the bounds is passed."""
