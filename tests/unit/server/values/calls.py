"""How the tests of this folder call a server."""

from __future__ import annotations

from typing import Any

import msgspec

from noetl.api.catalog import Register
from noetl.api.client import Client
from noetl.api.executions import Execute
from noetl.api.http import Answer, AsgiTransport
from noetl.server.access.tokens import digest, new_token
from noetl.store.identity import TokenRow
from tests.unit.server.rig import HEAD, ONE_STEP, Rig


async def call(
    r: Rig, method: str, path: str, body: Any = b"", **headers: str
) -> tuple[Answer, Any]:
    """The answer, and what its JSON says."""
    data = body if isinstance(body, bytes) else msgspec.json.encode(body)
    given = {name.replace("_", "-"): value for name, value in headers.items()}
    answer = await AsgiTransport(r.server.asgi).request(method, path, data, given)
    is_json = "json" in answer.headers.get("content-type", "") and answer.status != 206
    return answer, msgspec.json.decode(answer.body) if is_json else None


async def codes(r: Rig, *calls: tuple[Any, ...], **headers: str) -> list[tuple[int, str]]:
    """Status and code of refusals."""
    found = []
    for method, path, *body in calls:
        answer, problem = await call(r, method, path, *body, **headers)
        assert answer.headers["content-type"] == "application/problem+json", problem
        found.append((answer.status, problem["code"]))
    return found


async def bearer(r: Rig, *roles: str, **more: Any) -> str:
    """A header that says who calls."""
    text = new_token()
    row = TokenRow(
        token_id=r.ids.new(), sha256=digest(text), account=f"the {roles[0]}", roles=roles, **more
    )
    await r.store.tokens.put(row)
    return f"Bearer {text}"


class Bearing:
    """A transport whose requests say who calls."""

    def __init__(self, r: Rig, header: str) -> None:
        self._inner = AsgiTransport(r.server.asgi)
        self._header = header

    async def request(
        self, method: str, path: str, body: bytes = b"", headers: Any = None
    ) -> Answer:
        given = {**(headers or {}), "authorization": self._header}
        return await self._inner.request(method, path, body, given)


async def tenant(r: Rig, name: str, *roles: str) -> Client:
    """A client of a tenant."""
    return Client(Bearing(r, await bearer(r, *(roles or ("developer",)), tenant_id=name)))


async def started(client: Client, body: str = ONE_STEP) -> str:
    """A run of that client's tenant."""
    await client.register(Register(content=HEAD + body))
    return (await client.execute(Execute(path="demo/it"))).execution_id
