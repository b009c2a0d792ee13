"""Set-up, servers, a stop that leaves nothing behind: what `make run`, `test`, `check`, `soak` and `bench` start."""
