"""The Chromium that browser tests drive."""

from __future__ import annotations

import shutil
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

from playwright.sync_api import Browser, Playwright, sync_playwright

NAMES = ("chromium-headless-shell", "chromium", "chromium-browser", "google-chrome", "google-chrome-stable")
# Playwright's list, which ours takes the place of, as far as it is about what tests see or about asking the world; and
# the popups of the address bar, which no test has: they cost every window most of a second of CPU time.
NEEDLESS = (
    "AimEnabled",
    "AvoidUnnecessaryBeforeUnloadCheckSync",
    "DestroyProfileOnBrowserClose",
    "HttpsFirstBalancedModeAutoEnable",
    "HttpsUpgrades",
    "MediaRouter",
    "NetworkTimeServiceQuerying",
    "OptimizationHints",
    "PaintHolding",
    "PreconnectToSearch",
    "WebUIOmniboxAimPopup",
    "WebUIOmniboxPopup",
)
CURE = "browser tests need Chromium: `apt-get install chromium`, or `.venv/bin/playwright install chromium`"


class NoBrowser(Exception):
    """Neither the system nor Playwright has a Chromium; the text says what to install."""


@contextmanager
def running() -> Iterator[Browser]:
    """A browser without a window. Raises `NoBrowser`."""
    with sync_playwright() as playwright:
        browser = playwright.chromium.launch(
            executable_path=executable(playwright), args=[f"--disable-features={','.join(NEEDLESS)}"]
        )
        try:
            yield browser
        finally:
            browser.close()


def executable(playwright: Playwright) -> str:
    """The system's Chromium, else what Playwright has downloaded. Raises `NoBrowser`."""
    downloaded = playwright.chromium.executable_path
    found = next(filter(None, map(shutil.which, NAMES)), None)
    if not found and not Path(downloaded).exists():
        raise NoBrowser(CURE)
    return found or downloaded
