"""Token buckets, as one server has them, in a cluster: what one script touches lies in one slot."""

from tests.scheduler.test_budgets import *  # noqa: F403
