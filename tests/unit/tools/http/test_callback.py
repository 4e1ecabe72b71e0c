"""What proves a callback goes to the gateway of the run's client, and to nobody else."""

from __future__ import annotations

import pytest

from noetl.api.gateway import CALLBACK_HEADER as CALLBACK
from noetl.dsl.tasks import Http
from noetl.tools.base import Callback, ToolContext
from noetl.tools.http.request import request_of

TOKEN = "callback-canary-31"  # noqa: S105 - the canary of these tests
GATEWAY = "http://gateway.example:8090"


class Asked:
    """A callback that counts who asks for its token."""

    def __init__(self, token: str | None = TOKEN) -> None:
        self.count = 0
        self._token = token

    async def token(self) -> str | None:
        self.count += 1
        return self._token


async def sent(url: str, asked: Asked | None = None, gateway: str = GATEWAY, **keys):
    """The first request of a task."""
    callback = None if asked is None else Callback(url=gateway, token=asked.token)
    ctx = ToolContext(
        execution_id="1", step="s", command_id="c", idempotency_key="k", callback=callback
    )

    async def google(*_: object) -> str:
        raise AssertionError("nobody asks the cloud")

    return await request_of(Http(kind="http", url=url, method="POST", **keys), ctx, google)


@pytest.mark.parametrize(
    "url",
    [
        f"{GATEWAY}/api/internal/callback/async",
        "HTTP://GATEWAY.example:8090/x?y=1",
        f"{GATEWAY}",
    ],
    ids=["callback", "another case", "root"],
)
async def test_the_gateway_is_shown_the_token(url) -> None:
    request = await sent(url, Asked())
    assert request.headers[CALLBACK] == TOKEN


@pytest.mark.parametrize(
    "url",
    [
        "https://gateway.example:8090/x",
        "http://gateway.example/x",
        "http://gateway.example:8091/x",
        "http://gateway.example.evil:8090/x",
        "http://evil.gateway.example:8090/x",
        "http://gateway.example:8090@evil.example/x",
        "http://evil.example/http://gateway.example:8090",
    ],
    ids=["scheme", "no port", "port", "suffix", "prefix", "user", "path"],
)
async def test_no_other_origin_is(url) -> None:
    asked = Asked()
    request = await sent(url, asked)
    assert CALLBACK not in request.headers
    assert asked.count == 0


async def test_the_usual_port_need_not_be_written() -> None:
    request = await sent("https://g.example:443/x", Asked(), "https://g.example/base")
    assert request.headers[CALLBACK] == TOKEN


async def test_a_redirect_takes_it_to_no_other_origin() -> None:
    request = await sent(f"{GATEWAY}/a", Asked())
    assert request.redirected(307, "/b").headers[CALLBACK] == TOKEN
    for place in ("http://evil.example/a", "https://gateway.example:8090/a"):
        moved = request.redirected(307, place)
        assert CALLBACK not in moved.headers
        assert CALLBACK not in moved.redirected(307, f"{GATEWAY}/a").headers


async def test_what_the_author_writes_himself_stays_and_leaves_its_origin_neither() -> None:
    request = await sent(f"{GATEWAY}/a", Asked(), headers={"X-NoETL-Callback-Token": "his"})
    assert request.headers[CALLBACK] == "his"
    assert CALLBACK not in request.redirected(302, "http://evil.example/").headers


async def test_without_a_token_or_a_readable_address_nothing_is_added() -> None:
    assert CALLBACK not in (await sent(f"{GATEWAY}/a", Asked(None))).headers
    assert CALLBACK not in (await sent(f"{GATEWAY}/a", Asked(), "no address")).headers
    assert CALLBACK not in (await sent(f"{GATEWAY}/a")).headers


def test_a_callback_does_not_show_how_it_is_proved() -> None:
    assert "token" not in repr(Callback(url=GATEWAY, token=Asked().token))
