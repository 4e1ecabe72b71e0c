"""The matrix: every route, every method, everybody who may come, every trick with a path.

It is made from the table of routes, so a new route is in it by itself. What is expected is worked
out here, by patterns of our own and not by the router of the server: a request belongs to the route
whose path it spells, once percent signs are read, and to no other.
"""

from __future__ import annotations

import re
from typing import TYPE_CHECKING, Any, NamedTuple
from urllib.parse import unquote

import pytest

from noetl.secrets.signed import key_of, sign
from noetl.server.access.permissions import ANYBODY, PUBLIC, ROLES, TABLE
from noetl.server.access.tokens import SESSION, digest, new_token
from noetl.store.identity import SessionRow
from tests.security.asking import Told, sent
from tests.security.people import INNER, ask, asked, person, register, role, started
from tests.unit.server.rig import rig, virtually

if TYPE_CHECKING:
    from collections.abc import Callable, Coroutine

SHUT = {"is_open": False, "internal_tokens": (INNER,)}
METHODS = ("GET", "HEAD", "POST", "PUT", "PATCH", "DELETE", "OPTIONS", "TRACE", "PROPFIND")
NOW = "2026-01-01T00:00:00.000000Z"
LATER = "2026-01-01T08:00:00.000000Z"
LET_IN = "yso"
SPOKEN_FOR = {
    "viewer by a gateway": (INNER, "viewer"),
    "admin by a gateway": (INNER, "admin"),
    "forged": ("another token", "admin"),
}
"""By which key, and as what."""
MOST_SHOWN = 10


class Visitor(NamedTuple):
    """One who comes, what he shows, and what is known of him beforehand."""

    headers: dict[str, str]
    roles: tuple[str, ...] = ()
    permissions: frozenset[str] = frozenset()
    """What he holds beside his roles."""
    refusal: str = ""
    """Why nobody believes him."""

    def may(self, route) -> bool:
        """Whether he is let in to a route."""
        if route.permission == PUBLIC:
            return True
        if self.refusal:
            return False
        if route.permission == ANYBODY or route.permission in self.permissions:
            return True
        marks = TABLE[route.permission]
        if route.permission == "internal":
            return "system" in self.roles or not set(self.roles).isdisjoint(route.declared.services)
        return any(marks.get(name, "-") in LET_IN for name in self.roles)


def bearing(token: str, *roles: str, **more) -> Visitor:
    return Visitor({"authorization": f"Bearer {token}"}, roles, **more)


async def session(r, name: str, *, ends: str) -> str:
    """The token of a session."""
    text = new_token(SESSION)
    account = await r.store.tokens.find(digest(await person(r, name)))
    await r.store.sessions.put(
        SessionRow(
            session_id=r.ids.new(), sha256=digest(text), account_id=account.account_id,
            created_at=NOW, expires_at=ends, idle_until=ends,
        )
    )  # fmt: skip
    return text


async def _of_role(r, name: str) -> Visitor:
    if name in SPOKEN_FOR:
        return _spoken_for(r, name)
    pool = "shared" if name == "worker" else None
    return bearing(await person(r, name, pool=pool), name)


async def _granted(r) -> Visitor:
    made = await role(r, "runs finance", ("allow", "execute", "finance/*"))
    return bearing(await person(r, made), permissions=frozenset({"execution:run"}))


async def _revoked(r) -> Visitor:
    token = await person(r, "admin", "system", name="was")
    row = await r.store.tokens.find(digest(token))
    await r.store.tokens.revoke(row.token_id, NOW)
    return bearing(token, refusal="auth_required")


async def _lookalikes(r) -> Visitor:
    """A good token, everywhere but where it belongs."""
    token = await person(r, "admin", "system", name="elsewhere")
    return Visitor(
        {
            "cookie": f"token={token}; authorization=Bearer {token}",
            "proxy-authorization": f"Bearer {token}",
            "x-authorization": f"Bearer {token}",
            "x-api-key": token,
            "authorization": f"Token {token}",
            "x-forwarded-user": "admin",
            "x-noetl-identity": "admin",
        },
        refusal="auth_required",
    )


def _spoken_for(r, name: str) -> Visitor:
    """Somebody for whom a gateway speaks, or seems to; the clock of these tests stands still."""
    (key, role), refusal = SPOKEN_FOR[name], "bad_identity" if name == "forged" else ""
    claims = {"sub": "7", "name": "anna", "roles": [role], "tenant": "default", "sid": "s-1"}
    word = sign(claims, key_of(key), r.plane.parts.clock.now().timestamp(), "j")
    headers = {"authorization": f"Bearer {INNER}", "x-noetl-identity": word}
    return Visitor(headers, (role,), refusal=refusal)


async def visitor(r, name: str) -> Visitor:
    """Somebody by his name."""
    match name:
        case "anonymous":
            return Visitor({}, refusal="auth_required")
        case "made up":
            return bearing(new_token(), refusal="auth_required")
        case "elsewhere":
            return await _lookalikes(r)
        case "expired":
            token = await person(r, "admin", "system", name="old", expires_at=NOW)
            return bearing(token, refusal="token_expired")
        case "revoked":
            return await _revoked(r)
        case "granted":
            return await _granted(r)
        case "session":
            return bearing(await session(r, "viewer", ends=LATER), "viewer")
        case "ended session":
            token = await session(r, "admin", ends=NOW)
            return bearing(token, refusal="session_expired")
        case "admin of another tenant":
            return bearing(await person(r, "admin", tenant_id="acme"), "admin")
        case _:
            return await _of_role(r, name)


WHO = (
    "anonymous", "made up", "elsewhere", "expired", "revoked", "granted", "session",
    "ended session", "admin of another tenant", *SPOKEN_FOR, *ROLES,
)  # fmt: skip


def tricks(path: str) -> set[str]:
    """Other spellings of a path: some are the same, most are none at all."""
    head, _, last = path.rpartition("/")
    return {
        f"/{path}", path.replace("/", "//"), f"{head}//{last}", f"{path}/", f"{path};x=1",
        f"{path};/health", f"/health;/..{path}", f"/health/..{path}", f"/health/%2e%2e{path}",
        f"/%2e{path}", f"{head}/%2e/{last}", f"{head}/x/%2e%2e/{last}", f"{head}%2f{last}",
        f"{path}%2f", f"{path}%2F..%2F..%2Fhealth", f"{path}%00", f"{path}%20", f"{path}%0a",
        f"{path}.json", f"{path}x", f"{path}/x", path.upper(), path.title(),
        f"{head}/{last.upper()}", path.replace("/api", "/%61pi"), path.replace("/api", "/%2561pi"),
        path.replace("/", "\\"), f"{path}%c0%af", f"/%c0%ae%c0%ae{path}", f"/health?{path}",
        f"{path}%3f", f"{path}%23",
    }  # fmt: skip


HEADERS = (
    {"x-http-method-override": "GET"},
    {"x-http-method": "GET", "x-method-override": "GET"},
    {"x-http-method-override": "DELETE"},
    {"x-original-url": "/health", "x-rewrite-url": "/health"},
    {"x-forwarded-for": "127.0.0.1", "x-real-ip": "127.0.0.1", "x-forwarded-host": "localhost"},
    {"x-forwarded-prefix": "/health", "x-forwarded-path": "/health", "forwarded": "for=127.0.0.1"},
)


class Matrix:
    """Asks on behalf of one visitor, and keeps what was not answered as the table says."""

    def __init__(self, r, who: Visitor) -> None:
        self.routes = r.server.asgi.routes
        self.wrong: list[object] = []
        self._patterns = [(_pattern(route.path), route) for route in self.routes]
        self._app = r.server.asgi
        self._let_in = r.plane.access.outcomes
        self._who = who

    async def ask(self, method: str, target: str, **headers: str) -> Told:
        """Send one request."""
        before = self._let_in["ok"]
        told = await sent(self._app, method, target, {**headers, **self._who.headers})
        is_let_in = self._let_in["ok"] > before
        if not self._is_expected(method, target, told, is_let_in=is_let_in):
            self.wrong.append((method, target, headers, told[:2], is_let_in))
        return told

    def _is_expected(self, method: str, target: str, told: Told, *, is_let_in: bool) -> bool:
        route, is_path = self._found(method, unquote(target.partition("?")[0]))
        if route is None:
            return told[:2] == ((405, "bad_method") if is_path else (404, "not_found"))
        if route.permission == PUBLIC:
            return told.status not in {401, 403, 500}
        if not self._who.may(route):
            return told[:2] == _refusal(self._who, route) and not is_let_in
        return is_let_in and told.status not in {401, 500}

    def _found(self, method: str, path: str):
        """The route of a request, and whether its path has any."""
        wanted = "GET" if method == "HEAD" else method
        fit = [route for pattern, route in self._patterns if pattern.fullmatch(path)]
        return next((route for route in fit if wanted in route.methods), None), bool(fit)


def _pattern(path: str) -> re.Pattern[str]:
    parts = re.split(r"({[^}]*})", path)
    made = (
        ((".*" if part.endswith(":path}") else "[^/]+") if part[:1] == "{" else re.escape(part))
        for part in parts
    )
    return re.compile("".join(made))


def _refusal(who: Visitor, route) -> tuple[int, str]:
    if route.permission == "internal":
        return 403, "internal_token_mismatch"
    return (401, who.refusal) if who.refusal else (403, "forbidden")


def each(name: str, steps: Callable[[Matrix, Any], Coroutine[Any, Any, None]]) -> None:
    """Take these steps as somebody, on every route."""

    async def taken() -> None:
        async with rig(**SHUT) as r:
            matrix = Matrix(r, await visitor(r, name))
            for route in matrix.routes:
                await steps(matrix, route)
            assert matrix.wrong[:MOST_SHOWN] == []

    virtually(taken)()


@pytest.mark.parametrize("name", WHO)
def test_everybody_is_answered_on_every_route_as_the_table_says(name: str) -> None:
    async def steps(matrix: Matrix, route) -> None:
        for method in METHODS:
            await matrix.ask(method, asked(route)[1])

    each(name, steps)


@pytest.mark.parametrize("name", WHO)
def test_tricks_with_paths_open_nothing_to_anybody(name: str) -> None:
    async def steps(matrix: Matrix, route) -> None:
        method, path = asked(route)
        for trick in sorted(tricks(path)):
            await matrix.ask(method, trick)

    each(name, steps)


@pytest.mark.parametrize("name", WHO)
def test_headers_and_queries_do_not_change_what_a_request_is(name: str) -> None:
    async def steps(matrix: Matrix, route) -> None:
        method, path = asked(route)
        for more in HEADERS:
            await matrix.ask(method, path, **more)
        for query in ("_method=GET", f"access_token={INNER}", f"token={INNER}"):
            told = await matrix.ask(method, f"{path}?{query}")
            if told.status < 300 or INNER.encode() in told.body:
                matrix.wrong.append((method, path, query, told))

    each(name, steps)


@virtually
async def test_things_of_a_tenant_are_not_there_for_the_admin_of_another() -> None:
    async with rig(**SHUT) as r:
        ours, theirs = await person(r, "admin"), await person(r, "admin", tenant_id="acme")
        app, names = r.server.asgi, await _things(r, ours)
        wrong = []
        for route in app.routes:
            method, path = asked(route, **names)
            if not any(f"{{{name}" in route.path for name in names) or route.permission == PUBLIC:
                continue
            told = await sent(app, method, path, {"authorization": f"Bearer {theirs}"})
            expected = {404, 422, 403} if _is_of_platform(route) else {404, 422}
            if told.status not in expected:
                wrong.append((method, path, told[:2]))
        assert wrong == []


async def _things(r, bearer: str) -> dict[str, str]:
    """One of each thing of a tenant, by the names that paths have for them."""
    await register(r, bearer, "a/b")
    run = await started(r, bearer, "a/b")
    (first,) = await r.store.log.read(run, 0, 1)
    row = await r.store.tokens.find(digest(bearer))
    daily = {"path": "a/b", "name": "s", "cron": "0 0 * * *"}
    _, made = await ask(r, bearer, "POST", "/api/schedules", daily)
    return {
        "execution_id": run,
        "event_id": first.event_id,
        "schedule_id": made["schedule_id"],
        "token_id": row.token_id,
        "account_id": row.account_id,
        "path": "a/b",
        "step": "start",
    }


def _is_of_platform(route) -> bool:
    return route.permission in {"internal", "command:claim"}
