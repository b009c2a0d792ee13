"""Who may read which run, in django-eventstream's words."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any
from uuid import UUID

from django.http import HttpRequest
from django_eventstream.channelmanager import ChannelManagerBase

from chat.models import Run, User
from chatsite.database.prepared import Prepared

PREFIX = "run-"
COLUMNS = ("status", "attempt", "model", "tier")


RUN = Prepared(
    lambda owner, run: Run.objects.visible_to(User(pk=owner)).filter(pk=run).only(*COLUMNS),
    owner=UUID(int=1),
    run=UUID(int=2),
)


def channel(run_id: UUID) -> str:
    """The name of a run's channel."""
    return f"{PREFIX}{run_id}"


def run_of(channel_name: str) -> UUID | None:
    """The run of a channel, or None where the name is none of ours."""
    try:
        return UUID(channel_name.removeprefix(PREFIX)) if channel_name.startswith(PREFIX) else None
    except ValueError:
        return None


class RunChannelManager(ChannelManagerBase):  # type: ignore[misc]  # untyped
    """One channel a run, read by the owner of its chat."""

    def get_channels_for_request(self, _request: HttpRequest, view_kwargs: Mapping[str, Any]) -> set[str]:
        """The channel of the run that the address names."""
        return {channel(view_kwargs["run_id"])}

    def can_read_channel(self, user: User | None, channel: str) -> bool:
        """Whether the run is the user's."""
        return self.readable(user, channel) is not None

    def is_channel_reliable(self, _channel: str) -> bool:
        """Every run's events are stored."""
        return True

    def readable(self, user: User | None, channel: str) -> Run | None:
        """The channel's run when the user may read it, in one query."""
        run_id = run_of(channel)
        if user is None or run_id is None:
            return None
        return RUN.first(owner=user.pk, run=run_id)
