"""Tokens of an OAuth 2 server: for ourselves, by a refresh token, or by a name and a password."""

from __future__ import annotations

import base64
from typing import TYPE_CHECKING, Any, Final
from urllib.parse import quote, urlencode

import msgspec

from noetl.secrets.fetch import Ask
from noetl.secrets.source import SourceRefused, needed, text_in, told
from noetl.secrets.tokens.base import Token, seconds

if TYPE_CHECKING:
    from collections.abc import Mapping

    from noetl.secrets.fetch import Fetch

FORM: Final = "application/x-www-form-urlencoded"
GRANTS: Final = ("client_credentials", "refresh_token", "password")
_WHO: Final = "the OAuth 2 server"
_OPTIONAL: Final = {"scope": "scopes", "audience": "audience", "resource": "resource"}
"""What is asked for besides, and the fields that say so."""
_OF_GRANT: Final = {
    "client_credentials": (),
    "refresh_token": ("refresh_token",),
    "password": ("username", "password"),
}


async def mint(
    fetch: Fetch,
    endpoint: str,
    *,
    data: Mapping[str, Any],
    headers: Mapping[str, str] | None = None,
    method: str = "POST",
) -> Token:
    """Ask an endpoint for a token.

    The fields are those of the answer, and `token` beside `access_token`. The body is a form,
    or JSON when the headers say so.
    """
    given = {name.lower(): value for name, value in (headers or {}).items()}
    kind = given.setdefault("content-type", FORM)
    given.setdefault("accept", "application/json")
    filled = {name: value for name, value in data.items() if value is not None}
    is_json = kind.partition(";")[0].strip().lower().endswith("json")
    body = msgspec.json.encode(filled) if is_json else urlencode(filled, doseq=True).encode()
    ask = Ask(method=method.upper(), url=endpoint, headers=given, body=body)
    found = await told(fetch, ask, _WHO)
    token = text_in(found, "access_token", _WHO)
    fields = {"token_type": "Bearer", **found, "token": token}
    return Token(fields=fields, expires_in=seconds(found.get("expires_in")))


async def mint_of(fetch: Fetch, fields: Mapping[str, Any], *, endpoint: str = "") -> Token:
    """Ask for a token with the fields of a credential of the type `oauth2`."""
    url = endpoint or url_of(fields)
    data, headers = grant_of(fields)
    return await mint(fetch, url, data=data, headers=headers)


def url_of(fields: Mapping[str, Any]) -> str:
    """Where a credential's fields say that tokens are asked for."""
    return needed(fields, ("token_url",), "a credential of the type oauth2")


def grant_of(fields: Mapping[str, Any]) -> tuple[dict[str, Any], dict[str, str]]:
    """Body and headers of the grant that a credential's fields make."""
    what = "a credential of the type oauth2"
    grant = str(fields.get("grant_type") or ("client_credentials", "refresh_token")[
        bool(fields.get("refresh_token"))
    ])  # fmt: skip
    if grant not in GRANTS:
        raise SourceRefused(f"the grant {grant[:40]!r} is unknown", hint=f"use {', '.join(GRANTS)}")
    data: dict[str, Any] = {"grant_type": grant}
    for name in _OF_GRANT[grant]:
        data[name] = needed(fields, (name,), what)
    for name, of in _OPTIONAL.items():
        value = fields.get(of)
        if value:
            data[name] = value if isinstance(value, str) else " ".join(map(str, value))
    is_public = grant != "client_credentials" and not fields.get("client_secret")
    client = needed(fields, ("client_id",), what)
    if is_public:
        return {**data, "client_id": client}, {}
    secret = needed(fields, ("client_secret",), what)
    if fields.get("auth_style") == "basic":
        pair = f"{quote(client, safe='')}:{quote(secret, safe='')}"
        return data, {"authorization": f"Basic {base64.b64encode(pair.encode()).decode()}"}
    return {**data, "client_id": client, "client_secret": secret}, {}
