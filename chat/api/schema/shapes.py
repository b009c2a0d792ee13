"""Shapes of answers that views put together by hand."""

from __future__ import annotations

from typing import Any

from rest_framework import serializers

from chat.api.keys import KeyShape
from chat.api.serializers import ChatShape, MessageShape

Shape = serializers.Serializer[Any]
Schema = dict[str, Any]


class CountsShape(Shape):
    """Tokens of runs; the cached ones are among those of the input."""

    runs = serializers.IntegerField(min_value=0)
    input_tokens = serializers.IntegerField(min_value=0)
    cached_tokens = serializers.IntegerField(min_value=0)
    output_tokens = serializers.IntegerField(min_value=0)
    charged_tokens = serializers.IntegerField(min_value=0)


class ModelCountsShape(CountsShape):
    """Tokens of one model's runs."""

    model = serializers.CharField()


class BudgetShape(Shape):
    """A bucket of tokens that fills at a steady rate."""

    tokens = serializers.IntegerField(min_value=0, help_text="What a full one has.")
    left_tokens = serializers.IntegerField(min_value=0)
    refill_tokens_per_hour = serializers.IntegerField(min_value=0)
    full_in_s = serializers.FloatField(min_value=0)
    full_at = serializers.DateTimeField()


class TodayShape(Shape):
    """The UTC day of the runs' ends, with the runs that a worker took."""

    day = serializers.DateField()
    models = ModelCountsShape(many=True)
    total = CountsShape()


class UsageShape(Shape):
    """The user's tier and limits, and what of it is taken."""

    tier = serializers.CharField()
    tier_name = serializers.CharField()
    concurrency = serializers.IntegerField(min_value=0, help_text="How many runs may be live at once.")
    max_output_tokens = serializers.IntegerField(min_value=1, help_text="Of one answer.")
    own_limits_until = serializers.DateTimeField(
        allow_null=True, help_text="When limits that an operator gave the user end; null where they are the tier's."
    )
    budget = BudgetShape()
    running = serializers.IntegerField(min_value=0)
    queued = serializers.IntegerField(min_value=0)
    today = TodayShape()


class ModelShape(Shape):
    """A model that may be picked, or Auto, which chooses one: its numbers are the default model's."""

    slug = serializers.CharField(help_text="What a question names it by.")
    name = serializers.CharField()
    context_window = serializers.IntegerField(min_value=1, help_text="Tokens of a prompt and its answer together.")
    max_output_tokens = serializers.IntegerField(min_value=1, help_text="The longest answer that the user may have.")
    is_default = serializers.BooleanField()


class QueuedShape(Shape):
    """A run that was taken in."""

    run_id = serializers.UUIDField()
    message_id = serializers.UUIDField(help_text="The question.")
    stream = serializers.CharField(help_text="The path to follow the answer at.")


class NewKeyWithSecretShape(KeyShape):
    """A new key. Its secret is told this once."""

    secret = serializers.CharField()

    class Meta(KeyShape.Meta):
        fields = (*KeyShape.Meta.fields, "secret")  # type: ignore[assignment]


class ProblemShape(Shape):
    """What is answered in place of what was asked. Some codes come with more data than this."""

    type = serializers.CharField(help_text="Always `about:blank`.")
    title = serializers.CharField()
    status = serializers.IntegerField(min_value=400, max_value=599)
    code = serializers.CharField(help_text="Stable: to be told apart by programs.")
    detail = serializers.CharField(help_text="For people: what is wrong, and what to do.")


class ChatPageShape(Shape):
    """A page of chats."""

    results = ChatShape(many=True)
    next = serializers.CharField(allow_null=True, help_text="The path of the page behind this one.")


class MessagePageShape(Shape):
    """A page of messages, in reading order."""

    results = MessageShape(many=True)
    next = serializers.CharField(allow_null=True, help_text="The path of the page before this one.")


class KeyListShape(Shape):
    """All keys; there is never a next page."""

    results = KeyShape(many=True)
    next = serializers.CharField(allow_null=True, help_text="Always null.")


class ModelListShape(Shape):
    """All models; there is never a next page."""

    results = ModelShape(many=True)
    next = serializers.CharField(allow_null=True, help_text="Always null.")
