"""What readers are told, as one server's are, where the streams live in a cluster: at first, resumed, behind losses."""

from tests.streaming.test_losses import *  # noqa: F403
from tests.streaming.test_run_events import *  # noqa: F403
