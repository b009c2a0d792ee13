"""Auto: which model answers a run whose user picked none, by the operators' rules, and for which reason."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import asdict, dataclass, field, fields, replace
from typing import Any, Protocol, Self

from django.db.models import F, FilteredRelation, Q, QuerySet

from chatsite.database.prepared import Prepared
from scheduler.errors import ModelUnknown
from scheduler.models import AUTO, Model, RoutingRule

COLUMNS = ("id", "position", "tier", "most_prompt_tokens", "least_load_percent")


@dataclass(frozen=True, slots=True)
class Pick:
    """What a user picked: a model, or Auto, whose `rules` for that tier decide: where none holds `model` answers."""

    model: Model
    rules: Sequence[RoutingRule] = ()

    @classmethod
    def of(cls, tier_slug: str, slug: str | None) -> Self:
        """By name; the default model where that is None. Raises `ModelUnknown`, also for Auto where it is not offered.

        One query.
        """
        if slug != AUTO:
            return cls(Model.objects.pick(tier_slug, slug))
        offered = cls.auto(tier_slug)
        if offered is None:
            raise ModelUnknown(slug)
        return offered

    @classmethod
    def auto(cls, tier_slug: str) -> Self | None:
        """Auto, as it is offered to a tier; None where no rule could send a run of it past the default model."""
        found = ROUTED.all(tier=tier_slug)
        default = next((model for model in found if model.is_default), None)
        rules = [_rule(model) for model in found if vars(model)["rule_id"]]
        if default is None or all(rule.model_id == default.pk for rule in rules):
            return None
        return cls(default, rules)

    @classmethod
    def among(cls, usable: Sequence[Model], tier_slug: str) -> Self | None:
        """The same, for lists of what may be picked. No query where nothing is left to choose."""
        is_choice = len(usable) > 1 and any(model.is_default for model in usable)
        return cls.auto(tier_slug) if is_choice else None

    @property
    def is_auto(self) -> bool:
        """Whether rules decide."""
        return bool(self.rules)


@dataclass(frozen=True, slots=True)
class Known:
    """What was found out about a run and the default model's load, as far as rules asked for it."""

    prompt_tokens: int | None = None
    load_percent: int | None = None


class Prospect(Protocol):
    """A run that has no model yet. Each is found out when a rule first asks for it."""

    @property
    def tier(self) -> str:
        """Its user's."""

    @property
    def prompt_tokens(self) -> int:
        """Of its prompt as the default model would have it."""

    @property
    def load_percent(self) -> int | None:
        """Of the default model; None where it is not known."""

    @property
    def known(self) -> Known:
        """What was asked for so far."""

    def can_go_to(self, rule: RoutingRule) -> bool:
        """Whether the rule's model has room for all of it, so that nothing is forgotten for want of it."""


@dataclass(frozen=True, slots=True)
class Reason:
    """Why Auto chose a run's model: the rule that decided, as it was then, and the numbers it went by.

    Without a `rule` the default model answers. `otherwise` is the default model, which would have answered, and
    `otherwise_name` what it was called. Numbers that no rule asked for are None, as is a load that is not known.
    `passed_over` are rules that held, and whose model had no room or no worker.
    """

    tier: str
    otherwise: str
    otherwise_name: str
    rule: int | None = None
    conditions: str = ""
    is_for_load: bool = False
    prompt_tokens: int | None = None
    load_percent: int | None = None
    passed_over: Sequence[int] = field(default_factory=tuple)

    @classmethod
    def read(cls, stored: Mapping[str, Any] | None) -> Self | None:
        """As it was stored, by a newer release maybe, of which the rest is left; None of a run that is not Auto's."""
        if stored is None:
            return None
        known = {entry.name: stored[entry.name] for entry in fields(cls) if entry.name in stored}
        return cls(**{**known, "passed_over": tuple(known.get("passed_over", ()))})

    def stored(self) -> Mapping[str, Any]:
        """The JSON object."""
        return asdict(self)

    def shown(self) -> Mapping[str, Any]:
        """As its user may see it."""
        names = ("rule", "conditions", "otherwise", "prompt_tokens", "load_percent")
        return {name: getattr(self, name) for name in names}

    @property
    def in_words(self) -> str:
        """For operators."""
        decided = f"rule {self.rule} ({self.conditions})" if self.rule is not None else "no rule: the default model"
        numbers = (
            f"tier {self.tier}",
            f"prompt of {self.prompt_tokens} tokens" if self.prompt_tokens is not None else "",
            f"load of {self.otherwise} {self.load_percent} %" if self.load_percent is not None else "",
            f"else {self.otherwise}" if self.rule is not None else "",
            f"passed over: {', '.join(map(str, self.passed_over))}" if self.passed_over else "",
        )
        return f"By {decided}; {', '.join(filter(None, numbers))}"


def decide(pick: Pick, prospect: Prospect) -> tuple[Model, Reason]:
    """The model of the first rule that holds and has room, else the default one; and why."""
    passed_over = list[int]()
    for rule in pick.rules:
        if not _holds(rule, prospect):
            continue
        if rule.model_id == pick.model.pk or prospect.can_go_to(rule):
            return rule.model, _reason(pick, prospect, passed_over, rule)
        passed_over.append(rule.position)
    return pick.model, _reason(pick, prospect, passed_over)


def _holds(rule: RoutingRule, prospect: Prospect) -> bool:
    # Before the load: to ask for that is a round trip, while these are counted for whoever answers.
    if rule.most_prompt_tokens is not None and prospect.prompt_tokens > rule.most_prompt_tokens:
        return False
    if rule.least_load_percent is None:
        return True
    load = prospect.load_percent
    return load is not None and load >= rule.least_load_percent


def _reason(pick: Pick, prospect: Prospect, passed_over: Sequence[int], rule: RoutingRule | None = None) -> Reason:
    known, default = prospect.known, pick.model
    reason = Reason(
        tier=prospect.tier,
        otherwise=default.pk,
        otherwise_name=default.name,
        prompt_tokens=known.prompt_tokens,
        load_percent=known.load_percent,
        passed_over=tuple(passed_over),
    )
    if rule is None:
        return reason
    is_for_load = rule.least_load_percent is not None
    return replace(reason, rule=rule.position, conditions=rule.conditions, is_for_load=is_for_load)


def _routed(tier: str) -> QuerySet[Model]:
    """Of the models that the tier may use the default one and those that rules name, once for each rule, in order."""
    for_tier = Q(rules__tier=None) | Q(rules__tier=tier)
    models = Model.objects.usable_by(tier).annotate(rule=FilteredRelation("rules", condition=for_tier))
    columns = {f"rule_{column}": F(f"rule__{column}") for column in COLUMNS}
    return (
        models.filter(Q(is_default=True) | Q(rule__isnull=False))
        .annotate(**columns)
        .order_by("rule__position", "rule__id")
    )


def _rule(model: Model) -> RoutingRule:
    """The rule that such a row is of, of which the note is left."""
    told = vars(model)
    return RoutingRule(
        id=told["rule_id"],
        position=told["rule_position"],
        tier_id=told["rule_tier"],
        most_prompt_tokens=told["rule_most_prompt_tokens"],
        least_load_percent=told["rule_least_load_percent"],
        model=model,
    )


ROUTED = Prepared(_routed, tier="a tier")
