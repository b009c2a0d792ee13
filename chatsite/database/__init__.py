"""Django's PostgreSQL backend, with an end to every wait: a server that is away, or silent, is an error soon."""
