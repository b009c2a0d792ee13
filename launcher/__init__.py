"""What `make run`, `make test` and `make check` start: set-up, servers, and a stop that leaves nothing behind."""
