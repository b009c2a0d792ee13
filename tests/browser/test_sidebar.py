"""The list of chats: by day, longer as one scrolls, renamed in place, deleted with a way back."""

from __future__ import annotations

import re
from collections.abc import Iterable

import psycopg
import pytest
from playwright.sync_api import Locator, Request, Route, expect

from chat.pages import CHATS_A_PAGE
from tests.browser.conftest import NewVisitor
from tests.browser.visitor import PHONE, SILENCE, Visitor, scripted
from tests.stack.stack import Stack

OLDER = re.compile(r"/\?cursor=")
A_CHAT = re.compile(r"/api/chats/[0-9a-f-]+$")
TOAST_MS = 8_000
HANDED_OVER = "Object.keys(sessionStorage).filter((key) => key.startsWith('deletion:'))"


def write_chats(stack: Stack, visitor: Visitor, chats: Iterable[tuple[str, str]]) -> None:
    """Have the visitor own chats of these titles, which were last active then."""
    with psycopg.connect(stack.database_url, autocommit=True) as connection, connection.cursor() as cursor:
        cursor.executemany(
            """INSERT INTO chat_chat (id, owner_id, title, updated_at)
               SELECT gen_random_uuid(), id, %s, %s FROM chat_user WHERE username = %s""",
            [(title, moment, visitor.name) for title, moment in chats],
        )


def write_pages(stack: Stack, visitor: Visitor, count: int) -> list[str]:
    """Have the visitor own so many chats, all of one day; their titles as they are listed."""
    titles = [f"Chat {number}" for number in range(count)]
    write_chats(stack, visitor, [(title, f"2020-05-05T{n // 60:02}:{n % 60:02}Z") for n, title in enumerate(titles)])
    return titles[::-1]


def listed(visitor: Visitor) -> Locator:
    """Chats and headings between them."""
    return visitor.page.locator("#chat-list").locator(".label, h2")


def scroll_to_end(visitor: Visitor) -> None:
    visitor.page.locator("#chats").evaluate("list => list.scrollTo(0, list.scrollHeight)")


def toast(visitor: Visitor) -> Locator:
    return visitor.page.locator("#toast")


def title_input(visitor: Visitor) -> Locator:
    return visitor.page.get_by_label("Title")


@pytest.fixture
def listener(alice: Visitor) -> Visitor:
    """Alice with three chats, once her page listens."""
    for title in ("One", "Two", "Three"):
        alice.open_chat(title)
    alice.listen()
    expect(alice.chats).to_have_text(["Three", "Two", "One"])
    return alice


@pytest.fixture
def deletions(alice: Visitor) -> list[str]:
    """What Alice's pages have sent to be deleted."""
    sent: list[str] = []

    def look(request: Request) -> None:
        if request.method == "DELETE":
            sent.append(request.url.rpartition("/")[2])

    alice.context.on("request", look)
    return sent


# A day of 23 hours lies between this moment and what was active on the 8th.
LATE_ON_THE_9TH = "2026-03-10T03:30:00Z"  # half past eleven in New York
BY_DAY = [
    ("Now", "2026-03-10T03:29Z"),
    ("Morning", "2026-03-09T04:00Z"),
    ("Sunday evening", "2026-03-09T03:59Z"),
    ("A week ago", "2026-03-02T12:00Z"),
    ("Eight days ago", "2026-03-01T12:00Z"),
    ("Thirty days ago", "2026-02-07T12:00Z"),
    ("Carnival", "2026-02-06T12:00Z"),
    ("New Year in London", "2026-01-01T00:30Z"),
]


@pytest.fixture
def in_new_york(visit: NewVisitor, scripted_stack: Stack) -> Visitor:
    """Somebody with old chats, on the 9th of March."""
    visitor = visit(timezone_id="America/New_York")
    visitor.sign_up()
    write_chats(scripted_stack, visitor, BY_DAY)
    visitor.page.clock.install(time=LATE_ON_THE_9TH)
    visitor.page.goto("/")
    return visitor


def test_chats_stand_under_the_readers_own_days(in_new_york: Visitor) -> None:
    expect(listed(in_new_york)).to_have_text(
        [
            *("Today", "Now", "Morning", "Yesterday", "Sunday evening", "Previous 7 days", "A week ago"),
            *("Previous 30 days", "Eight days ago", "Thirty days ago", "February 2026", "Carnival"),
            *("December 2025", "New Year in London"),
        ]
    )
    expect(in_new_york.page.get_by_role("heading", name="Yesterday", level=2)).to_be_visible()


def test_at_midnight_todays_chats_become_yesterdays(in_new_york: Visitor) -> None:
    in_new_york.page.clock.fast_forward("30:01")

    expect(listed(in_new_york)).to_have_text(
        [
            *("Yesterday", "Now", "Morning", "Previous 7 days", "Sunday evening"),
            *("Previous 30 days", "A week ago", "Eight days ago", "February 2026", "Thirty days ago", "Carnival"),
            *("December 2025", "New Year in London"),
        ]
    )


def test_a_chat_that_is_gone_on_with_moves_to_today(alice: Visitor, scripted_stack: Stack) -> None:
    write_chats(scripted_stack, alice, [("Old", "2020-05-05T00:00Z"), ("Older", "2020-04-05T12:00Z")])
    alice.page.goto("/")
    expect(listed(alice)).to_have_text(["May 2020", "Old", "April 2020", "Older"])
    alice.page.get_by_role("link", name="Older", exact=True).click()

    alice.ask_and_wait(scripted("Hi."), "Hi.")

    expect(listed(alice)).to_have_text(["Today", "Older", "May 2020", "Old"])


def test_older_chats_come_as_one_scrolls_and_stay_when_the_list_changes(alice: Visitor, scripted_stack: Stack) -> None:
    titles = write_pages(scripted_stack, alice, CHATS_A_PAGE * 2 + 2)
    alice.listen()
    expect(alice.chats).to_have_text(titles[:CHATS_A_PAGE])

    scroll_to_end(alice)
    expect(alice.chats).to_have_text(titles[: CHATS_A_PAGE * 2])
    scroll_to_end(alice)

    expect(alice.chats).to_have_text(titles)
    expect(alice.page.locator("#older")).to_be_hidden()
    expect(alice.composer).to_be_focused()
    expect(listed(alice).first).to_have_text("May 2020")
    expect(alice.page.locator("#chat-list h2")).to_have_count(1)
    alice.open_chat("One more")
    expect(alice.chats).to_have_text(["One more", *titles])


def test_a_chat_that_is_opened_far_down_leaves_the_list_where_it_was(alice: Visitor, scripted_stack: Stack) -> None:
    write_chats(scripted_stack, alice, [(f"Chat {n}", f"2020-05-05T{n // 60:02}:{n % 60:02}Z") for n in range(100)])
    alice.page.goto("/")
    far = alice.page.get_by_role("link", name="Chat 5", exact=True)
    while not far.count():
        alice.page.locator("#chat-list > :last-child").scroll_into_view_if_needed()
        alice.page.wait_for_timeout(50)
    far.scroll_into_view_if_needed()
    before = far.bounding_box()

    far.click()

    expect(far).to_have_attribute("aria-current", "page")
    expect(far).to_be_in_viewport()
    after = far.bounding_box()
    assert before
    assert after
    assert abs(before["y"] - after["y"]) <= 1


def test_a_page_of_older_chats_is_fetched_once_and_one_that_fails_is_left_to_be_pressed(
    alice: Visitor, scripted_stack: Stack
) -> None:
    titles = write_pages(scripted_stack, alice, CHATS_A_PAGE + 2)
    alice.page.reload()
    held: list[Route] = []

    def hold(route: Route) -> None:
        held.append(route)

    alice.page.route(OLDER, hold)
    older = alice.page.get_by_role("link", name="Older chats")

    with alice.page.expect_request(OLDER):
        scroll_to_end(alice)
    older.click()
    older.click()
    assert len(held) == 1
    held[0].abort()
    alice.page.wait_for_function("() => !document.querySelector('#older').hidden")
    expect(alice.chats).to_have_count(CHATS_A_PAGE)
    alice.page.unroute(OLDER)

    older.click()
    expect(alice.chats).to_have_text(titles)
    expect(alice.page.get_by_role("link", name="Chat 1", exact=True)).to_be_focused()


def test_a_chat_whose_page_is_found_gone_before_it_is_told_leaves_the_list(
    alice: Visitor, scripted_stack: Stack
) -> None:
    one = alice.open_chat("One")
    alice.listen(f"/chats/{one}")
    with psycopg.connect(scripted_stack.database_url, autocommit=True) as connection:
        connection.execute("DELETE FROM chat_chat WHERE id = %s", [one])

    alice.open_chat("Two")  # for which the page is fetched again

    expect(alice.page.get_by_text("This chat has been deleted.")).to_be_visible()
    expect(alice.chats).to_have_count(0)


def test_a_chat_deleted_while_nobody_listened_is_not_kept_among_the_older_ones(
    alice: Visitor, scripted_stack: Stack
) -> None:
    titles = write_pages(scripted_stack, alice, CHATS_A_PAGE * 2 + 2)
    alice.listen()
    scroll_to_end(alice)
    expect(alice.chats).to_have_text(titles[: CHATS_A_PAGE * 2])
    with psycopg.connect(scripted_stack.database_url, autocommit=True) as connection:
        connection.execute("DELETE FROM chat_chat WHERE title = %s", [titles[3]])

    alice.open_chat("One more")

    expect(alice.chats.first).to_have_text("One more")
    expect(alice.page.get_by_role("link", name=titles[3], exact=True)).to_have_count(0)
    expect(alice.page.get_by_role("link", name=titles[CHATS_A_PAGE], exact=True)).to_have_count(1)


def test_renaming_is_done_in_the_list_and_saved_by_enter_or_by_leaving(listener: Visitor) -> None:
    listener.menu(1, "Rename")
    expect(title_input(listener)).to_be_focused()
    assert title_input(listener).evaluate("input => input.selectionEnd - input.selectionStart") == len("Two")
    title_input(listener).fill("  Zwei ")
    title_input(listener).press("Enter")
    expect(listener.chats).to_have_text(["Three", "Zwei", "One"])
    listener.menu(0, "Rename")
    title_input(listener).fill("Drei")

    listener.composer.click()

    expect(title_input(listener)).to_have_count(0)
    expect(listener.composer).to_be_focused()
    listener.page.reload()
    expect(listener.chats).to_have_text(["Drei", "Zwei", "One"])


def test_escape_gives_a_new_name_up_and_so_does_one_that_is_the_old(listener: Visitor) -> None:
    sent: list[str] = []
    listener.page.on("request", lambda request: sent.append(request.method) if A_CHAT.search(request.url) else None)
    listener.menu(0, "Rename")
    title_input(listener).fill("Drei")
    title_input(listener).press("Escape")
    expect(title_input(listener)).to_have_count(0)
    listener.menu(0, "Rename")
    title_input(listener).press("Enter")
    expect(title_input(listener)).to_have_count(0)

    expect(listener.chats).to_have_text(["Three", "Two", "One"])
    assert sent == []


def test_enter_that_ends_a_word_of_an_input_method_saves_nothing(listener: Visitor) -> None:
    listener.menu(0, "Rename")
    title_input(listener).fill("さん")
    for how in ({"isComposing": True}, {"keyCode": 229}):
        title_input(listener).dispatch_event("keydown", {"key": "Enter", "bubbles": True, **how})

    assert not title_input(listener).evaluate("input => input.readOnly")  # nothing is on its way
    title_input(listener).press("Enter")
    expect(listener.chats.first).to_have_text("さん")


def test_a_name_that_is_refused_can_be_mended(listener: Visitor) -> None:
    row = listener.page.locator(".chat").first
    listener.menu(0, "Rename")
    title_input(listener).fill(" ")
    title_input(listener).press("Enter")
    expect(row.get_by_role("alert")).to_have_text("Write a title first.")
    title_input(listener).fill("Drei")
    listener.page.route(A_CHAT, lambda route: route.abort())

    title_input(listener).press("Enter")

    expect(row.get_by_role("alert")).to_contain_text("no connection")
    expect(title_input(listener)).to_have_value("Drei")
    listener.page.unroute(A_CHAT)
    title_input(listener).press("Enter")
    expect(listener.chats).to_have_text(["Drei", "Two", "One"])


def test_what_comes_while_one_renames_is_listed_afterwards(listener: Visitor) -> None:
    listener.menu(2, "Rename")
    title_input(listener).fill("Half a na")
    with listener.page.expect_request_finished(lambda request: request.resource_type == "fetch"):
        listener.open_chat("Four")
    expect(listener.chats).to_have_count(3)
    expect(title_input(listener)).to_be_focused()

    title_input(listener).press_sequentially("me")
    title_input(listener).press("Enter")

    expect(listener.chats).to_have_text(["Four", "Three", "Two", "Half a name"])


def test_by_touch_a_chat_can_be_renamed_and_deleted(visit: NewVisitor) -> None:
    visitor = visit(viewport=PHONE, is_mobile=True, has_touch=True)
    visitor.sign_up()
    visitor.open_chat("One")
    visitor.page.goto("/")
    visitor.page.get_by_role("button", name="Chats", exact=True).tap()
    row = visitor.page.locator(".chat")
    row.get_by_label("More about this chat").tap()
    row.get_by_role("button", name="Rename").tap()
    title_input(visitor).fill("Uno")
    title_input(visitor).press("Enter")
    expect(visitor.chats).to_have_text(["Uno"])

    row.get_by_label("More about this chat").tap()
    row.get_by_role("button", name="Delete").tap()

    expect(visitor.chats).to_have_count(0)
    visitor.undo.tap()
    expect(visitor.chats).to_have_text(["Uno"])


def test_a_deletion_can_be_taken_back_and_the_chat_is_where_it_was(listener: Visitor, deletions: list[str]) -> None:
    listener.menu(1, "Delete")
    expect(toast(listener)).to_contain_text("“Two” deleted.")
    expect(listener.chats).to_have_text(["Three", "One"])
    listener.open_chat("Four")
    expect(listener.chats).to_have_text(["Four", "Three", "One"])

    listener.undo.click()

    expect(listener.chats).to_have_text(["Four", "Three", "Two", "One"])
    expect(toast(listener)).to_be_empty()
    assert deletions == []


def test_it_is_done_when_the_toast_goes_which_waits_while_one_is_at_it(alice: Visitor, deletions: list[str]) -> None:
    one = alice.open_chat("One")
    alice.page.clock.install()
    alice.page.goto("/")
    alice.menu(0, "Delete")
    toast(alice).locator("p").hover()
    alice.page.clock.run_for(2 * TOAST_MS)
    expect(alice.undo).to_be_visible()
    assert deletions == []

    alice.composer.hover()
    with alice.page.expect_response(A_CHAT):
        alice.page.clock.run_for(TOAST_MS)

    assert deletions == [one]
    expect(toast(alice)).to_be_empty()
    assert alice.api("/api/chats")["results"] == []


def test_another_deletion_or_a_page_that_is_left_makes_the_last_one_good(alice: Visitor, deletions: list[str]) -> None:
    one, _ = alice.open_chat("One"), alice.open_chat("Two")
    alice.page.reload()
    alice.menu(1, "Delete")
    with alice.page.expect_response(A_CHAT):
        alice.menu(0, "Delete")
    assert deletions == [one]

    alice.page.goto("/usage")

    alice.page.goto("/")
    expect(alice.chats).to_have_count(0)


def test_what_cannot_be_deleted_comes_back_with_the_reason(listener: Visitor) -> None:
    listener.page.route(A_CHAT, lambda route: route.abort())

    listener.delete(1)

    expect(toast(listener)).to_contain_text("“Two” was not deleted. There is no connection")
    expect(listener.chats).to_have_text(["Three", "Two", "One"])


def test_the_chat_on_the_page_goes_with_a_way_back(alice: Visitor, deletions: list[str]) -> None:
    alice.ask_and_wait(scripted("Hi."), "Hi.")
    alice.composer.fill("Half a thought")
    address = alice.page.url
    alice.menu(0, "Delete")
    expect(alice.page).to_have_url(re.compile(r"/$"))
    expect(alice.chats).to_have_count(0)

    alice.undo.click()

    expect(alice.page).to_have_url(address)
    expect(alice.answers).to_have_text(["Hi."])
    expect(alice.composer).to_have_value("Half a thought")
    expect(alice.chats).to_have_count(1)
    assert deletions == []
    alice.delete(0)
    expect(alice.page.locator(".new-chat")).to_be_focused()
    expect(toast(alice)).to_be_empty()
    assert deletions == [address.rpartition("/")[2]]
    assert alice.page.evaluate(HANDED_OVER) == []


def test_an_answer_goes_on_until_its_chat_is_really_deleted(alice: Visitor, elsewhere: Visitor) -> None:
    alice.ask(SILENCE)
    expect(alice.stop).to_be_visible()
    expect(alice.page).to_have_url(re.compile("/chats/"))
    elsewhere.listen(alice.page.url)
    alice.menu(0, "Delete")
    expect(alice.undo).to_be_visible()
    alice.undo.click()
    expect(alice.stop).to_be_visible()
    expect(elsewhere.stop).to_be_visible()

    alice.menu(0, "Delete")
    alice.undo.focus()
    alice.page.keyboard.press("Escape")

    expect(elsewhere.page.get_by_text("This answer was stopped.")).to_be_visible()


def test_what_is_deleted_elsewhere_meanwhile_cannot_be_taken_back(listener: Visitor, elsewhere: Visitor) -> None:
    elsewhere.page.goto("/")
    expect(elsewhere.chats).to_have_text(["Three", "Two", "One"])
    listener.menu(1, "Delete")
    toast(listener).locator("p").hover()  # or it would go by itself

    elsewhere.delete(1)

    expect(listener.undo).to_be_hidden()
    expect(elsewhere.chats).to_have_text(["Three", "One"])
    expect(listener.chats).to_have_text(["Three", "One"])


def test_somebody_elses_deletion_is_not_gone_on_with(alice: Visitor, deletions: list[str]) -> None:
    alice.ask_and_wait(scripted("Hi."), "Hi.")
    alice.page.evaluate("id => sessionStorage.setItem('deletion:somebody', JSON.stringify({ id, title: 'x' }))", "x")

    alice.page.goto("/")

    expect(alice.chats).to_have_count(1)
    assert toast(alice).inner_text() == ""  # at once: it would go by itself
    assert alice.page.evaluate(HANDED_OVER) == []
