"""Those who call a server in tests of identity."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import pytest

from noetl.api.client import Client
from noetl.api.http import AsgiTransport
from noetl.api.problems import Refused
from noetl.server.access.tokens import digest, new_token
from noetl.store.identity import AccountRow, TokenRow

if TYPE_CHECKING:
    from collections.abc import Mapping

    from tests.unit.server.rig import Rig

CHEAP = 64
START = "2026-01-01T00:00:00.000000Z"
PASSWORD = "correct horse battery"  # noqa: S105 - of nobody


class Bearing:
    """A transport that sends a token with every request."""

    def __init__(self, transport: Any, token: str) -> None:
        self._transport = transport
        self._token = token

    async def request(self, method: str, path: str, body: bytes, headers: Mapping[str, str]) -> Any:
        told = {**headers, "authorization": f"Bearer {self._token}"}
        return await self._transport.request(method, path, body, told)


def client_of(r: Rig, token: str) -> Client:
    """A client that comes with a token."""
    return Client(Bearing(AsgiTransport(r.server.asgi), token))


async def account(r: Rig, subject: str, *roles: str, **fields: Any) -> AccountRow:
    """An account that is there."""
    row = AccountRow(account_id=r.ids.new(), subject=subject, roles=roles, **fields)
    assert await r.store.accounts.add(row)
    return row


async def caller(r: Rig, subject: str, *roles: str, **fields: Any) -> Client:
    """A client with a token of an account that is made for it."""
    scopes = fields.pop("scopes", ())
    row = await account(r, subject, *roles, **fields)
    return client_of(r, await token(r, row, *scopes))


async def token(r: Rig, row: AccountRow, *scopes: str, **fields: Any) -> str:
    """The text of a token of an account."""
    text = new_token()
    made = TokenRow(
        token_id=r.ids.new(), sha256=digest(text), account=row.subject, roles=(),
        account_id=row.account_id, scopes=scopes, created_at=START, **fields,
    )  # fmt: skip
    assert await r.store.tokens.add(made, 1000, START)
    return text


async def refusal(asked: Any, *, pointer: str | None = None) -> tuple[int, str]:
    """The status and code of a refusal, which points to a place if one is told."""
    with pytest.raises(Refused) as caught:
        await asked
    problem = caught.value.problem
    if pointer is not None:
        assert problem.errors[0]["pointer"] == pointer
    return problem.status, problem.code
