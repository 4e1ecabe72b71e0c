"""Limits of bodies on every route, and tokens that stand in no text of a server."""

from __future__ import annotations

import asyncio
import logging
from contextlib import contextmanager
from typing import TYPE_CHECKING, Any

import msgspec
import zstandard

from noetl.edge.reading import MOST_BYTES
from noetl.server.access.tokens import new_token
from noetl.server.routes.circuits import MOST_BYTES as CIRCUIT_BYTES
from noetl.server.routes.exchange import MOST_BATCH_BYTES, MOST_REPORT_BYTES, MOST_RESULT_BYTES
from tests.security.asking import sent
from tests.security.people import INNER, ask, asked, person, register, started
from tests.unit.server.rig import rig, virtually

if TYPE_CHECKING:
    from collections.abc import AsyncIterator, Iterator

SHUT = {"is_open": False, "internal_tokens": (INNER,)}
PART = b" " * 65_536
LARGE = {
    "/api/events": MOST_REPORT_BYTES,
    "/api/events/batch": MOST_REPORT_BYTES,
    "/api/logs/batch": MOST_REPORT_BYTES,
    "/api/internal/events/project": MOST_REPORT_BYTES,
    "/api/execute/batch": MOST_BATCH_BYTES,
    "/api/result/{execution_id}": MOST_RESULT_BYTES,
    "/api/internal/objects/{key:path}": MOST_RESULT_BYTES,
    "/api/internal/requests/{request_id}/result": MOST_RESULT_BYTES,
    "/api/subscriptions/{subscription_id}/dead-letters": MOST_RESULT_BYTES,
    "/api/subscriptions/{subscription_id}/deliveries": MOST_BATCH_BYTES,
}
"""Bodies that may be larger than others."""
SMALL = "/api/internal/circuits/{path:path}"
"""A document of any shape, and a small one."""
GATEWAY = "auth:session"


class Endless:
    """A body without end, and how much of it was taken."""

    def __init__(self) -> None:
        self.taken = 0

    def __iter__(self) -> Iterator[bytes]:
        while True:
            self.taken += len(PART)
            yield PART


async def scene(r) -> tuple[dict[str, str], dict[str, str]]:
    """Tokens by permission, and names for the paths: one run of one step."""
    admin, gateway = await person(r, "admin"), await person(r, "gateway")
    await register(r, admin, "a/b")
    run = await started(r, admin, "a/b")
    return {"internal": INNER, GATEWAY: gateway, "": admin}, {"execution_id": run, "path": "a/b"}


def bearer(tokens: dict[str, str], route) -> dict[str, str]:
    return {"authorization": f"Bearer {tokens.get(route.permission, tokens[''])}"}


def writes(r) -> list[Any]:
    return [route for route in r.server.asgi.routes if not route.methods & {"GET"}]


@virtually
async def test_every_body_is_counted_while_it_comes() -> None:
    async with rig(**SHUT) as r:
        tokens, names = await scene(r)
        wrong = []
        for route in writes(r):
            body = Endless()
            told = await sent(r.server.asgi, *asked(route, **names), bearer(tokens, route), body)
            most = LARGE.get(route.path, MOST_BYTES)
            is_read = route.declared.body is not None or route.declared.takes is not None
            expected = told.code == "body_too_large" or (not is_read or told.status == 404)
            if not expected or body.taken > most + len(PART):
                wrong.append((route.path, told[:2], body.taken))
        assert wrong == []


@virtually
async def test_the_large_bodies_are_as_large_as_they_may_be() -> None:
    async with rig(**SHUT) as r:
        tokens, names = await scene(r)
        known = {route.path for route in writes(r)}
        assert LARGE.keys() <= known
        for route in writes(r):
            if route.path not in {"/api/execute", "/api/events/batch", "/api/execute/batch"}:
                continue
            most = LARGE.get(route.path, MOST_BYTES)
            for size, is_large in ((most, False), (most + 1, True)):
                method, path = asked(route, **names)
                told = await sent(
                    r.server.asgi, method, path, bearer(tokens, route), b"{}".ljust(size)
                )
                assert (told.code == "body_too_large") == is_large


@virtually
async def test_a_packed_body_expands_no_further_on_any_route() -> None:
    bomb = zstandard.ZstdCompressor().compress(b" " * (256 * 2**20))
    async with rig(**SHUT) as r:
        tokens, names = await scene(r)
        for route in writes(r):
            headers = bearer(tokens, route) | {"content-encoding": "zstd"}
            told = await sent(r.server.asgi, *asked(route, **names), headers, bomb)
            if route.declared.body is not None:
                assert (route.path, told[:2]) in {
                    (route.path, (413, "body_too_large")), (route.path, (404, told.code)),
                }  # fmt: skip


def models(r) -> list[Any]:
    """Routes with a body of JSON."""
    return [route for route in writes(r) if route.declared.body is not None]


async def answers(r, body: bytes) -> list[tuple[str, str, str]]:
    """What each of them answers to a body, those aside that name what is not there."""
    tokens, names = await scene(r)
    found = []
    for route in models(r):
        method, path = asked(route, **names)
        told = await sent(r.server.asgi, method, path, bearer(tokens, route), body)
        if told.status != 404:
            found.append((method, route.path, told.code))
    assert len(found) > 40
    return found


@virtually
async def test_bodies_that_are_no_json_or_too_deep_are_refused_on_every_route() -> None:
    async with rig(**SHUT) as r:
        for body, code in (
            (b"{", "bad_json"), (b"[" * 10_000, "bad_value"), (b'{"a":' * 10_000, "bad_value"),
            (b'{"colour":NaN}', "bad_value"), (b'{"colour":1,"colour":2}', "bad_value"),
        ):  # fmt: skip
            found = await answers(r, body)
            wrong = [item for item in found if item[2] != code]
            is_long = len(body) > CIRCUIT_BYTES
            assert wrong == ([("PUT", SMALL, "body_too_large")] if is_long else [])


@virtually
async def test_ten_thousand_ranges_are_one_answer() -> None:
    async with rig(**SHUT) as r:
        tokens, names = await scene(r)
        body = {"name": "x", "data": "x" * 100_000}
        run = names["execution_id"]
        kept = (await ask(r, tokens[""], "PUT", f"/api/result/{run}", body))[1]
        ranges = ",".join(f"{n}-{n + 50_000}" for n in range(10_000))
        headers = {"authorization": f"Bearer {tokens['']}", "range": f"bytes={ranges}"}
        told = await sent(r.server.asgi, "GET", f"/api/result/resolve?ref={kept['ref']}", headers)
        assert told.status in {200, 416}
        assert len(told.body) <= kept["size"]


# --------------------------------------------------------------------- tokens in text


@contextmanager
def heard() -> Iterator[list[str]]:
    """Every line that the server logs meanwhile, with all its fields."""
    lines: list[str] = []
    handler = logging.Handler()
    handler.emit = lambda record: lines.append(repr(record.__dict__))  # type: ignore[method-assign] # all that is needed of one
    root = logging.getLogger("noetl")
    before = root.level
    root.addHandler(handler)
    root.setLevel(logging.DEBUG)
    try:
        yield lines
    finally:
        root.removeHandler(handler)
        root.setLevel(before)


async def _made(r, admin: str, gateway: str) -> dict[str, str]:
    """Tokens that the server has made itself, by where they come from."""
    _, made = await ask(r, admin, "POST", "/api/tokens", {"name": "t"})
    path = f"/api/tokens/{made['token_id']}/rotate"
    _, again = await ask(r, admin, "POST", path)
    person_ = {"subject": "ann", "password": "a long enough password", "roles": ["viewer"]}
    await ask(r, admin, "POST", "/api/users", person_)
    login = {"username": "ann", "password": person_["password"]}
    status, session = await ask(r, gateway, "POST", "/api/auth/login", login)
    assert status == 200, session
    return {
        "made": made["token"], "again": again["token"], "session": session["session_token"],
        "password": person_["password"],
    }  # fmt: skip


async def pages(r, bearer: str) -> AsyncIterator[str]:
    """The whole audit."""
    more = ""
    while True:
        status, page = await ask(r, bearer, "GET", f"/api/audit?limit=200{more}")
        assert status == 200, page
        for item in page["items"]:
            yield repr(item)
        if page.get("next_cursor") is None:
            return
        more = f"&cursor={page['next_cursor']}"


@virtually
async def test_no_token_stands_in_a_log_a_metric_an_answer_or_the_audit() -> None:
    with heard() as lines:
        async with rig(**SHUT, password_kib=64) as r:
            admin, gateway = await person(r, "admin"), await person(r, "gateway")
            tokens = await _made(r, admin, gateway)
            tokens |= {"admin": admin, "gateway": gateway, "wrong": new_token(), "inner": INNER}
            told = []
            for route in r.server.asgi.routes:
                method, path = asked(route)
                for token in tokens.values():
                    headers = {"authorization": f"Bearer {token}"}
                    is_kept = route.declared.takes is not None or route.path == SMALL
                    body = b"" if is_kept else msgspec.json.encode({"colour": token})
                    told.append((await sent(r.server.asgi, method, path, headers, body)).body)
            await asyncio.sleep(120)  # refusals are written together
            headers = {"authorization": f"Bearer {INNER}"}
            told.append((await sent(r.server.asgi, "GET", "/metrics", headers)).body)
            rows = [item async for item in pages(r, admin)]
            whole = "\n".join([*lines, *(body.decode() for body in told), *rows])
    assert lines
    assert len(rows) > 100
    assert [name for name, token in tokens.items() if token in whole] == []
