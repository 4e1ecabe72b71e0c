"""Accounts of a test, their tokens, and what their requests are answered."""

from __future__ import annotations

import re
from typing import Any

import msgspec

from noetl.api.http import AsgiTransport
from noetl.server.access.tokens import digest, new_token
from noetl.store.identity import Grant, RoleRow, TokenRow

INNER = "the-internal-token"
SCHEMES = ("Basic ", "bEARER ")
PYTHON = '{kind: python, code: "return 1"}'


async def person(r, *roles: str, tenant_id: str = "default", name: str = "", **more) -> str:
    """A token of an account with these roles."""
    text = new_token()
    await r.store.tokens.put(
        TokenRow(
            token_id=r.ids.new(),
            sha256=digest(text),
            account=name or f"{tenant_id}-{'-'.join(roles)}",
            roles=roles,
            tenant_id=tenant_id,
            **more,
        )
    )
    return text


async def role(
    r, name: str, *grants: tuple[str, str, str], permissions=(), tenant_id: str = "default"
) -> str:
    """A role that is made here; a grant is effect, action and path."""
    made = tuple(Grant(effect=e, actions=(action,), path=path) for e, action, path in grants)
    await r.store.rights.put(
        RoleRow(name=name, tenant_id=tenant_id, permissions=tuple(permissions), grants=made)
    )
    return name


async def ask(r, bearer: str | None, method: str, path: str, body: Any = None) -> tuple[int, Any]:
    """Status and body of an answer; a bearer may say its own scheme, `Basic x`."""
    text = bearer if bearer is None or bearer.startswith(SCHEMES) else f"Bearer {bearer}"
    headers = {} if text is None else {"authorization": text}
    data = b"{}" if body is None else msgspec.json.encode(body)
    answer = await AsgiTransport(r.server.asgi).request(method, path, data, headers)
    is_json = "json" in answer.headers.get("content-type", "")
    return answer.status, msgspec.json.decode(answer.body) if is_json and answer.body else None


async def code(r, bearer: str | None, method: str, path: str, body: Any = None) -> tuple[int, str]:
    """Status and code of an answer."""
    status, told = await ask(r, bearer, method, path, body)
    return status, told.get("code", "") if isinstance(told, dict) else ""


async def register(r, bearer: str, path: str) -> tuple[int, str]:
    """Register a playbook of one step."""
    head = f"apiVersion: noetl.io/v2\nkind: Playbook\nmetadata: {{name: it, path: {path}}}\n"
    text = head + f"workflow:\n  - step: start\n    tool: {PYTHON}\n"
    return await code(r, bearer, "POST", "/api/catalog/register", {"content": text})


async def started(r, bearer: str, path: str, **more: Any) -> str:
    """The id of a run that is started now."""
    status, told = await ask(r, bearer, "POST", "/api/execute", {"path": path, **more})
    assert status == 200, told
    found: str = told["execution_id"]
    return found


def asked(route, **names: str) -> tuple[str, str]:
    """Method and path of a route; names that are not given are 12."""
    method = next(iter(sorted(route.methods - {"HEAD"})))

    def filled(found: re.Match[str]) -> str:
        return names.get(found[1].partition(":")[0], "12")

    return method, re.sub(r"{([^}]*)}", filled, route.path)
