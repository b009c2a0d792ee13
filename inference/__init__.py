"""The GPU side: engines, the worker that hosts one, and the streams it writes. Never imports Django."""
