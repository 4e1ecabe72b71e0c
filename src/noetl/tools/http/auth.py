"""Credentials as headers of a request."""

from __future__ import annotations

import base64
from collections.abc import Mapping
from typing import TYPE_CHECKING, Any, Final

from noetl.tools.base import ToolError

if TYPE_CHECKING:
    from noetl.tools.base import ToolContext

_TYPES: Final = ("bearer", "basic", "api_key", "none")
# The first field that a credential has tells its type when it does not say so itself.
_TELLING: Final = (
    ("token", "bearer"),
    ("access_token", "bearer"),
    ("key", "api_key"),
    ("api_key", "api_key"),
    ("username", "basic"),
    ("user", "basic"),
    ("value", "bearer"),
)
_SAME: Final = {"oauth2": "bearer", "mcp": "bearer", "secret": "bearer", "apikey": "api_key"}


async def auth_headers(auth: Any, ctx: ToolContext) -> dict[str, str]:  # noqa: ANN401 - an alias or a map
    """The headers that prove who asks; their values are secrets from now on."""
    if auth is None:
        return {}
    if isinstance(auth, str):
        fields = await _credential(auth, ctx)
    elif isinstance(auth, Mapping):
        fields = {name: value for name, value in auth.items() if value is not None}
        alias = fields.pop("credential", None)
        if alias is not None:
            stored = await _credential(str(alias), ctx)
            fields = {**stored, **fields}
    else:
        raise _invalid("an alias or a map")
    made = _headers(fields)
    ctx.redactor.add(*_secrets(fields), *made.values())
    return made


async def _credential(alias: str, ctx: ToolContext) -> dict[str, Any]:
    """The fields of a credential, its type among them."""
    found: Any = None
    if ctx.secrets is not None:
        try:
            found = await ctx.secrets(alias)
        except LookupError:
            found = None
    if not isinstance(found, Mapping):
        raise ToolError("auth", "credential_not_found", f"there is no credential `{alias}`")
    data = found.get("data")
    if isinstance(data, Mapping):
        return {"type": found.get("type"), **data}
    return dict(found)


def _headers(fields: Mapping[str, Any]) -> dict[str, str]:
    kind = fields.get("type") or next((t for name, t in _TELLING if name in fields), None)
    kind = _SAME.get(str(kind), kind)
    if kind == "none":
        return {}
    if kind == "bearer":
        token = _field(fields, "token", "access_token", "value", "key")
        return {"authorization": f"Bearer {token}"}
    if kind == "basic":
        pair = f"{_field(fields, 'username', 'user')}:{_field(fields, 'password')}"
        return {"authorization": f"Basic {base64.b64encode(pair.encode()).decode('ascii')}"}
    if kind == "api_key":
        header = str(fields.get("header") or "X-API-Key").lower()
        return {header: _field(fields, "key", "api_key", "token", "value")}
    raise _invalid(f"the type {kind!r} is none of {', '.join(_TYPES)}")


def _field(fields: Mapping[str, Any], *names: str) -> str:
    for name in names:
        if fields.get(name) not in {None, ""}:
            return str(fields[name])
    raise ToolError("auth", "auth_required", f"/auth/{names[0]}: is needed")


def _secrets(fields: Mapping[str, Any]) -> list[str]:
    names = ("token", "access_token", "password", "key", "api_key", "value")
    return [str(fields[name]) for name in names if fields.get(name)]


def _invalid(said: str) -> ToolError:
    return ToolError("config", "invalid_config", f"/auth: {said}")
