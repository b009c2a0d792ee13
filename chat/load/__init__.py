"""The operator's view: who waits, what workers do, and how that went over the last hour."""
