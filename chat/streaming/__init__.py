"""A run's events over SSE: who may read, where a reader is, how it gets every character once."""
