"""A run's model, once its prompt can be counted: the one that was picked, or the one that Auto's rules choose."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from functools import cached_property

from django.conf import settings

from chat.context import Prompt
from chat.folding import Room
from chat.models import Chat, Run, User
from chat.standing import Standing
from chat.submission import check_standing
from inference.tokens import TokensError
from scheduler import admission
from scheduler.auto import Known, Pick, Reason, decide
from scheduler.load import Load, watched
from scheduler.models import Model, RoutingRule

# The prompt that a model would be given, with room for the answer. Raises `TokensError`.
LayOut = Callable[[Model], Prompt]


@dataclass(frozen=True, slots=True)
class Chosen:
    """The model that answers, its prompt, and why it does where Auto chose it."""

    model: Model
    prompt: Prompt
    reason: Reason | None = None


@dataclass(frozen=True, slots=True)
class Asking:
    """A user who is about to ask in a chat, and how long the answer may be."""

    user: User
    chat: Chat
    pick: Pick
    max_output_tokens: int | None = None
    is_retry: bool = False

    def answer_tokens(self, model: Model) -> int:
        """For which a long chat's prompt leaves room."""
        return admission.longest_answer(model, self.user.limits, self.max_output_tokens)

    def look(self) -> Standing:
        """How they stand, where asking makes sense as far as that can be told before the model is known.

        Raises as `check_standing` does.
        """
        standing = Standing.of(self.user, self.chat, self.pick.model)
        if self.pick.is_auto:
            standing.check(self.user, is_retry=self.is_retry)
        else:
            check_standing(self.user, self.pick.model, standing, is_retry=self.is_retry)
        return standing

    def choose(self, standing: Standing, lay_out: LayOut) -> Chosen:
        """The model; Auto's is then looked at as one that was picked. Raises likewise, and `TokensError`."""
        if not self.pick.is_auto:
            return Chosen(self.pick.model, lay_out(self.pick.model))
        prospect = _Prospect(self, standing, lay_out)
        model, reason = decide(self.pick, prospect)
        if model != self.pick.model:
            standing = Standing.of(self.user, self.chat, model)
        check_standing(self.user, model, standing, is_retry=self.is_retry)
        return Chosen(model, prospect.prompt(model), reason)


def again(user: User, run: Run) -> Pick:
    """What answers in place of a run: Auto where it was Auto's, and is still offered; else the same model.

    Raises `ModelUnknown`.
    """
    offered = Pick.auto(user.tier.slug) if run.auto else None
    return offered or Pick.of(user.tier.slug, run.model_id)


class _Prospect:
    """See `scheduler.auto.Prospect`. Each prompt is made once."""

    def __init__(self, asking: Asking, standing: Standing, lay_out: LayOut) -> None:
        self._asking, self._standing, self._lay_out = asking, standing, lay_out
        self._prompts = dict[str, Prompt]()

    @property
    def tier(self) -> str:
        return self._asking.user.tier.slug

    @cached_property
    def prompt_tokens(self) -> int:
        return len(self.prompt(self._default).ids)

    @cached_property
    def load_percent(self) -> int | None:
        return self._load.percent(self._default.pk, self._standing.waiting.of_model)

    @property
    def known(self) -> Known:
        return Known(vars(self).get("prompt_tokens"), vars(self).get("load_percent"))

    def can_go_to(self, rule: RoutingRule) -> bool:
        if rule.least_load_percent is not None and not self._load.is_served(rule.model_id):
            return False
        try:
            return self._has_room(rule.model, self.prompt(rule.model))
        except TokensError:
            return False

    def prompt(self, model: Model) -> Prompt:
        """What the model would be given."""
        if model.pk not in self._prompts:
            self._prompts[model.pk] = self._lay_out(model)
        return self._prompts[model.pk]

    def _has_room(self, model: Model, prompt: Prompt) -> bool:
        """For the whole chat and the longest answer that the default model would give."""
        most, wanted = min(self._asking.user.limits.max_output_tokens, self._default.max_output_tokens), self._wanted
        answer = min(most, wanted or model.max_output_tokens)
        tokens = len(prompt.ids) + answer
        is_whole = not prompt.layout.left_out and answer <= model.max_output_tokens and tokens <= model.context_window
        # A chat that goes on must not be summed up earlier than it would be without rules, nor come back too long.
        rooms = (Room.without_fixed(each, answer).fold_from for each in (model, self._default))
        return is_whole and (not self._asking.chat.is_kept or tokens <= min(rooms))

    @property
    def _default(self) -> Model:
        return self._asking.pick.model

    @property
    def _wanted(self) -> int | None:
        return self._asking.max_output_tokens

    @cached_property
    def _load(self) -> Load:
        return watched(settings.STREAMS_URL).now()
