"""Who may run, when, where: knows users by id and runs by id, no chat rows."""
