"""What `make run`, `test`, `check`, `soak` and `bench` start: set-up, servers, and a stop that leaves nothing behind."""
