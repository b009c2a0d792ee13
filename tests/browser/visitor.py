"""A person at a browser of their own: what they do, what they see, and what the browser complains about."""

from __future__ import annotations

import json
import re
from dataclasses import dataclass, field
from typing import Any
from uuid import uuid4

from playwright.sync_api import Browser, BrowserContext, ConsoleMessage, Locator, Page, Response, ViewportSize, expect

PASSWORD = "correct horse battery"
DESKTOP: ViewportSize = {"width": 1280, "height": 800}
PHONE: ViewportSize = {"width": 390, "height": 844}

# The browser writes one for every refusal, expected or not: the status is what tests look at.
REFUSAL = re.compile(r"Failed to load resource: the server responded with a status of 4\d\d")
# And for a connection that a server which stops, or the test, has cut.
CUT = re.compile(
    r"net::ERR_(FAILED|INCOMPLETE_CHUNKED_ENCODING|CONNECTION_(REFUSED|RESET)|SOCKET_NOT_CONNECTED"
    r"|INTERNET_DISCONNECTED|NETWORK_CHANGED)"
)


def scripted(text: str, **wishes: Any) -> str:
    """A question that the scripted engine answers with `text`."""
    return f"Please [[script {json.dumps({'text': text, **wishes}, ensure_ascii=False)}]]"


LONG = " ".join(f"word{number}" for number in range(60))
GROWING = scripted(LONG, split_characters=True, tokens_per_step=3)  # 300 characters a second at most
# One that is being written until it is stopped.
UNENDING = scripted(LONG, split_characters=True, tokens_per_step=3, unending=True)
# An answer that does not begin until it is stopped.
SILENCE = scripted("late", first_token_ms=600_000)


@dataclass
class Visitor:
    """One browser context, one page to begin with."""

    context: BrowserContext
    page: Page
    complaints: list[str] = field(default_factory=list)
    name: str = ""

    @classmethod
    def arrive(cls, browser: Browser, address: str, viewport: ViewportSize = DESKTOP, **options: Any) -> Visitor:
        """Open a browser context; its pages complain to the visitor."""
        context = browser.new_context(base_url=address, viewport=viewport, **options)
        context.set_default_timeout(15_000)
        visitor = cls(context, context.new_page())
        context.on("console", visitor._hear)
        context.on("weberror", lambda error: visitor.complaints.append(str(error.error)))
        context.on("response", visitor._look)
        return visitor

    def sign_up(self, name: str | None = None) -> None:
        """Make an account, past the form."""
        self.name = name or f"alice-{uuid4().hex[:8]}"
        page = self.context.request.get("/sign-up").text()
        token = re.search(r'name="csrfmiddlewaretoken" value="(\w+)"', page)
        assert token, page
        account = {"username": self.name, "password1": PASSWORD, "password2": PASSWORD}
        form = {**account, "csrfmiddlewaretoken": token[1]}
        answer = self.context.request.post("/sign-up", form=form, max_redirects=0)
        assert answer.status == 302, answer.text()

    def ask(self, question: str) -> None:
        """Write and send, as a person does once the page is ready."""
        self.page.wait_for_load_state()  # Chromium drops keys that are pressed before it has painted
        expect(self.send).to_be_enabled()
        self.composer.fill(question)
        if self.page.evaluate("matchMedia('(hover: none) and (pointer: coarse)').matches"):
            self.send.tap()  # where Enter breaks the line
        else:
            self.composer.press("Enter")

    def ask_and_wait(self, question: str, answer: str) -> None:
        """Ask, and wait until the answer is whole."""
        self.ask(question)
        expect(self.answers.last).to_have_text(answer)
        expect(self.stop).to_be_hidden()

    def listen(self, address: str = "") -> None:
        """Open a page, or this one anew, and wait until it listens and has fetched what it may have missed."""
        address = address or self.page.url
        self.page.goto("about:blank")  # so that what is waited for is not of the page before
        with self.page.expect_request_finished(lambda request: request.resource_type == "fetch"):
            self.page.goto(address)

    def another_tab(self, address: str) -> Visitor:
        """The same browser's next tab, once it listens: by the connection that another tab of it holds."""
        tab = Visitor(self.context, self.context.new_page(), self.complaints)
        with tab.page.expect_response(lambda response: response.request.resource_type == "fetch"):
            tab.page.goto(address)
        return tab

    def menu(self, place: int, choice: str) -> None:
        """Choose from the menu of the chat at that place in the list."""
        chat = self.page.locator("#chat-list .chat").nth(place)
        chat.hover()
        chat.get_by_label("More about this chat").click()
        chat.get_by_role("button", name=choice).click()

    def delete(self, place: int) -> None:
        """Delete the chat at that place in the list, and do not want it back."""
        self.menu(place, "Delete")
        self.undo.focus()
        self.page.keyboard.press("Escape")

    def open_chat(self, title: str) -> str:
        """Make a chat of that title, past the page; returns its id."""
        token = next(cookie["value"] for cookie in self.context.cookies() if cookie["name"] == "csrftoken")
        headers = {"X-CSRFToken": token}
        chat_id: str = self.context.request.post("/api/chats", data={}, headers=headers).json()["id"]
        renamed = self.context.request.patch(f"/api/chats/{chat_id}", data={"title": title}, headers=headers)
        assert renamed.ok, renamed.text()
        return chat_id

    def api(self, path: str) -> Any:
        """What the API says to the same person."""
        answer = self.context.request.get(path)
        assert answer.ok, answer.text()
        return answer.json()

    @property
    def chat_id(self) -> str:
        """Of the chat on the page."""
        return self.page.url.rpartition("/")[2]

    @property
    def stored(self) -> list[str]:
        """The chat's messages as the API has them."""
        return [message["content"] for message in self.api(f"/api/chats/{self.chat_id}/messages")["results"]]

    @property
    def composer(self) -> Locator:
        return self.page.get_by_label("Message", exact=True)

    @property
    def send(self) -> Locator:
        return self.page.get_by_role("button", name="Send")

    @property
    def stop(self) -> Locator:
        return self.page.locator("#stop")

    @property
    def retry(self) -> Locator:
        return self.page.get_by_role("button", name="Retry")

    @property
    def note(self) -> Locator:
        """What is said below the last message."""
        return self.page.locator("#tail-note")

    @property
    def status(self) -> Locator:
        """What was told last to who cannot see the page."""
        return self.page.locator("#status")

    @property
    def texts(self) -> Locator:
        """Of all messages that can be seen."""
        return self.page.locator(".turn:visible .text")

    @property
    def answers(self) -> Locator:
        return self.page.locator(".turn.assistant:visible .text")

    @property
    def refusal(self) -> Locator:
        return self.page.locator("#refusal-reason")

    @property
    def chats(self) -> Locator:
        return self.page.locator("#chat-list .label")

    @property
    def undo(self) -> Locator:
        """Takes a deletion back."""
        return self.page.get_by_role("button", name="Undo")

    def _hear(self, message: ConsoleMessage) -> None:
        text = message.text
        if message.type in {"error", "warning"} and not REFUSAL.search(text) and not CUT.search(text):
            self.complaints.append(f"{message.type}: {text}")

    def _look(self, response: Response) -> None:
        if response.status >= 500 or (response.status == 404 and "/static/" in response.url):
            self.complaints.append(f"{response.status} {response.url}")
