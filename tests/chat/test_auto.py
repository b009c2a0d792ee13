"""Asking Auto: by the API, by forms and by OpenAI's protocol, and what pages and programs are told of its choice."""

from __future__ import annotations

import re
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from html import unescape
from typing import TYPE_CHECKING, Any
from uuid import uuid4

import pytest
from django.conf import LazySettings
from django.test import Client
from redis import Redis

from chat import programs, services
from chat.folding import Room
from chat.models import Chat, Message, Role, Run, Status, User
from inference import reports
from inference.reports import Report, TierReport
from inference.tokens import Tokenizer, Turn
from scheduler.auto import Pick, Reason
from scheduler.load import watched
from scheduler.models import AUTO, Model, RoutingRule, Tier
from scheduler.room import queue_name
from tests.acts import add_message, bearing, bring, code_of
from tests.metering import metered

if TYPE_CHECKING:
    from django.test.client import _MonkeyPatchedWSGIResponse as Answer

NewRun = Callable[..., Run]

pytestmark = pytest.mark.django_db(transaction=True)


@dataclass
class Site:
    """Two models for the same tiers, of which workers report, and rules that an operator makes."""

    default: Model
    small: Model
    streams: Redis

    def rule(self, position: int = 1, **columns: Any) -> None:
        """A rule to the small model."""
        RoutingRule.objects.create(position=position, model=self.small, **columns)

    def load(self, in_hand: int, *, without_small: bool = False) -> None:
        """A worker of each reports: the default model's so many runs in ten slots, the small one's none."""
        self.streams.delete(reports.KEY)
        seconds, _ = self.streams.time()
        for model, runs in ((self.default, in_hand), *(() if without_small else ((self.small, 0),))):
            told = Report(model=model.pk, engine={"slots": 10}, tiers={"free": TierReport(runs)})
            self.streams.hset(reports.KEY, f"{model.pk}@host", f"{seconds * 1000} {told.encoded()}")
        watched.cache_clear()  # a second has passed

    def press(self) -> None:
        """Short of capacity, with rules as docs/auto.md advises: Free goes down first."""
        self.rule(1, tier_id="free", least_load_percent=80)
        self.rule(2, most_prompt_tokens=200, least_load_percent=300)
        self.load(9)

    def set_small(self, **columns: Any) -> None:
        """Change the small model."""
        Model.objects.filter(pk=self.small.pk).update(**columns)
        self.small.refresh_from_db()


@pytest.fixture
def site(model: Model, free: Tier, pro: Tier, streams: Redis) -> Iterator[Site]:
    small = Model.objects.create(
        slug=f"{model.slug}-small",
        name="Small",
        source=model.source,
        context_window=model.context_window,
        temperature=model.temperature,
    )
    small.tiers.set([free, pro])
    watched.cache_clear()
    yield Site(model, small, streams)
    streams.delete(reports.KEY)


@pytest.fixture
def paula(pro: Tier) -> User:
    """Of tier Pro."""
    return User.objects.create_user("paula", tier=pro)


def ask(client: Client, chat: Chat, content: str = "Hi", **more: Any) -> Answer:
    asked = {"content": content, "model": AUTO, **more}
    return client.post(f"/api/chats/{chat.pk}/messages", asked, content_type="application/json")


def asked(client: Client, chat: Chat, content: str = "Hi", **more: Any) -> Run:
    answer = ask(client, chat, content, **more)
    assert answer.status_code == 202, answer.content
    return Run.objects.get(pk=answer.json()["run_id"])


def why(run: Run) -> Reason:
    reason = Reason.read(run.auto)
    assert reason
    return reason


def shown(client: Client, address: str) -> str:
    return client.get(address).content.decode()


def said_by(page: str) -> list[str]:
    """What a page says of the models that answered, of the answer that is being written last."""
    found = re.findall(r'<p (?:id="answered-by" )?class="answered-by[^>]*>([^<]*)<', page)
    return [unescape(text) for text in found if text]


# Three rules.


def test_a_rule_for_a_tier(site: Site, as_alice: Client, chat: Chat, paula: User) -> None:
    site.rule(tier=chat.owner.tier)
    site.rule(2, tier=paula.tier, least_load_percent=100)

    run = asked(as_alice, chat)
    other = asked(bearing(paula), Chat.objects.create(owner=paula))

    assert (run.model, why(run).rule, why(run).otherwise) == (site.small, 1, site.default.slug)
    assert (other.model, why(other).rule) == (site.default, None)


def test_a_rule_on_the_prompts_tokens_counts_the_chat_so_far(site: Site, as_alice: Client, chat: Chat) -> None:
    first = asked(as_alice, Chat.objects.create(owner=chat.owner), model=site.default.slug)
    site.rule(most_prompt_tokens=first.input_tokens)

    run = asked(as_alice, chat)
    assert (run.model, why(run).prompt_tokens) == (site.small, first.input_tokens)
    bring(run, Status.DONE)
    longer = asked(as_alice, chat)

    assert longer.model == site.default
    assert (why(longer).rule, why(longer).prompt_tokens) == (None, longer.input_tokens)


def test_a_rule_on_load_counts_who_runs_and_who_waits(
    site: Site, as_alice: Client, chat: Chat, new_run: NewRun, bob: User
) -> None:
    site.rule(least_load_percent=80)
    site.load(7)
    before = asked(as_alice, chat)
    assert (before.model, why(before).load_percent) == (site.default, 70)  # who asks does not count
    bring(before, Status.DONE)
    new_run(in_chat=Chat.objects.create(owner=bob))

    run = asked(as_alice, chat)

    assert (run.model, why(run).rule, why(run).load_percent) == (site.small, 1, 80)


def test_with_no_report_the_load_is_not_known_and_no_rule_on_it_holds(
    site: Site, as_alice: Client, chat: Chat, new_run: NewRun, bob: User
) -> None:
    site.rule(least_load_percent=1)
    new_run(in_chat=Chat.objects.create(owner=bob))

    run = asked(as_alice, chat)

    assert (run.model, why(run).rule, why(run).load_percent) == (site.default, None, None)


def test_with_the_streams_away_neither_does_one(
    site: Site, as_alice: Client, chat: Chat, settings: LazySettings
) -> None:
    site.rule(least_load_percent=1)
    site.load(9)
    settings.STREAMS_URL = "redis://127.0.0.1:1/0"

    run = asked(as_alice, chat)

    assert (run.model, why(run).load_percent) == (site.default, None)


# Under pressure.


def test_free_goes_to_the_small_model_first_and_its_page_says_so_and_pro_does_not(
    site: Site, as_alice: Client, signed_in: Client, chat: Chat, paula: User
) -> None:
    site.press()
    paulas, paulas_chat = Client(), Chat.objects.create(owner=paula)
    paulas.force_login(paula)
    sentence = "Answered by Small, since Default was busy."

    run, other = asked(as_alice, chat), asked(bearing(paula), paulas_chat)

    assert (run.model, other.model) == (site.small, site.default)
    assert run.room_tier == "free"
    assert said_by(shown(signed_in, f"/chats/{chat.pk}")) == [sentence]  # while it waits, too
    assert said_by(shown(paulas, f"/chats/{paulas_chat.pk}")) == ["Answered by Default."]
    for each in (run, other):
        bring(each, Status.DONE)
    assert said_by(shown(signed_in, f"/chats/{chat.pk}")) == [sentence]
    assert said_by(shown(paulas, f"/chats/{paulas_chat.pk}")) == ["Answered by Default."]
    told = as_alice.get(f"/api/runs/{run.pk}").json()
    assert told["model"] == site.small.slug
    assert told["auto"] == {
        "rule": 1,
        "conditions": "tier free, load of at least 80 %",
        "otherwise": site.default.slug,
        "prompt_tokens": None,
        "load_percent": 90,
    }


def test_the_page_keeps_saying_so_after_the_rule_is_gone_and_names_what_answered_each_time(
    site: Site, as_alice: Client, signed_in: Client, chat: Chat
) -> None:
    site.press()
    bring(asked(as_alice, chat), Status.DONE)
    site.load(0)
    bring(asked(as_alice, chat), Status.DONE)
    bring(asked(as_alice, chat, model=site.default.slug), Status.DONE)

    RoutingRule.objects.all().delete()
    Model.objects.filter(pk=site.default.pk).update(name="Renamed")

    page = shown(signed_in, f"/chats/{chat.pk}")
    assert said_by(page) == ["Answered by Small, since Default was busy.", "Answered by Renamed."]


def test_the_reason_is_on_the_runs_page_in_the_admin_in_words(
    site: Site, as_alice: Client, as_operator: Client, chat: Chat
) -> None:
    site.press()
    run = asked(as_alice, chat)

    RoutingRule.objects.update(position=9, least_load_percent=50)

    page = unescape(shown(as_operator, f"/admin/chat/run/{run.pk}/change/"))
    assert "By rule 1 (tier free, load of at least 80 %); tier free, " in page
    assert f"load of {site.default.slug} 90 %, else {site.default.slug}" in page


def test_a_rule_without_a_load_says_which_model_answered_and_blames_nobody(
    site: Site, as_alice: Client, signed_in: Client, chat: Chat
) -> None:
    site.rule(most_prompt_tokens=1000)

    asked(as_alice, chat)

    assert said_by(shown(signed_in, f"/chats/{chat.pk}")) == ["Answered by Small."]


def test_the_chosen_models_queue_and_numbers_count(
    site: Site, as_alice: Client, chat: Chat, broker: Redis, bob: User
) -> None:
    site.press()
    site.set_small(max_output_tokens=7, queue_depth=1)

    run = asked(as_alice, chat)

    assert run.max_output_tokens == 7
    assert broker.llen(queue_name(site.small.slug, "free")) == 1
    bobs = Chat.objects.create(owner=bob)
    assert code_of(ask(bearing(bob), bobs)) == "queue_full"


# Nothing is forgotten because of a rule.


def test_a_rule_whose_models_window_is_too_small_for_prompt_and_answer_is_passed_over(
    site: Site, as_alice: Client, chat: Chat
) -> None:
    site.rule(tier=chat.owner.tier)
    site.set_small(context_window=256, max_output_tokens=64)
    words = "word " * 240

    run = asked(as_alice, chat, words)

    assert run.model == site.default
    assert (why(run).rule, why(run).passed_over) == (None, (1,))


def test_so_is_one_whose_window_would_have_the_chat_summed_up_earlier(site: Site, as_alice: Client, chat: Chat) -> None:
    site.rule(tier=chat.owner.tier)
    site.set_small(context_window=512)
    fold_from = Room.without_fixed(site.small, 64).fold_from  # 64: the tier's longest answer
    words = next(count for count in range(1, 500) if tokens_of(count, site.default) + 64 == fold_from)

    fits = asked(as_alice, chat, "word " * words)
    bring(fits, Status.CANCELLED)
    too_long = asked(as_alice, Chat.objects.create(owner=chat.owner), "word " * (words + 1))

    assert fits.model == site.small
    assert too_long.model == site.default
    assert too_long.input_tokens + 64 < site.small.context_window  # though it would have fitted


def tokens_of(words: int, model: Model) -> int:
    """Of a prompt of so many words."""
    return len(Tokenizer.load(model.source).encode_chat([Turn("user", "word " * words)]))


def test_so_is_one_whose_answers_are_shorter_than_what_was_asked_for(site: Site, as_alice: Client, chat: Chat) -> None:
    site.rule(tier=chat.owner.tier)
    site.set_small(max_output_tokens=20)

    assert asked(as_alice, chat, max_output_tokens=21).model == site.default
    assert asked(as_alice, Chat.objects.create(owner=chat.owner), max_output_tokens=20).model == site.small


def test_so_is_one_whose_model_is_broken(site: Site, as_alice: Client, chat: Chat, tmp_path: Any) -> None:
    site.rule(tier=chat.owner.tier)
    site.set_small(source=str(tmp_path))

    assert asked(as_alice, chat).model == site.default


def test_so_is_one_on_load_whose_model_has_no_worker(site: Site, as_alice: Client, chat: Chat) -> None:
    site.rule(least_load_percent=80)
    site.load(9, without_small=True)

    run = asked(as_alice, chat)

    assert (run.model, why(run).passed_over, why(run).load_percent) == (site.default, (1,), 90)


def test_a_chat_that_one_model_had_no_room_for_is_whole_again_for_the_other(
    site: Site, as_alice: Client, chat: Chat
) -> None:
    """What was left out of a prompt to the small model is read for the default one."""
    site.rule(most_prompt_tokens=1)
    site.set_small(context_window=256, max_output_tokens=64)
    add_message(chat, Role.USER, "word " * 150)
    add_message(chat, Role.ASSISTANT, "Yes")
    bring(asked(as_alice, chat, "word " * 60, model=site.small.slug), Status.DONE)

    run = asked(as_alice, chat)

    assert (run.model, run.first_position, run.left_out) == (site.default, 1, 0)


# To whom it is offered.


def test_where_it_is_not_offered_it_is_a_model_that_nobody_knows(
    site: Site, as_alice: Client, signed_in: Client, chat: Chat
) -> None:
    unknown = ask(as_alice, chat, model="nobody")
    refused = ask(as_alice, chat)

    assert code_of(refused) == "model_unknown"
    assert {**refused.json(), "model": None} == {**unknown.json(), "model": None}
    assert AUTO not in [model["slug"] for model in as_alice.get("/api/models").json()["results"]]
    assert AUTO not in [model["id"] for model in as_alice.get("/v1/models").json()["data"]]
    assert as_alice.get("/v1/models/auto").status_code == 404
    assert f'value="{AUTO}"' not in shown(signed_in, "/")
    assert not Run.objects.exists()


def test_where_it_is_offered_it_is_among_the_models_and_picked_for_a_new_chat(
    site: Site, as_alice: Client, signed_in: Client
) -> None:
    site.rule(tier=User.objects.get(username="alice").tier)

    listed = as_alice.get("/api/models").json()["results"]
    assert [entry["slug"] for entry in listed] == [site.default.slug, site.small.slug, AUTO]
    assert listed[-1] == {**listed[0], "slug": AUTO, "name": "Auto", "is_default": False}
    v1 = as_alice.get("/v1/models").json()["data"]
    assert [entry["id"] for entry in v1] == [site.default.slug, site.small.slug, AUTO]
    assert as_alice.get("/v1/models/auto").json() == v1[-1]
    page = shown(signed_in, "/")
    assert options(page) == [(AUTO, True), (site.default.slug, False), (site.small.slug, False)]


def options(page: str) -> list[tuple[str, bool]]:
    return [(value, bool(selected)) for value, selected in re.findall(r'<option value="([^"]+)" (selected)?>', page)]


def test_a_question_without_a_model_goes_to_the_default_one(site: Site, as_alice: Client, chat: Chat) -> None:
    site.rule(tier=chat.owner.tier)

    run = asked(as_alice, chat, model=None)

    assert (run.model, run.auto) == (site.default, None)
    assert as_alice.get(f"/api/runs/{run.pk}").json()["auto"] is None


@pytest.mark.parametrize("name", [AUTO, "small"])
def test_the_picker_stands_where_the_chats_last_run_was_asked(
    site: Site, as_alice: Client, signed_in: Client, chat: Chat, name: str
) -> None:
    site.rule(tier=chat.owner.tier)
    picked = AUTO if name == AUTO else site.small.slug
    asked(as_alice, chat, model=picked)

    assert [value for value, is_picked in options(shown(signed_in, f"/chats/{chat.pk}")) if is_picked] == [picked]


# Other ways to ask.


def test_a_retry_goes_by_the_rules_as_they_hold_now(site: Site, alice: User, as_alice: Client, chat: Chat) -> None:
    site.press()
    first = asked(as_alice, chat)
    bring(first, Status.DONE)
    site.load(0)

    second = services.retry(alice, first)
    bring(second, Status.CANCELLED)
    RoutingRule.objects.all().delete()  # it is not offered any more
    third = services.retry(alice, second)

    assert [run.model for run in (first, second, third)] == [site.small, site.default, site.default]
    assert (why(second).rule, why(second).load_percent) == (None, 0)
    assert third.auto is None
    assert second.max_output_tokens == first.max_output_tokens


def test_a_retry_of_what_was_picked_stays_with_it(site: Site, alice: User, as_alice: Client, chat: Chat) -> None:
    site.rule(tier=alice.tier)
    first = asked(as_alice, chat, model=site.default.slug)
    bring(first, Status.DONE)

    second = services.retry(alice, first)

    assert (second.model, second.auto) == (site.default, None)


def test_the_same_again_is_the_first_run_whatever_the_rules_say_by_then(
    site: Site, alice: User, chat: Chat, as_alice: Client
) -> None:
    site.press()
    key = {"Idempotency-Key": "a key"}
    address, body = f"/api/chats/{chat.pk}/messages", {"content": "Hi", "model": AUTO}
    first = as_alice.post(address, body, content_type="application/json", headers=key)
    RoutingRule.objects.all().delete()

    second = as_alice.post(address, body, content_type="application/json", headers=key)

    assert first.json() == second.json()
    assert Run.objects.get().model == site.small


def test_by_a_form_without_scripts(site: Site, alice: User, signed_in: Client) -> None:
    site.press()

    landed = signed_in.post("/ask", {"content": "Hi", "model": AUTO, "key": uuid4().hex}, follow=True)

    run = Run.objects.get()
    assert run.model == site.small
    page = landed.content.decode()
    assert said_by(page) == ["Answered by Small, since Default was busy."]
    assert "The answer is being written." in page
    bring(run, Status.DONE)
    site.load(0)
    signed_in.post(f"/chats/{run.chat_id}/retry", {"run": run.pk})
    assert why(Run.objects.exclude(pk=run.pk).get()).rule is None


def test_a_form_that_names_it_where_it_is_not_offered_gets_the_page_with_the_reason(
    signed_in: Client, model: Model
) -> None:
    answer = signed_in.post("/ask", {"content": "Hi", "model": AUTO, "key": uuid4().hex})

    assert answer.status_code == 400
    assert "This model is not open to you any more." in unescape(answer.content.decode())


SAID = [{"role": "user", "content": "Hi"}]


def test_by_openais_protocol_the_model_that_answers_is_told(site: Site, alice: User, as_alice: Client) -> None:
    site.press()
    body = {"model": AUTO, "input": "Hi", "background": True}

    first = as_alice.post("/v1/responses", body, content_type="application/json").json()
    assert first["model"] == site.small.slug
    run = Run.objects.get()
    bring(run, Status.DONE)
    site.load(0)
    body = {"input": "And?", "background": True, "previous_response_id": first["id"]}
    second = as_alice.post("/v1/responses", body, content_type="application/json").json()

    assert second["model"] == site.default.slug
    later = Run.objects.exclude(pk=run.pk).get()
    assert (later.chat, why(later).load_percent) == (run.chat, 0)


def test_a_programs_conversation_is_never_cut_by_a_rule(site: Site, alice: User) -> None:
    site.rule(tier=alice.tier)
    site.set_small(context_window=256, max_output_tokens=64)
    pick = Pick.auto("free")
    assert pick

    def run(words: int) -> Run:
        said = [(Role.USER, "word " * words)]
        made = programs.ask(alice, programs.Asked(said, pick.model, rules=pick.rules))
        bring(made, Status.CANCELLED)
        return made

    assert run(100).model.pk == site.small.pk
    assert run(150).model.pk == site.small.pk  # it is not kept: nobody will sum it up
    assert run(240).model.pk == site.default.pk


# What it costs.


def test_what_a_question_costs(site: Site, alice: User, as_alice: Client, monkeypatch: pytest.MonkeyPatch) -> None:
    chats = [Chat.objects.create(owner=alice) for _ in range(4)]
    site.load(0)
    site.rule(1, tier=alice.tier, most_prompt_tokens=1)
    for opening in (site.default.slug, site.small.slug, AUTO):  # opens connections, loads the tokenizer and the scripts
        bring(asked(as_alice, chats[0], model=opening), Status.DONE)

    def costs_of(chat: Chat, name: str) -> tuple[list[str], int]:
        Run.objects.all().delete()
        with metered(monkeypatch) as costs:
            asked(as_alice, chat, model=name)
        return costs.verbs, costs.round_trips

    picked, trips = costs_of(chats[1], site.default.slug)
    # The default model comes with the rules: not one statement more.
    assert costs_of(chats[2], AUTO) == (picked, trips)
    RoutingRule.objects.update(most_prompt_tokens=None)
    elsewhere, trips_elsewhere = costs_of(chats[3], AUTO)
    assert elsewhere == [*picked[:4], "SELECT", *picked[4:]]  # how the other model's queue stands
    assert trips_elsewhere == trips
    RoutingRule.objects.update(least_load_percent=1)
    assert costs_of(Chat.objects.create(owner=alice), AUTO) == (picked, trips + 1)  # what workers report
    assert costs_of(Chat.objects.create(owner=alice), AUTO) == (picked, trips)  # and not again within a second
    assert Message.objects.filter(role=Role.USER).count() == 8
