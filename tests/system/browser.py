"""A real browser for the tests: the chromium of the system, never one that is downloaded."""

from __future__ import annotations

import shutil
import signal
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import NoReturn

import pytest
from playwright.sync_api import Browser, Page, Playwright, sync_playwright

ARTIFACTS = Path(__file__).resolve().parents[2] / "artifacts"
NAMES = ("chromium", "chromium-browser", "google-chrome")
# Nothing is asked of any network, and there is no screen to draw on.
FLAGS = ["--no-sandbox", "--disable-gpu", "--no-first-run", "--disable-background-networking", "--disable-sync"]
ANSWERS_WITHIN_SECONDS = 60


def executable() -> str:
    """Where it is. A test that needs it fails without it, and says what to do."""
    found = next((path for name in NAMES if (path := shutil.which(name))), None)
    if found is None:
        pytest.fail("no chromium on this machine, and these tests open the page in it: sudo apt-get install chromium")
    return found


@contextmanager
def browser() -> Iterator[Browser]:
    """A browser without a window."""
    with sync_playwright() as playwright:
        launched = _answering(playwright)
        yield launched
        launched.close()


def _answering(playwright: Playwright) -> Browser:
    """Playwright waits for the first page of a browser without a bound, and one that starts badly never makes it."""
    for _ in range(2):
        try:
            with _within(ANSWERS_WITHIN_SECONDS):
                launched = playwright.chromium.launch(executable_path=executable(), args=FLAGS)
                launched.new_page().close()
                return launched
        except TimeoutError:
            continue
    pytest.fail(f"{executable()} was started twice, and neither made a page in {ANSWERS_WITHIN_SECONDS} s")


@contextmanager
def _within(seconds: int) -> Iterator[None]:
    def late(*_: object) -> NoReturn:
        raise TimeoutError

    before = signal.signal(signal.SIGALRM, late)
    signal.alarm(seconds)
    try:
        yield
    finally:
        signal.alarm(0)
        signal.signal(signal.SIGALRM, before)


class Tab:
    """A page that notes whatever goes wrong in it."""

    def __init__(self, page: Page) -> None:
        self.page = page
        self.problems: list[str] = []
        self.requests: list[str] = []
        page.on("pageerror", lambda error: self.problems.append(str(error)))
        page.on("console", lambda m: self.problems.append(m.text) if m.type in ("error", "warning") else None)
        page.on("request", lambda request: self.requests.append(request.url))

    def picture(self, name: str) -> None:
        ARTIFACTS.mkdir(exist_ok=True)
        self.page.screenshot(path=ARTIFACTS / f"{name}.png", full_page=True)


def open_tab(launched: Browser, url: str, *, width: int = 1440, height: int = 900, scheme: str = "light") -> Tab:
    page = launched.new_page(
        viewport={"width": width, "height": height},
        color_scheme="dark" if scheme == "dark" else "light",
        reduced_motion="reduce",
    )
    tab = Tab(page)
    page.goto(url)
    return tab
