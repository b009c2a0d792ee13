"""manage.py context: a chat's next prompt by parts."""

from __future__ import annotations

import io
import re
import shutil
from collections.abc import Callable
from pathlib import Path
from uuid import uuid4

import pytest
from django.core.management import CommandError, call_command

from chat import context, hot_contexts, inspection
from chat.context import Prompt
from chat.inspection import AS_GIVEN, Part
from chat.models import Chat, Message, Run, Status, Summary
from inference.rendering import Answer
from inference.tokens import Tokenizer
from scheduler.models import Model, Tier
from tests.conftest import OUTPUT_CAP
from tests.real_model import model_folder

NewRun = Callable[..., Run]
# Tokens that SmolLM2's template puts around a turn: <|im_start|>, the role ("assistant" is two), newline, <|im_end|>,
# newline; and those with which it opens an answer.
TURN, REPLY, OPENING = 5, 6, 4
HEAD = "{%- for message in messages -%}{{ '<|im_start|>' + message.role + '\n' + "
TAIL = " + '<|im_end|>\n' }}{%- endfor -%}{%- if add_generation_prompt -%}{{ '<|im_start|>assistant\n' }}{%- endif -%}"
TRIMS = f"{HEAD}message.content | trim{TAIL}"
DROPS_THOUGHTS = f"{HEAD}(message.content if loop.last else message.content.split('</think>')[-1]){TAIL}"
LEAVES_OUT = f"{HEAD}(message.content if loop.last else ''){TAIL}"
CHANGES_THE_LAST = f"{HEAD}message.content + ('!' if loop.last else ''){TAIL}"


@pytest.fixture
def templated(model: Model, tmp_path: Path) -> Callable[[str], None]:
    """Gives the model another template."""

    def give(template: str) -> None:
        for name in ("tokenizer.json", "tokenizer_config.json", "config.json"):
            shutil.copy(model_folder() / name, tmp_path)
        (tmp_path / "chat_template.jinja").write_text(template)
        model.source = str(tmp_path)
        model.save()

    return give


@pytest.fixture
def tokenizer() -> Tokenizer:
    return Tokenizer.load(model_folder())


@pytest.fixture
def answered(new_run: NewRun, tokenizer: Tokenizer) -> Callable[..., Run]:
    """An exchange whose answer is stored in ids of its own, one for each byte."""

    def answer(question: str, text: str) -> Run:
        run = new_run(Status.DONE, text=question, answer=text)
        run.chat.messages.filter(run=run).update(token_ids=tokenizer.encode_bytes(text))
        return run

    return answer


def shown(chat: Chat, *options: str) -> str:
    out = io.StringIO()
    call_command("context", str(chat.pk), *options, stdout=out)
    return out.getvalue()


def line(output: str, begins: str) -> str:
    [found] = [each for each in output.splitlines() if each.startswith(begins)]
    return found


def parts(chat: Chat, model: Model, question: str = "Hi") -> dict[str, Part]:
    return {part.name: part for part in inspection.inspect(chat, model, question).parts}


def keep(chat: Chat, model: Model, prompt: Prompt, answer: str) -> None:
    hot_contexts.keep(chat.pk, model, prompt, Answer(answer, model.tokenizer.encode_bytes(answer)))


def test_each_part_has_the_tokens_it_comes_to(
    answered: Callable[..., Run], new_run: NewRun, chat: Chat, model: Model, tokenizer: Tokenizer
) -> None:
    model.system_prompt = "Speak like a pirate."
    model.save()
    answered("Forgotten", "Gone")
    Summary.objects.create(chat=chat, epoch=1, upto=2, text="We spoke of ships.")
    answered("And whales?", "Big fish")
    new_run(Status.DONE, text="Really?", answer="No, mammals")

    found = parts(chat, model, "Thanks")

    assert {name: (part.tokens, part.note) for name, part in found.items()} == {
        "system prompt": (tokenizer.count("Speak like a pirate."), inspection.FROM_TEXT),
        "summary": (tokenizer.count(context.SUMMARY.format(text="We spoke of ships.")), "epoch 1, up to message 2"),
        "left out": (0, "none"),
        "message 3, user": (tokenizer.count("And whales?"), inspection.FROM_TEXT),
        "message 4, assistant": (len("Big fish"), AS_GIVEN),
        "message 5, user": (tokenizer.count("Really?"), inspection.FROM_TEXT),
        "message 6, assistant": (tokenizer.count("No, mammals"), "tokenised anew: its ids were not stored"),
        "question": (tokenizer.count("Thanks"), inspection.FROM_TEXT),
        # The summary and the question behind it are one turn, two newlines between them.
        "template": (4 * TURN + 2 * REPLY + OPENING + 2, "around them, and between"),
    }


def test_the_parts_add_up_to_the_prompt(answered: Callable[..., Run], chat: Chat, model: Model) -> None:
    for number in range(5):
        answered(f"\n Question {number} \n", f"\nسلام 👋🏽 {number}<|im_end|> ")

    whole = len(context.for_question(chat, model, " Hi ", OUTPUT_CAP).ids)

    assert sum(part.tokens for part in parts(chat, model, " Hi ").values()) == whole
    assert f" {whole}  of a window of {model.context_window}" in line(shown(chat, "--question", " Hi "), "total")


def test_an_empty_chat_has_a_question_only(chat: Chat, model: Model) -> None:
    found = parts(chat, model)

    assert [name for name, part in found.items() if part.tokens] == ["question", "template"]
    assert [part.note for part in found.values()][:3] == ["none"] * 3


def test_no_word_of_the_chat_is_shown_unless_asked_for(answered: Callable[..., Run], chat: Chat, model: Model) -> None:
    answered("Forgotten", "Gone")
    Summary.objects.create(chat=chat, epoch=1, upto=2, text="We spoke of ships.")
    answered("Whales", "Mammals")

    for word in ("ships", "Whales", "Mammals", "secret"):
        assert word not in shown(chat, "--question", "secret")
        assert f"{word}" in shown(chat, "--question", "secret", "--text")


def test_what_is_left_out_is_told_by_its_places(answered: Callable[..., Run], chat: Chat, model: Model) -> None:
    for number in range(4):
        answered(f"Question {number}", "words " * 20)
    model.context_window = 500
    model.save()

    layout = context.for_question(chat, model, "Hi", OUTPUT_CAP).layout

    output = shown(chat)
    assert layout.left_out > 0
    assert f"{layout.left_out} messages, 1 to {layout.left_out}" in line(output, "left out")
    assert "behind the next answer: messages are left out" in line(output, "next fold")
    assert f"message {layout.first_position}, user" in output
    assert f"message {layout.first_position - 1}, " not in output


def test_a_question_that_no_window_has_room_for_is_told_to_be_refused(chat: Chat, model: Model) -> None:
    model.context_window = 64
    model.save()

    assert line(shown(chat, "--question", "words " * 100), "total").endswith("of a window of 64; it is refused")


def test_an_answer_beside_another_is_tokenised_anew(answered: Callable[..., Run], chat: Chat, model: Model) -> None:
    run = answered("Hello", "Hi")
    chat.messages.filter(run=run).update(role="user")  # as after an answer that was lost
    answered("More", "Yes")
    Message.objects.filter(position=3).update(role="assistant")

    found = parts(chat, model)

    assert found["message 4, assistant"].note == "tokenised anew: joined with its neighbour"


def test_ids_of_another_model_are_not_used(answered: Callable[..., Run], chat: Chat, model: Model) -> None:
    run = answered("Hello", "Hi")
    chat.messages.filter(run=run).update(token_ids=[99_999_999])

    assert parts(chat, model)["message 2, assistant"].note == "tokenised anew: its ids are not this model's"


def test_the_hot_context_is_a_hit_a_miss_or_none(answered: Callable[..., Run], chat: Chat, model: Model) -> None:
    assert line(shown(chat), "hot context").endswith(" none")
    prompt = context.for_run(answered("Hello", "Hi"))

    keep(chat, model, prompt, "Hi")
    assert line(shown(chat), "hot context").endswith(f" hit, {len(prompt.ids) + 2} tokens kept")

    keep(chat, model, prompt, "Ho")
    assert line(shown(chat), "hot context").endswith(f" miss, {len(prompt.ids) + 2} tokens kept")


def test_the_warm_worker_is_the_one_that_answered_last(answered: Callable[..., Run], chat: Chat, model: Model) -> None:
    assert line(shown(chat), "warm worker").endswith(" none")
    answered("Hello", "Hi")

    # By the rows, three tokens in and two out.
    assert line(shown(chat), "warm worker").endswith(" worker, 5 tokens")


def test_the_models_own_template_takes_turns_as_they_are(
    answered: Callable[..., Run], chat: Chat, model: Model
) -> None:
    answered("Hello", "Hi")

    assert "as they are" in line(shown(chat), "chat template")


def test_a_template_that_drops_thoughts_later_is_told_and_has_their_tokens(
    answered: Callable[..., Run], chat: Chat, model: Model, templated: Callable[[str], None]
) -> None:
    templated(DROPS_THOUGHTS)
    answered("Hello", "Let me see.</think>Hi")
    answered("More", "Yes")

    found = parts(chat, model)

    assert found["message 2, assistant"].tokens == 0
    assert found["message 2, assistant"].note == "the template changes it: counted there"
    assert found["message 4, assistant"].note == "tokenised anew: the template changes an answer"
    assert sum(part.tokens for part in found.values()) == len(context.for_question(chat, model, "Hi").ids)


def test_what_the_template_leaves_out_has_no_tokens(
    answered: Callable[..., Run], chat: Chat, model: Model, templated: Callable[[str], None]
) -> None:
    templated(LEAVES_OUT)
    answered("Hello", "Hi")

    found = parts(chat, model)

    assert found["message 1, user"].tokens == found["message 2, assistant"].tokens == 0
    assert found["template"].tokens == 2 * TURN + REPLY + OPENING


def test_a_template_that_changes_a_turn_when_others_follow_is_told(
    answered: Callable[..., Run], chat: Chat, model: Model, templated: Callable[[str], None]
) -> None:
    templated(CHANGES_THE_LAST)
    answered("Hello", "Hi")

    assert "otherwise when others follow" in line(shown(chat), "chat template")


def test_what_the_template_trims_is_not_counted(
    answered: Callable[..., Run], chat: Chat, model: Model, tokenizer: Tokenizer, templated: Callable[[str], None]
) -> None:
    templated(TRIMS)
    answered("  Hello  ", "\nHi ")

    found = parts(chat, model)

    assert found["message 1, user"].tokens == tokenizer.count("Hello")
    assert found["message 2, assistant"] == Part(
        "message 2, assistant", tokenizer.count("Hi"), "tokenised anew: the template changes an answer", "\nHi "
    )
    assert found["template"].tokens == 2 * TURN + REPLY + OPENING


def test_the_next_fold_comes_beyond_its_share_of_the_window(
    answered: Callable[..., Run], chat: Chat, model: Model
) -> None:
    answered("Hello", "Hi")
    room = model.context_window - OUTPUT_CAP
    fixed = Tokenizer.load(model.source).count(model.system_prompt)
    now = len(context.for_question(chat, model, "Hi").ids)

    said = line(shown(chat), "next fold")

    assert f" {fixed + (room - fixed) * 60 // 100} tokens: " in said
    assert said.endswith(f"this prompt has {now}")


def test_the_model_is_the_one_that_answered_last_unless_named(
    answered: Callable[..., Run], chat: Chat, model: Model, free: Tier
) -> None:
    answered("Hello", "Hi")
    Model.objects.update(is_default=False)
    other = Model.objects.create(slug="other", name="Other", source=model.source, context_window=1234, is_default=True)

    assert line(shown(chat), "model  ").endswith(model.slug)
    assert "window of 1234" in line(shown(chat, "--model", other.slug), "total")
    assert line(shown(Chat.objects.create(owner=chat.owner)), "model  ").endswith("other")


@pytest.mark.parametrize("chat_id", ["", "7", "nothing", str(uuid4())])
def test_no_such_chat_is_one_line(db: None, chat_id: str) -> None:
    with pytest.raises(CommandError, match=r"\A.*chat.*\Z") as refusal:
        call_command("context", chat_id)

    assert refusal.value.returncode == 1


def test_no_such_model_is_one_line(chat: Chat) -> None:
    with pytest.raises(CommandError, match=r"\AThere is no model 'unheard-of'\.\Z"):
        shown(chat, "--model", "unheard-of")
    with pytest.raises(CommandError, match=r"\ANo model is the default one: .*\Z"):
        shown(chat)


@pytest.mark.parametrize("template", ["{{ raise_exception('Not you.') }}", None])
def test_a_model_that_cannot_be_used_is_one_line(
    chat: Chat, model: Model, tmp_path: Path, template: str | None
) -> None:
    if template:
        for name in ("tokenizer.json", "tokenizer_config.json"):
            shutil.copy(model_folder() / name, tmp_path)
        (tmp_path / "chat_template.jinja").write_text(template)
    Model.objects.filter(pk=model.pk).update(source=str(tmp_path))

    with pytest.raises(CommandError) as refusal:
        shown(chat)

    assert re.fullmatch(r".+", str(refusal.value))


def test_a_question_that_is_no_text_is_one_line(chat: Chat, model: Model) -> None:
    with pytest.raises(CommandError, match=r"\A.*surrogate.*\Z"):
        shown(chat, "--question", "\udcff")
