"""Every route by everybody: no route without a permission, and no answer that nobody meant.

A route that is added needs a probe here: what is asked, and who gets a good answer.
"""

from __future__ import annotations

import json
from contextlib import asynccontextmanager
from dataclasses import dataclass, field
from typing import Any

import pytest

from noetl.api.identity import Login, NewAccount, NewTenant
from noetl.gateway.declaring import PERMISSIONS, NamedSocket
from noetl.gateway.person import Person
from tests.unit.gateway.rig import INTERNAL, PASSWORD, ROLES, Signed, gateway_rig
from tests.unit.server.rig import ONE_STEP

NOBODY = "anonymous"
OTHER = "other tenant's admin"
CALLERS = (NOBODY, *ROLES, OTHER)
ALL = frozenset(CALLERS)
SIGNED = ALL - {NOBODY}
NONE: frozenset[str] = frozenset()
ADMINS = frozenset({"admin", OTHER})
REFUSALS = frozenset({400, 401, 403, 404, 409, 415, 422, 503})


@dataclass(frozen=True)
class Probe:
    """One call, and who gets a good answer; `{victim}` and others are filled in."""

    path: str
    good: frozenset[str]
    body: Any = None
    headers: dict[str, str] = field(default_factory=dict)
    is_stream: bool = False


PAGES = {"GET /", "GET /playground", "GET /login", "GET /ui/{path:path}",
         "GET /client/noetl-client.js", "GET /client/noetl-client.d.ts"}  # fmt: skip
"""Whether they are there depends on whether they were built."""
PROBES = {
    "GET /health": Probe("/health", ALL),
    "GET /ready": Probe("/ready", ALL),
    "GET /metrics": Probe("/metrics", SIGNED),
    "GET /api/runtime/contract": Probe("/api/runtime/contract", ALL),
    "GET /openapi.json": Probe("/openapi.json", ALL),
    "GET /.well-known/oauth-protected-resource": Probe(
        "/.well-known/oauth-protected-resource", ALL
    ),
    "GET /sharding/preview": Probe("/sharding/preview?execution_id=1&shard_count=2", ALL),
    "POST /api/auth/login": Probe(
        "/api/auth/login", NONE, {"email": "victim@example.com", "password": "a wrong password"}
    ),
    "POST /api/auth/validate": Probe("/api/auth/validate", NONE, {"session_token": 5}),
    "POST /api/auth/check-access": Probe(
        "/api/auth/check-access",
        NONE,
        {"session_token": "nts_x", "playbook_path": "demo/it", "permission_type": "fly"},
    ),
    "POST /api/auth/refresh": Probe("/api/auth/refresh", SIGNED),
    "POST /api/auth/logout": Probe("/api/auth/logout", SIGNED),
    "POST /api/auth/ticket": Probe("/api/auth/ticket", SIGNED, {"purpose": "ws"}),
    "GET /api/auth/oidc/{provider}/start": Probe("/api/auth/oidc/none/start", NONE),
    "GET /api/auth/oidc/{provider}/callback": Probe(
        "/api/auth/oidc/none/callback?state=x&code=y", NONE
    ),
    "POST /api/auth/oidc/{provider}/exchange": Probe(
        "/api/auth/oidc/none/exchange",
        NONE,
        {"code": "c", "code_verifier": "v" * 43, "redirect_uri": "http://127.0.0.1/", "nonce": "n"},
    ),
    "GET /api/auth/whoami": Probe("/api/auth/whoami", SIGNED),
    "GET /api/auth/sessions": Probe("/api/auth/sessions", SIGNED),
    "DELETE /api/auth/sessions/{session_id}": Probe(
        "/api/auth/sessions/{session}", frozenset({"admin"})
    ),
    "GET /api/tokens": Probe("/api/tokens", SIGNED),
    "POST /api/tokens": Probe("/api/tokens", SIGNED, {"name": "mine"}),
    "POST /api/tokens/{token_id}/rotate": Probe("/api/tokens/{token}/rotate", frozenset({"admin"})),
    "DELETE /api/tokens/{token_id}": Probe("/api/tokens/{token}", frozenset({"admin"})),
    "GET /api/users": Probe("/api/users", ADMINS),
    "POST /api/users": Probe("/api/users", ADMINS, {"subject": "new-one", "roles": ["viewer"]}),
    "GET /api/users/{account_id}": Probe("/api/users/{user}", frozenset({"admin"})),
    "PATCH /api/users/{account_id}": Probe(
        "/api/users/{user}", frozenset({"admin"}), {"display_name": "V"}
    ),
    "DELETE /api/users/{account_id}": Probe("/api/users/{spare}", frozenset({"admin"})),
    "PUT /api/users/{account_id}/roles": Probe(
        "/api/users/{user}/roles", frozenset({"admin"}), {"roles": ["developer"]}
    ),
    "GET /api/roles": Probe("/api/roles", ADMINS),
    "POST /api/roles": Probe(
        "/api/roles", ADMINS, {"name": "auditor", "permissions": ["audit:read"]}
    ),
    "PUT /api/roles/{name}": Probe("/api/roles/none", NONE, {"permissions": ["audit:read"]}),
    "DELETE /api/roles/{name}": Probe("/api/roles/none", NONE),
    "POST /rpc": Probe("/rpc", SIGNED, {"jsonrpc": "2.0", "id": 1, "method": "ping"}),
    "POST /graphql": Probe("/graphql", SIGNED, {"query": "{{health}}"}),
    "GET /graphql": Probe("/graphql", NONE),
    "GET /graphql/page.js": Probe("/graphql/page.js", NONE),
    "GET /events": Probe("/events?client_id=x", NONE),
    "GET /api/requests": Probe("/api/requests", SIGNED),
    "POST /api/requests": Probe(
        "/api/requests", frozenset({"admin", "developer", "operator"}), {"name": "demo/it"}
    ),
    "GET /api/requests/{request_id}": Probe(
        "/api/requests/{request}", frozenset({"admin", "developer", "operator", "viewer"})
    ),
    "GET /api/requests/{request_id}/result": Probe("/api/requests/{request}/result", NONE),
    "POST /api/requests/{request_id}/cancel": Probe(
        "/api/requests/none/cancel", NONE, {"reason": "mine"}
    ),
    "POST /api/internal/callback": Probe(
        "/api/internal/callback", NONE, {"request_id": "{request}", "data": {}}
    ),
    "POST /api/internal/callback/async": Probe(
        "/api/internal/callback/async", NONE, {"request_id": "{request}", "data": {}}
    ),
    "POST /api/internal/progress": Probe(
        "/api/internal/progress", NONE, {"request_id": "{request}", "progress": 0.5}
    ),
    "POST /api/internal/ingress/{listener}/again": Probe(
        "/api/internal/ingress/none/again", NONE, {"replay_of": "1", "headers": [], "body": ""}
    ),
    "POST /ingress/{listener}": Probe("/ingress/none", NONE, {}),
    "GET /ingress/{listener}": Probe("/ingress/none", NONE),
    "OPTIONS /ingress/{listener}": Probe("/ingress/none", NONE),
    "POST /mcp": Probe("/mcp", NONE, {"jsonrpc": "2.0", "id": 1}),
    "GET /noetl/{path:path}": Probe("/noetl/executions", SIGNED),
    "POST /noetl/{path:path}": Probe("/noetl/users", NONE, {"no": "field"}),
    "PUT /noetl/{path:path}": Probe("/noetl/roles/none", NONE, {"permissions": []}),
    "PATCH /noetl/{path:path}": Probe("/noetl/users/{user}", NONE, {"no": "field"}),
    "DELETE /noetl/{path:path}": Probe("/noetl/internal/requests/x/result", NONE),
}
OPEN = frozenset({"public", "callback", "verified"})
"""The route looks at the caller itself."""


def named(routes):
    for one in routes:
        if not isinstance(one, NamedSocket):
            for method in sorted(one.methods - {"HEAD"}):
                yield f"{method} {one.path}", one


@asynccontextmanager
async def world():
    """A gateway, somebody whose things others try to reach, and one caller of each kind."""
    async with gateway_rig() as rig:
        await rig.playbook(ONE_STEP)
        victim = await rig.login("victim", "developer")
        spare = await rig.account("spare", "viewer")
        call = rig.caller(victim)
        started = await call.post("/rpc", {
            "jsonrpc": "2.0", "id": 1, "method": "playbook/execute", "params": {"name": "demo/it"},
        })  # fmt: skip
        token = await call.post("/api/tokens", {"name": "hers"})
        things = {
            "user": victim.user_id,
            "spare": spare,
            "session": victim.session_id,
            "token": json.loads(token.body)["token_id"],
            "request": json.loads(started.body)["result"]["requestId"],
        }
        yield rig, things


async def signed_in(rig, who) -> Signed | None:
    if who == NOBODY:
        return None
    if who != OTHER:
        return await rig.login(f"the-{who}", who)
    await rig.admin.add_tenant(NewTenant(tenant_id="other", name="Other"))
    theirs = rig.gate.upstream.acting_for(
        Person(user_id="2", subject="root2", roles=("admin",), tenant="other")
    )
    made = await theirs.add_user(
        NewAccount(subject="eve", email="eve@example.org", password=PASSWORD, roles=("admin",))
    )
    told = await rig.system.login(Login(email="eve@example.org", password=PASSWORD, tenant="other"))
    seen = await rig.system.validate_session(told.session_token)
    return Signed(told.session_token, seen.session_id or "", made.account_id, "eve@example.org")


def filled(value, things):
    if isinstance(value, str):
        return value.format(**things) if "{" in value else value
    if isinstance(value, dict):
        return {key: filled(item, things) for key, item in value.items()}
    return value


async def test_every_route_has_a_permission_and_a_probe():
    async with gateway_rig() as rig:
        found = dict(named(rig.gateway.routes))
        assert {one.permission for one in rig.gateway.routes} <= set(PERMISSIONS)
        assert set(found) - PAGES == set(PROBES)


@pytest.mark.parametrize("who", CALLERS)
async def test_each_caller_gets_what_is_meant_for_him_and_nothing_else(who):
    wrong = []
    async with world() as (rig, things):
        routes = dict(named(rig.gateway.routes))
        last = ("POST /api/auth/logout", "POST /api/auth/refresh")
        for name, probe in sorted(PROBES.items(), key=lambda item: item[0] in last):
            signed = await rig.again(f"the-{who}") if who in ROLES and name in last else None
            signed = signed or things.get("me") or await signed_in(rig, who)
            if name not in last:
                things["me"] = signed
            method = name.partition(" ")[0]
            known = {key: text for key, text in things.items() if key != "me"}
            answer = await rig.caller(signed, **probe.headers).ask(
                method, filled(probe.path, known), filled(probe.body, known)
            )
            is_good = answer.status < 400
            if is_good != (who in probe.good) or (not is_good and answer.status not in REFUSALS):
                wrong.append(f"{who}: {name} -> {answer.status} {answer.body[:160]!r}")
            is_closed = routes[name].permission not in OPEN
            if who == NOBODY and is_closed and answer.status != 401:
                wrong.append(f"{who}: {name} -> {answer.status}, not 401")
            if "x-request-id" not in answer.headers:
                wrong.append(f"{who}: {name} has no name")
    assert wrong == []


async def test_tricks_with_paths_open_nothing_to_strangers():
    tricks = ("{0}/", "/{0}", "{0}%2f", "{0}%00", "{0}%0a", "{0};x", "{0}/.", "/x/..{0}", "/.{0}",
              "{0}/%2e%2e", "{0}?", "/health/..{0}")  # fmt: skip
    async with world() as (rig, things):
        routes = dict(named(rig.gateway.routes))
        for name, probe in PROBES.items():
            if routes[name].permission in OPEN or "?" in probe.path:
                continue
            path = filled(probe.path, things)
            for trick in (*(one.format(path) for one in tricks), path.upper()):
                answer = await rig.caller().ask(name.partition(" ")[0], trick, probe.body)
                assert answer.status in REFUSALS | {404, 405}, trick


async def test_the_service_bearer_is_no_session():
    async with gateway_rig() as rig:
        caller = rig.caller(authorization=f"Bearer {INTERNAL}")
        for path in ("/api/auth/whoami", "/noetl/executions", "/api/requests"):
            assert (await caller.get(path)).status == 401
