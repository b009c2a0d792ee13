"""The cast and the services every test may use."""
