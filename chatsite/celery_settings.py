"""How Celery is set; each line has its measurement or its reason."""

from django.conf import settings

broker_url = settings.BROKER_URL
broker_transport = "inference.broker:Transport"
broker_connection_retry_on_startup = True
# For ever: a worker outlives its broker's absence, and what runs goes on meanwhile.
broker_connection_max_retries = None
broker_transport_options = {
    # After it the broker delivers again what a dead worker held. Workers renew it for what they run, so no run is too
    # long for it. No shorter, since a worker that lives may pause: the lease, not redelivery, is how a dead worker's
    # run goes on, and a message that comes back later finds the run taken and is dropped.
    "visibility_timeout": 300,
    # One list a queue: with the default four, a message's priority outranks the order of queues.
    "priority_steps": [0],
    "socket_timeout": 10,
    "socket_connect_timeout": 5,
}
task_acks_late = True
# No results: they would block the hub, and the row holds the outcome.
task_ignore_result = True
task_create_missing_queues = True
task_serializer = "json"
accept_content = ["json"]
# The Redis consumer asks the pool on every turn how many tasks it may hold, the engine's live limit. A prefetch count
# beside it (multiplier > 0) would be a second limit, fixed at the start.
worker_disable_prefetch = True
worker_prefetch_multiplier = 0
worker_enable_prefetch_count_reduction = False
# A reconnect redelivers running tasks, which the claim drops; what runs goes on.
worker_cancel_long_running_tasks_on_connection_loss = False
worker_hijack_root_logger = False
worker_redirect_stdouts = False
worker_send_task_events = False
