"""Sliding windows, as one server has them, in a cluster."""

from tests.chat.test_throttles import *  # noqa: F403
from tests.chat.test_throttles import _few  # noqa: F401
