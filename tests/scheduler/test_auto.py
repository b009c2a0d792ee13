"""Auto's rules: which decides, which are passed over, what an operator may set, and how load is reckoned."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass, field, replace

import pytest
from auditlog.models import LogEntry
from django.db import IntegrityError, transaction
from django.test import Client

from inference.reports import FRESH_S, Report, Seen, TierReport
from scheduler.auto import Known, Pick, Reason, decide
from scheduler.errors import ModelUnknown
from scheduler.load import Load
from scheduler.models import AUTO, Model, RoutingRule, Tier
from tests.admin_forms import model_form

NewRule = Callable[..., RoutingRule]
RULES = "/admin/scheduler/routingrule/"


@pytest.fixture
def small(model: Model, free: Tier, pro: Tier) -> Model:
    """Beside the default one, for the same tiers."""
    return beside(model, "small", free, pro)


@pytest.fixture
def rule(small: Model) -> NewRule:
    """Makes rules, to the small model unless told."""

    def make(position: int = 1, **columns: object) -> RoutingRule:
        return RoutingRule.objects.create(position=position, **{"model": small, **columns})

    return make


def beside(model: Model, name: str, *tiers: Tier, **columns: object) -> Model:
    copied = {column: getattr(model, column) for column in ("source", "context_window", "max_output_tokens")}
    made = Model.objects.create(slug=f"{model.slug}-{name}", name=name.title(), **{**copied, **columns})
    made.tiers.set(tiers)
    return made


@dataclass
class Somebody:
    """A run without a model; notes what was asked of it."""

    tier: str = "free"
    tokens: int = 100
    load: int | None = 90
    cramped: frozenset[str] = frozenset()
    asked: list[str] = field(default_factory=list)

    @property
    def prompt_tokens(self) -> int:
        self.asked.append("tokens")
        return self.tokens

    @property
    def load_percent(self) -> int | None:
        self.asked.append("load")
        return self.load

    @property
    def known(self) -> Known:
        return Known(
            self.tokens if "tokens" in self.asked else None,
            self.load if "load" in self.asked else None,
        )

    def can_go_to(self, rule: RoutingRule) -> bool:
        return rule.model_id not in self.cramped


def auto(tier: str = "free") -> Pick:
    found = Pick.auto(tier)
    assert found
    return found


def decided(somebody: Somebody) -> tuple[str, Reason]:
    chosen, reason = decide(auto(somebody.tier), somebody)
    return chosen.slug, reason


# Three rules, each by itself.


def test_a_rule_for_a_tier_is_for_no_other(rule: NewRule, model: Model, small: Model, free: Tier, pro: Tier) -> None:
    rule(tier=free)
    rule(tier=pro, model=model, position=2)
    rule(position=3, tier=pro, least_load_percent=100)

    assert decided(Somebody("free"))[0] == small.slug
    assert decided(Somebody("pro", load=500))[0] == model.slug


def test_a_rule_on_the_prompt_holds_up_to_its_tokens(rule: NewRule, model: Model, small: Model) -> None:
    rule(most_prompt_tokens=100)

    assert [decided(Somebody(tokens=tokens))[0] for tokens in (99, 100, 101)] == [small.slug, small.slug, model.slug]


def test_a_rule_on_load_holds_from_its_percentage_on(rule: NewRule, model: Model, small: Model) -> None:
    rule(least_load_percent=80)

    assert [decided(Somebody(load=load))[0] for load in (79, 80, 500)] == [model.slug, small.slug, small.slug]


def test_a_load_that_is_not_known_is_none(rule: NewRule, model: Model) -> None:
    rule(least_load_percent=1)

    chosen, reason = decided(Somebody(load=None))

    assert chosen == model.slug
    assert (reason.rule, reason.load_percent) == (None, None)


# Together.


def test_all_conditions_of_a_rule_must_hold(rule: NewRule, model: Model, small: Model, free: Tier) -> None:
    rule(tier=free, most_prompt_tokens=100, least_load_percent=80)

    assert decided(Somebody())[0] == small.slug
    assert decided(Somebody(tokens=101))[0] == model.slug
    assert decided(Somebody(load=79))[0] == model.slug
    assert decided(Somebody("free", 100, 80))[0] == small.slug
    assert Pick.auto("pro") is None


def test_the_lowest_position_that_holds_decides_whichever_was_made_first(
    rule: NewRule, model: Model, free: Tier
) -> None:
    tiny = beside(model, "tiny", free)
    rule(5, tier=free)
    rule(2, tier=free, model=tiny)
    rule(1, tier=free, least_load_percent=200)

    chosen, reason = decided(Somebody(load=100))

    assert (chosen, reason.rule) == (tiny.slug, 2)


def test_a_rule_to_the_default_model_keeps_runs_from_the_rules_behind_it(
    rule: NewRule, model: Model, small: Model
) -> None:
    rule(1, model=model, most_prompt_tokens=50)
    rule(2, least_load_percent=80)

    in_a_long_chat = Somebody(tokens=50, cramped=frozenset({model.slug}))  # which nobody else has more room for
    assert decided(in_a_long_chat) == (model.slug, replace(decided(Somebody(tokens=50))[1], rule=1))
    assert decided(Somebody(tokens=51))[0] == small.slug


def test_a_rule_whose_model_has_no_room_is_passed_over_and_the_next_one_decides(
    rule: NewRule, model: Model, small: Model, free: Tier
) -> None:
    tiny = beside(model, "tiny", free)
    rule(1, tier=free, model=tiny)
    rule(2, tier=free)

    chosen, reason = decided(Somebody(cramped=frozenset({tiny.slug})))
    assert (chosen, reason.rule, reason.passed_over) == (small.slug, 2, (1,))

    chosen, reason = decided(Somebody(cramped=frozenset({tiny.slug, small.slug})))
    assert (chosen, reason.rule, reason.passed_over) == (model.slug, None, (1, 2))


@pytest.mark.parametrize("change", ["inactive", "of no tier", "of another tier"])
def test_a_rule_whose_model_the_tier_may_not_use_is_none(
    rule: NewRule, small: Model, free: Tier, pro: Tier, change: str
) -> None:
    rule(1, least_load_percent=80)
    rule(2, tier=free, model=beside(small, "other", free))
    small.tiers.set({"inactive": [free, pro], "of no tier": [], "of another tier": [pro]}[change])
    Model.objects.filter(pk=small.pk).update(is_active=change != "inactive")

    assert decided(Somebody())[1].rule == 2


def test_nothing_is_asked_that_no_rule_wants_to_know(rule: NewRule, free: Tier, pro: Tier) -> None:
    rule(1, tier=pro, least_load_percent=80)
    rule(2, tier=free)
    rule(3, least_load_percent=1)
    somebody = Somebody("free")

    decided(somebody)

    assert somebody.asked == []


def test_the_load_is_not_asked_for_where_the_prompt_is_too_long(rule: NewRule) -> None:
    rule(most_prompt_tokens=50, least_load_percent=1)
    somebody = Somebody(tokens=51)

    decided(somebody)

    assert somebody.asked == ["tokens"]


def test_a_reason_is_read_as_it_was_stored_also_of_a_newer_release(rule: NewRule, model: Model, free: Tier) -> None:
    rule(4, tier=free, least_load_percent=80)

    reason = decided(Somebody())[1]

    assert Reason.read({**reason.stored(), "mood": "good"}) == reason
    assert reason.in_words == (
        f"By rule 4 (tier free, load of at least 80 %); tier free, load of {model.slug} 90 %, else {model.slug}"
    )
    assert Reason.read(None) is None


# To whom Auto is offered.


def test_it_is_offered_where_a_rule_could_send_a_run_past_the_default_model(
    rule: NewRule, model: Model, small: Model, free: Tier
) -> None:
    assert Pick.auto("free") is None

    rule(1, model=model, tier=free)
    assert Pick.auto("free") is None

    rule(2, tier=free)
    assert auto("free").model == model
    assert Pick.auto("pro") is None

    small.tiers.remove(free)
    assert Pick.auto("free") is None


def test_it_is_not_offered_to_a_tier_that_may_not_use_the_default_model(
    rule: NewRule, model: Model, free: Tier
) -> None:
    rule(tier=free)
    model.tiers.remove(free)

    with pytest.raises(ModelUnknown):
        Pick.of("free", AUTO)


# What operators may set.


def form(small: Model, **fields: object) -> dict[str, str]:
    given = {"position": 1, "model": small.pk, **fields}
    return {name: str(value) for name, value in given.items()}


def test_a_rule_is_made_changed_and_deleted_in_the_admin_and_logged(as_operator: Client, small: Model) -> None:
    as_operator.post(f"{RULES}add/", form(small, tier="free", least_load_percent=80, note="Launch day"))
    made = RoutingRule.objects.get()
    assert (made.tier_id, made.most_prompt_tokens, made.least_load_percent, made.model) == ("free", None, 80, small)
    assert "Launch day" in as_operator.get(RULES).content.decode()

    as_operator.post(f"{RULES}{made.pk}/change/", form(small, tier="free", least_load_percent=90))
    as_operator.post(f"{RULES}{made.pk}/delete/", {"post": "yes"})

    assert not RoutingRule.objects.exists()
    logged = LogEntry.objects.filter(content_type__model="routingrule").order_by("id")
    assert [entry.get_action_display() for entry in logged] == ["create", "update", "delete"]
    assert logged[1].changes_dict["least_load_percent"] == ["80", "90"]


@pytest.mark.parametrize(
    "fields", [{}, {"most_prompt_tokens": 0}, {"least_load_percent": 0}, {"least_load_percent": 10_001}]
)
def test_a_rule_that_makes_no_sense_is_refused(as_operator: Client, small: Model, fields: Mapping[str, int]) -> None:
    answer = as_operator.post(f"{RULES}add/", form(small, **fields))

    assert answer.status_code == 200
    said = str(answer.context["adminform"].form.errors)
    assert ("default model" if not fields else "Ensure this value") in said
    with pytest.raises(IntegrityError), transaction.atomic():
        RoutingRule.objects.create(model=small, **fields)


def test_no_model_is_called_auto(as_operator: Client, model: Model) -> None:
    taken = model_form(model, name="Other", slug="Auto")
    taken.pop("is_default")

    answer = as_operator.post("/admin/scheduler/model/add/", taken)

    assert "This name is taken" in answer.content.decode()
    with pytest.raises(IntegrityError), transaction.atomic():
        Model.objects.create(slug=AUTO, name="Auto", source=model.source, context_window=2048)


def test_a_model_to_which_a_rule_leads_is_not_deleted(as_operator: Client, rule: NewRule, small: Model) -> None:
    rule(least_load_percent=80)

    answer = as_operator.post(f"/admin/scheduler/model/{small.slug}/delete/", {"post": "yes"})

    assert "1 routing rule" in answer.content.decode()
    assert Model.objects.filter(pk=small.pk).exists()


# Load.


def seen(model: str = "large", in_hand: int = 0, slots: int = 10, kv: float = 0.0, age_s: float = 0.0) -> Seen:
    report = Report(model=model, engine={"slots": slots, "kv_cache_usage": kv}, tiers={"free": TierReport(in_hand)})
    return Seen(f"gpu-{in_hand}@host", age_s, report)


@pytest.mark.parametrize(
    ("workers", "waiting", "percent"),
    [
        ([seen(in_hand=5)], 0, 50),
        ([seen(in_hand=10)], 10, 200),
        ([seen(in_hand=10), seen(in_hand=0)], 0, 50),
        ([seen(in_hand=10), seen(in_hand=0, age_s=FRESH_S + 1)], 0, 100),  # silent: no slots
        ([seen(in_hand=10), seen("small", in_hand=0)], 0, 100),
        ([seen(in_hand=2, kv=0.9)], 0, 90),  # the KV cache is what is short
        ([seen(in_hand=2, kv=0.9)], 3, 120),
        ([seen("small")], 5, None),
        ([], 5, None),
    ],
)
def test_load_is_what_is_taken_of_the_slots_and_who_waits(
    workers: list[Seen], waiting: int, percent: int | None
) -> None:
    load = Load.of(workers)

    assert load.percent("large", waiting) == percent
    assert load.is_served("large") == (percent is not None)
