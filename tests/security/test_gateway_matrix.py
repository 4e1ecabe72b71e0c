"""The matrix of the gateway: every route, every method, everybody who may come, every trick.

It is made from the table of routes, so a new route is in it by itself. What is expected is worked
out here, by patterns of our own: a request belongs to the route whose path it spells, once percent
signs are read, and to no other. Whoever is refused has changed nothing: no run, no key.
"""

from __future__ import annotations

import asyncio
import re
from typing import TYPE_CHECKING, Any, NamedTuple
from urllib.parse import unquote

import pytest

from noetl.api.identity import Login, NewAccount, NewTenant, NewToken
from noetl.gateway.declaring import CALLBACK, PERMISSIONS, PUBLIC, SERVICE, VERIFIED, NamedSocket
from noetl.gateway.limits import SCOPES, Rate
from noetl.gateway.person import Person
from noetl.server.access.tokens import SESSION, digest, new_token
from noetl.store.identity import SessionRow
from tests.security.asking import Told, sent
from tests.security.people import asked
from tests.security.test_matrix import HEADERS, METHODS, tricks
from tests.unit.gateway.rig import INTERNAL, PASSWORD, ROLES, gateway_rig
from tests.unit.gateway.streaming import Socket
from tests.unit.server.rig import ONE_STEP

if TYPE_CHECKING:
    from collections.abc import Awaitable, Callable, Iterator

    from tests.unit.gateway.rig import GatewayRig

LONG_AGO = "2020-01-01T00:00:00.000000Z"
MOST_SHOWN = 10
GOOD, NOTHING = 300, 204
OPEN = {
    "/health", "/ready", "/api/runtime/contract", "/openapi.json", "/", "/playground",
    "/.well-known/oauth-protected-resource", "/client/noetl-client.js",
    "/client/noetl-client.d.ts", "/login", "/ui/{path:path}",
}  # fmt: skip
"""Public routes that have an answer for everybody, whatever he sends."""
LOGOUT = "/api/auth/logout"
"""Whoever shows a session is rid of it and of his cookie, also when it had ended before."""
LAST = (LOGOUT, "/api/auth/refresh")
"""Whoever was there is another one afterwards."""
REFUSED = (
    "anonymous", "made up", "malformed", "elsewhere", "expired", "expired, still remembered",
    "revoked", "revoked token", "spoken for", "ticket", "ticket of another purpose", "service",
)  # fmt: skip
SIGNED_IN = (*ROLES, "admin of another tenant", "token")
WHO = (*REFUSED, *SIGNED_IN)


class Visitor(NamedTuple):
    """One who comes, and what he shows."""

    headers: dict[str, str]
    ticket: Callable[[], Awaitable[str]] | None = None
    """Makes what stands in the query."""
    purpose: str = ""
    """What that is for."""
    is_known: bool = False
    opens: frozenset[str] = frozenset()
    """Permissions that he has though nobody knows him."""


def bearing(token: str, *, is_known: bool = False) -> Visitor:
    return Visitor({"authorization": f"Bearer {token}"}, is_known=is_known)


async def _expired(rig: GatewayRig) -> str:
    """The token of a session that is over."""
    user_id = await rig.account("late", "admin")
    text = new_token(SESSION)
    await rig.server.store.sessions.put(
        SessionRow(
            session_id=rig.server.ids.new(), sha256=digest(text), account_id=user_id,
            created_at=LONG_AGO, expires_at=LONG_AGO, idle_until=LONG_AGO,
        )
    )  # fmt: skip
    return text


async def _remembered(rig: GatewayRig) -> str:
    """The same, though the bucket still has it."""
    seen = await rig.login("rita", "admin")
    assert (await rig.caller(seen).get("/api/auth/whoami")).status == 200
    keys = rig.bus.sessions
    key = f"s.{digest(seen.token)}"
    entry = await keys.get(key)
    assert entry is not None
    value = re.sub(rb'"expires_at":"[^"]*"', b'"expires_at":"%b"' % LONG_AGO.encode(), entry.value)
    await keys.put(key, value)
    rig.gate.sessions._near.drop(digest(seen.token))  # noqa: SLF001 - a second has passed
    return seen.token


async def _revoked(rig: GatewayRig) -> str:
    """The token of a session that was ended, after it had been used."""
    was = await rig.login("was", "admin")
    assert (await rig.caller(was).get("/api/auth/whoami")).status == 200
    assert (await rig.caller(was).post("/api/auth/logout")).status == 204
    return was.token


async def _api_token(rig: GatewayRig, name: str) -> tuple[str, str]:
    user_id = await rig.account(name, "admin")
    made = await rig.admin.add_token(NewToken(name="it", account_id=user_id))
    return made.token, made.token_id


async def _of_another_tenant(rig: GatewayRig) -> str:
    await rig.admin.add_tenant(NewTenant(tenant_id="other", name="Other"))
    theirs = rig.gate.upstream.acting_for(
        Person(user_id="2", subject="root2", roles=("admin",), tenant="other")
    )
    body = NewAccount(subject="eve", email="eve@example.org", password=PASSWORD, roles=("admin",))
    await theirs.add_user(body)
    login = Login(email="eve@example.org", password=PASSWORD, tenant="other")
    return (await rig.system.login(login)).session_token


async def _ticketed(rig: GatewayRig, purpose: str) -> Visitor:
    """Somebody with a fresh ticket for each request; routes that take it are not asked."""
    owner = await rig.gate.sessions.of((await rig.login("tess", "admin")).token)

    async def ticket() -> str:
        return await rig.gate.tickets.issue(owner, purpose)

    return Visitor({}, ticket, purpose)


def _lookalikes(token: str) -> Visitor:
    """A good session, everywhere but where it belongs."""
    return Visitor({
        "proxy-authorization": f"Bearer {token}", "x-authorization": f"Bearer {token}",
        "x-api-key": token, "authorization": f"Token {token}", "x-noetl-session": token,
        "cookie": f"session={token}; noetl_session_token={token}",
        "x-user-id": "1", "x-forwarded-user": "admin",
    })  # fmt: skip


async def _revoked_token(rig: GatewayRig) -> str:
    token, token_id = await _api_token(rig, "toby")
    await rig.admin.revoke_token(token_id)
    return token


async def _made_up(_: GatewayRig) -> str:
    return new_token(SESSION)


async def _malformed(_: GatewayRig) -> str:
    return "../../x"


async def _lasting(rig: GatewayRig) -> str:
    return (await _api_token(rig, "theo"))[0]


async def _elsewhere(rig: GatewayRig) -> Visitor:
    return _lookalikes((await rig.login("elsa", "admin")).token)


async def _spoken_for(rig: GatewayRig) -> Visitor:
    """Somebody with a word that the gateway itself has signed."""
    root = Person(user_id="1", subject="root", roles=("admin",))
    word = rig.gate.upstream.headers_for(root)["x-noetl-identity"]
    return Visitor({"x-noetl-identity": word})


SHOWING = {
    "elsewhere": _elsewhere,
    "spoken for": _spoken_for,
    "ticket": lambda rig: _ticketed(rig, "graphql"),
    "ticket of another purpose": lambda rig: _ticketed(rig, "ws"),
}
BEARING = {
    "made up": _made_up,
    "malformed": _malformed,
    "expired": _expired,
    "expired, still remembered": _remembered,
    "revoked": _revoked,
    "revoked token": _revoked_token,
    "token": _lasting,
    "admin of another tenant": _of_another_tenant,
}


async def visitor(rig: GatewayRig, name: str) -> Visitor:
    """Somebody by his name."""
    if name == "anonymous":
        return Visitor({})
    if name == "service":
        return bearing(INTERNAL)._replace(opens=frozenset({"runtime:read", SERVICE}))
    if name in SHOWING:
        return await SHOWING[name](rig)
    if name in BEARING:
        return bearing(await BEARING[name](rig), is_known=name in SIGNED_IN)
    return bearing((await rig.login(f"the-{name}", name)).token, is_known=True)


class Matrix:
    """Asks on behalf of one visitor, and keeps what was not answered as the table says."""

    def __init__(self, rig: GatewayRig, who: Visitor) -> None:
        routes = [one for one in rig.gateway.routes if not isinstance(one, NamedSocket)]
        self.routes = sorted(routes, key=lambda one: one.path in LAST)
        self.wrong: list[object] = []
        self._patterns = [(_pattern(one.path), one) for one in routes]
        self._rig = rig
        self._who = who

    async def ask(self, method: str, target: str, **headers: str) -> Told:
        """Send one request."""
        authz = self._rig.gate.metrics.authz
        if self._who.ticket is not None:
            mark = "&" if "?" in target else "?"
            target = f"{target}{mark}ticket={await self._who.ticket()}"
        before = authz.value("allowed")
        told = await sent(self._rig.gateway.asgi, method, target, {**headers, **self._who.headers})
        is_let_in = authz.value("allowed") > before
        if not self._is_expected(method, target, told, is_let_in=is_let_in):
            self.wrong.append((method, target, headers, told[:2], is_let_in))
        return told

    def _is_expected(self, method: str, target: str, told: Told, *, is_let_in: bool) -> bool:
        route, is_path = self._found(method, unquote(target.partition("?")[0]))
        if route is None:
            return told.status == (405 if is_path else 404) and not is_let_in
        if told.status >= 500:
            return False
        if route.permission == PUBLIC:
            is_open = route.path in OPEN or (route.path == LOGOUT and told.status == NOTHING)
            return told.status >= GOOD or is_open or self._who.is_known
        if route.permission in {CALLBACK, VERIFIED}:
            return told.status >= GOOD and not is_let_in
        if self._who.is_known:
            return is_let_in and told.status != 401
        return told.status == 401 or route.permission in self._who.opens

    def _found(self, method: str, path: str) -> tuple[Any, bool]:
        """The route of a request, and whether its path has any."""
        fit = [route for pattern, route in self._patterns if pattern.fullmatch(path)]
        return next((route for route in fit if method in route.methods), None), bool(fit)


def _pattern(path: str) -> re.Pattern[str]:
    parts = re.split(r"({[^}]*})", path)
    made = (
        ((".*" if part.endswith(":path}") else "[^/]+") if part[:1] == "{" else re.escape(part))
        for part in parts
    )
    return re.compile("".join(made))


def spelled(route: Any) -> tuple[str, str]:
    """Method and path of a route; a stream is asked for with a name that it refuses."""
    method, path = asked(route)
    return method, f"{path}?client_id=x" if route.path == "/events" else path


async def _state(rig: GatewayRig) -> object:
    """All that a caller could have changed."""
    buckets = (rig.bus.sessions, rig.bus.requests, rig.bus.circuits)
    keys = [
        name
        for bucket in buckets
        for name in sorted(await bucket.names(""))
        if not name.startswith(("g.", "t.", "sweeper"))  # the gateway's own word; tickets
    ]
    runs = await rig.admin.executions(limit=100)
    users, roles = await rig.admin.users(), await rig.admin.roles()
    return (
        keys,
        [one.execution_id for one in runs.items],
        [(one.account_id, one.roles, one.active) for one in users.items],
        [one.name for one in roles.items],
    )


async def each(
    name: str, steps: Callable[[Any], Iterator[tuple[str, str, dict[str, str]]]]
) -> None:
    """Take these steps as somebody, on every route."""
    async with gateway_rig() as rig:
        rig.gate.limits._scopes = dict.fromkeys(SCOPES, Rate(1e9, 1e9))  # noqa: SLF001 - others are asked here
        await rig.playbook(ONE_STEP)
        who = await visitor(rig, name)
        matrix = Matrix(rig, who)
        await _state(rig)  # whoever asks is remembered from now on
        before = await _state(rig)
        for route in matrix.routes:
            for method, path, headers in steps(route):
                await matrix.ask(method, path, **headers)
        assert matrix.wrong[:MOST_SHOWN] == []
        if not who.is_known:
            assert await _state(rig) == before


@pytest.mark.parametrize("name", WHO)
async def test_everybody_is_answered_on_every_route_as_the_table_says(name: str) -> None:
    def steps(route: Any) -> Iterator[tuple[str, str, dict[str, str]]]:
        for method in METHODS:
            yield method, spelled(route)[1], {}

    await each(name, steps)


@pytest.mark.parametrize("name", WHO)
async def test_tricks_with_paths_open_nothing_to_anybody(name: str) -> None:
    def steps(route: Any) -> Iterator[tuple[str, str, dict[str, str]]]:
        method, path = asked(route)
        query = "" if route.path != "/events" else "?client_id=x"  # it would tell for ever
        for trick in sorted(tricks(path)):
            yield method, trick if "?" in trick else f"{trick}{query}", {}

    await each(name, steps)


@pytest.mark.parametrize("name", REFUSED)
async def test_headers_and_queries_make_nobody_somebody(name: str) -> None:
    def steps(route: Any) -> Iterator[tuple[str, str, dict[str, str]]]:
        method, path = spelled(route)
        for more in HEADERS:
            yield method, path, more
        mark = "&" if "?" in path else "?"
        for query in ("_method=GET", f"access_token={INTERNAL}", f"session_token={INTERNAL}"):
            yield method, f"{path}{mark}{query}", {}

    await each(name, steps)


async def test_every_route_declares_a_permission_that_is_known() -> None:
    async with gateway_rig() as rig:
        assert {one.permission for one in rig.gateway.routes} <= set(PERMISSIONS)
        public = {one.path for one in rig.gateway.routes if one.permission == PUBLIC}
        # A route that becomes public is named here, by somebody who has thought about it.
        assert public - OPEN == {
            "/api/auth/login", "/api/auth/validate", "/api/auth/check-access", "/api/auth/logout",
            "/api/auth/refresh", "/api/auth/ticket", "/api/auth/oidc/{provider}/start",
            "/api/auth/oidc/{provider}/callback", "/api/auth/oidc/{provider}/exchange",
            "/sharding/preview", "/ws",
        }  # fmt: skip


FIRST = {
    "/ws": '{"jsonrpc":"2.0","id":1,"method":"playbook/execute","params":{"name":"demo/it"}}',
    "/graphql": '{"type":"connection_init","payload":{}}',
}
"""What comes first on a socket, from one who has no session to show."""


@pytest.mark.parametrize("name", REFUSED)
async def test_no_socket_tells_anything_to_whom_nobody_knows(name: str) -> None:
    async with gateway_rig() as rig:
        await rig.playbook(ONE_STEP)
        who = await visitor(rig, name)
        await _state(rig)
        before = await _state(rig)
        sockets = [one for one in rig.gateway.routes if isinstance(one, NamedSocket)]
        assert {one.path for one in sockets} == set(FIRST)
        for route in sockets:
            if who.ticket is not None and route.declared.purpose == who.purpose:
                continue  # it is for this one
            query = "" if who.ticket is None else f"ticket={await who.ticket()}"
            made = await _spoken(rig, route.path, who.headers, query)
            if made.is_accepted:  # the first message may bring a session
                assert made.code in {4401, 4403}, (route.path, made.code, made.told)
                assert [one for one in made.told if "error" not in one] == []
            else:
                assert made.denied is not None
                assert made.denied[0] in {401, 403}, (route.path, made.denied)
        assert not rig.gate.hub.count
        assert await _state(rig) == before


async def _spoken(rig: GatewayRig, path: str, headers: dict[str, str], query: str) -> Socket:
    """Ask for a WebSocket, say one thing, and leave."""
    made = Socket()
    made.text(FIRST[path])
    given = {"host": "gateway.test", **headers}
    scope = {
        "type": "websocket", "asgi": {"version": "3.0", "spec_version": "2.4"},
        "http_version": "1.1", "scheme": "ws", "path": path, "raw_path": path.encode(),
        "query_string": query.encode(), "root_path": "",
        "headers": [(name.lower().encode(), value.encode()) for name, value in given.items()],
        "client": ("127.0.0.1", 1), "server": ("gateway.test", 80),
        "subprotocols": ["graphql-transport-ws"] if path == "/graphql" else [],
        "extensions": {"websocket.http.response": {}},
    }  # fmt: skip
    async with asyncio.timeout(20):
        await rig.gateway.asgi(scope, made.receive, made.send)
    return made
