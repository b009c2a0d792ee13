"""A fold that ends while the next turn is being answered."""

from __future__ import annotations

from collections.abc import Callable

from chat import folding
from chat.models import Chat, Run, Status, Summary
from scheduler.models import Model


def test_a_reply_from_before_the_epoch_is_followed_by_no_other_fold(
    new_run: Callable[..., Run], chat: Chat, model: Model
) -> None:
    for number in range(9):
        reply = new_run(Status.DONE, text=f"Question {number}", answer="words " * 150)
    reply.input_tokens = 1500
    assert folding.due(reply) is not None

    Summary.objects.create(chat=chat, epoch=1, upto=2, text="We spoke.")

    assert folding.due(reply) is None
    reply.epoch = 1
    assert folding.due(reply) is not None
