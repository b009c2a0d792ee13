"""How a later attempt goes on from what a stream holds, as of one server, in a cluster."""

from tests.chat.test_resumption import *  # noqa: F403
