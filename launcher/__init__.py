"""What `make run`, `test`, `check` and `soak` start: set-up, servers, and a stop that leaves nothing behind."""
