"""A real browser for the tests: the chromium of the system, never one that is downloaded."""

from __future__ import annotations

import shutil
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import pytest
from playwright.sync_api import Browser, Page, sync_playwright

ARTIFACTS = Path(__file__).resolve().parents[2] / "artifacts"
NAMES = ("chromium", "chromium-browser", "google-chrome")


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
        launched = playwright.chromium.launch(executable_path=executable(), args=["--no-sandbox"])
        yield launched
        launched.close()


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
