"""A browser before a real gateway; what a page may not do fails the test that does it."""

from __future__ import annotations

import os
import re
import shutil
from pathlib import Path
from typing import TYPE_CHECKING

import pytest
from playwright.sync_api import expect, sync_playwright

from tests.servers.gateway import PASSWORD

if TYPE_CHECKING:
    from collections.abc import Iterator

    from playwright.sync_api import Browser, BrowserContext, ConsoleMessage, Page

    from tests.servers.gateway import GatewayStack

LATE_MS = 30_000
NAMES = ("chromium", "chromium-browser", "google-chrome", "google-chrome-stable")
SHOTS = Path(__file__).parents[2] / ".cache" / "ui"
OFFLINE = "net::ERR_INTERNET_DISCONNECTED"
WAITING = """
apiVersion: noetl.io/v2
kind: Playbook
metadata: {{name: waiting, path: {path}}}
workload: {{request_id: "", gateway_url: "", hold: ""}}
workflow:
  - step: begin
    tool:
      kind: http
      method: POST
      url: "{{{{ workload.gateway_url }}}}/api/internal/progress"
      json:
        request_id: "{{{{ workload.request_id }}}}"
        step: begin
        message: half of it
        progress: 0.5
    next: {{arcs: [{{step: wait}}]}}
  - step: wait
    tool: {{kind: http, url: "{{{{ workload.hold }}}}", timeout: 60}}
    next: {{arcs: [{{step: report}}]}}
  - step: report
    tool:
      kind: http
      method: POST
      url: "{{{{ workload.gateway_url }}}}/api/internal/callback/async"
      json:
        request_id: "{{{{ workload.request_id }}}}"
        status: COMPLETED
        data: {{parcels: 3}}
"""


def chromium() -> str:
    """Where the browser is."""
    named = os.environ.get("NOETL_TEST_CHROMIUM")  # noqa: TID251 - a person's choice, no setting
    for name in (named,) if named else NAMES:
        found = shutil.which(name)
        if found:
            return found
    pytest.fail(
        "There is no Chromium: install it (apt-get install chromium), name it in "
        "NOETL_TEST_CHROMIUM, or set NOETL_SKIP_UI_TESTS=1.",
        pytrace=False,
    )


@pytest.fixture(scope="session", autouse=True)
def wanted() -> None:
    """Somebody may choose to do without."""
    if os.environ.get("NOETL_SKIP_UI_TESTS") == "1":  # noqa: TID251 - as above
        pytest.skip("NOETL_SKIP_UI_TESTS=1")


@pytest.fixture(scope="session")
def browser(wanted: None) -> Iterator[Browser]:
    """The system's Chromium, shared by the tests of this process."""
    del wanted
    expect.set_options(timeout=LATE_MS)
    arguments = ["--no-sandbox"] if os.geteuid() == 0 else []
    with sync_playwright() as playwright:
        made = playwright.chromium.launch(executable_path=chromium(), args=arguments)
        yield made
        made.close()


class Visitor:
    """A browser of somebody, and what its pages did."""

    def __init__(self, context: BrowserContext, stack: GatewayStack) -> None:
        self.context = context
        self.stack = stack
        self.url = stack.url
        self.faults: list[str] = []
        self.requests: list[str] = []
        """Every address that a page has asked for, those of WebSockets among them."""
        self._is_offline = False
        context.set_default_timeout(LATE_MS)
        context.on("console", self._said)
        context.on("weberror", lambda error: self.faults.append(f"error: {error.error}"))
        context.on("request", lambda request: self._asked(request.url))
        context.on("page", lambda page: page.on("websocket", lambda one: self._asked(one.url)))

    def open(self, path: str = "/") -> Page:
        """A new tab."""
        page = self.context.new_page()
        page.goto(self.url + path)
        return page

    def signed_in(self, *roles: str) -> Page:
        """A tab of somebody who has just signed in."""
        email = self.stack.account(*roles)
        page = self.open()
        page.get_by_label("E-mail or name").fill(email)
        page.get_by_label("Password").fill(PASSWORD)
        page.get_by_role("button", name="Sign in").click()
        expect(page.locator("#badge")).to_have_text("live")
        return page

    def lose_network(self) -> None:
        """Nothing goes out or comes in; what a browser says of that is no fault."""
        self._is_offline = True
        self.context.set_offline(True)

    def find_network(self) -> None:
        """As before."""
        self.context.set_offline(False)

    def _said(self, message: ConsoleMessage) -> None:
        if message.type not in {"error", "warning"}:
            return
        if self._is_offline and OFFLINE in message.text:
            return
        self.faults.append(f"{message.type}: {message.text} {message.location}")

    def _asked(self, url: str) -> None:
        self.requests.append(url)
        if not re.sub(r"^ws", "http", url).startswith((f"{self.url}/", "data:", "blob:")):
            self.faults.append(f"another origin: {url}")


@pytest.hookimpl(hookwrapper=True)
def pytest_runtest_makereport(item: pytest.Item) -> Iterator[None]:
    """Keep how a test went, for the fixture that keeps its screenshots."""
    outcome = yield
    report = outcome.get_result()  # type: ignore[attr-defined] # of pluggy
    if report.when == "call":
        item.stash[FAILED] = report.failed


FAILED: pytest.StashKey[bool] = pytest.StashKey()


@pytest.fixture
def visitor(
    browser: Browser, gateway_stack: GatewayStack, request: pytest.FixtureRequest
) -> Iterator[Visitor]:
    """Somebody with a browser of his own."""
    context = browser.new_context(viewport={"width": 1280, "height": 800})
    context.tracing.start(screenshots=True, snapshots=True)
    made = Visitor(context, gateway_stack)
    yield made
    if request.node.stash.get(FAILED, False) or made.faults:
        SHOTS.mkdir(parents=True, exist_ok=True)
        name = re.sub(r"\W+", "-", request.node.name)
        for number, page in enumerate(context.pages):
            page.screenshot(path=SHOTS / f"{name}-{number}.png")
        context.tracing.stop(path=SHOTS / f"{name}.zip")
    context.close()
    assert made.faults == []


@pytest.fixture(scope="module")
def waiting(gateway_stack: GatewayStack) -> str:
    """The path of a playbook that waits at a place until it is let go."""
    path = f"ui/{gateway_stack.name('waiting')}"
    gateway_stack.register(WAITING.format(path=path))
    return path
