"""Every sentence of pages and scripts is there in every language, and what is compiled is what was written."""

from __future__ import annotations

import ast
import gettext
import json
import re
from collections.abc import Callable, Iterator, Mapping
from io import BytesIO
from pathlib import Path

import pytest
from babel.messages.catalog import Catalog
from babel.messages.extract import extract
from babel.messages.mofile import write_mo
from babel.messages.pofile import read_po
from django.conf import settings
from django.test import Client
from django.utils.translation.template import templatize

from chatsite import languages

ROOT = Path(settings.BASE_DIR)
LANGUAGES = {"fa": "fa", "zh-hans": "zh_Hans"}
# As makemessages calls them; the pages' own sources, without the admin's.
PYTHON_KEYWORDS: Mapping[str, tuple[int, ...] | None] = {
    **dict.fromkeys(("_", "gettext", "gettext_lazy", "gettext_noop")),
    "ngettext": (1, 2),
}
SCRIPT_KEYWORDS: Mapping[str, tuple[int, ...] | None] = {"gettext": None, "ngettext": (1, 2)}
# What Django makes of a template is not quite Python.
OF_TEMPLATES = re.compile(r"""\bn?gettext\((u?(?:'(?:[^'\\]|\\.)*'|"(?:[^"\\]|\\.)*"))""")
PLACES = re.compile(r"%\(\w+\)s")


def catalog(folder: str, domain: str) -> Catalog:
    """The translations as they are written."""
    with (ROOT / "locale" / folder / "LC_MESSAGES" / f"{domain}.po").open("rb") as file:
        return read_po(file, locale=folder)


def said_by_pages() -> Iterator[str]:
    """The first form of every sentence of templates and views."""
    for path in (ROOT / "templates").rglob("*.html"):
        for literal in OF_TEMPLATES.findall(templatize(path.read_text())):
            yield ast.literal_eval(literal)
    for path in (ROOT / "chat").rglob("*.py"):
        yield from _found("python", path.read_bytes(), PYTHON_KEYWORDS)


def said_by_scripts() -> Iterator[str]:
    """Likewise, of the pages' modules."""
    for path in (ROOT / "chat/static/chat").glob("*.js"):
        yield from _found("javascript", path.read_bytes(), SCRIPT_KEYWORDS)


def _found(method: str, source: bytes, keywords: Mapping[str, tuple[int, ...] | None]) -> Iterator[str]:
    for _, message, _, _ in extract(method, BytesIO(source), keywords=keywords):
        yield message[0] if isinstance(message, tuple) else message


@pytest.mark.parametrize("folder", LANGUAGES.values())
@pytest.mark.parametrize(("domain", "said"), [("django", said_by_pages), ("djangojs", said_by_scripts)])
def test_every_sentence_is_translated_and_keeps_what_is_filled_in(
    folder: str, domain: str, said: Callable[[], Iterator[str]]
) -> None:
    translations = catalog(folder, domain)
    sentences = set(said())
    assert len(sentences) > 30
    for sentence in sentences:
        found = translations.get(sentence)
        assert found is not None, sentence
        assert not found.fuzzy, sentence
        whole = str(found.id[-1] if isinstance(found.id, tuple) else found.id)
        forms = found.string if isinstance(found.string, tuple) else (found.string,)
        for form in map(str, forms):
            assert form, sentence
            assert set(PLACES.findall(form)) == set(PLACES.findall(whole)), sentence
    kept = {message.id[0] if isinstance(message.id, tuple) else message.id for message in translations}
    assert kept - {""} == sentences


@pytest.mark.parametrize("folder", LANGUAGES.values())
@pytest.mark.parametrize("domain", ["django", "djangojs"])
def test_what_is_compiled_is_what_was_written(folder: str, domain: str) -> None:
    compiled = BytesIO()
    write_mo(compiled, catalog(folder, domain))
    compiled.seek(0)
    with (ROOT / "locale" / folder / "LC_MESSAGES" / f"{domain}.mo").open("rb") as file:
        kept = gettext.GNUTranslations(file)._catalog  # type: ignore[attr-defined]
    fresh = gettext.GNUTranslations(compiled)._catalog  # type: ignore[attr-defined]
    assert {key: text for key, text in kept.items() if key} == {key: text for key, text in fresh.items() if key}


@pytest.mark.django_db
@pytest.mark.parametrize(
    ("asked", "language", "direction", "word"),
    [("fa-IR,fa;q=0.9", "fa", "rtl", "ورود"), ("zh-CN", "zh-hans", "ltr", "登录"), ("sv", "en", "ltr", "Sign in")],
)
def test_a_page_is_in_the_language_that_the_browser_asks_for(
    client: Client, asked: str, language: str, direction: str, word: str
) -> None:
    answer = client.get("/sign-in", headers={"Accept-Language": asked})

    assert f'<html lang="{language}" dir="{direction}">' in answer.content.decode()
    assert f"<h1>{word}</h1>" in answer.content.decode()
    assert answer.headers["Content-Language"] == language


@pytest.mark.django_db
def test_a_chosen_language_goes_before_the_browsers(client: Client) -> None:
    chosen = client.post("/language", {"language": "zh-hans", "next": "/sign-in"}, headers={"Accept-Language": "fa"})

    assert chosen.headers["Location"] == "/sign-in"
    assert "登录" in client.get("/sign-in", headers={"Accept-Language": "fa"}).content.decode()


@pytest.mark.django_db
def test_programs_are_told_in_english(client: Client) -> None:
    answer = client.get("/api/chats", headers={"Accept-Language": "fa"})

    assert answer.json()["detail"].isascii()


def test_the_words_of_scripts_come_by_language_and_may_be_kept(client: Client) -> None:
    address = f"/words.js?language=fa&edition={languages.edition()}"
    words = client.get(address, headers={"Accept-Language": "zh-hans"})

    assert json.dumps("در حال فکر…") in words.content.decode()
    assert "immutable" in words.headers["Cache-Control"]
    of_another_release = client.get("/words.js?language=fa&edition=x")
    assert "no-store" in of_another_release.headers["Cache-Control"]
    assert client.get("/words.js?language=xx").status_code == 404
    assert len(languages.edition()) == 12
