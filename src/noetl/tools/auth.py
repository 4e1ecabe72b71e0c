"""Credentials of tasks: an alias or a map becomes the fields of one type, or a clear refusal."""

from __future__ import annotations

from collections.abc import Mapping
from typing import TYPE_CHECKING, Any
from urllib.parse import parse_qsl, unquote, urlsplit

from noetl.dsl.documents.credential_types import first_names
from noetl.tools.base import ToolError

if TYPE_CHECKING:
    from collections.abc import Iterable

    from noetl.tools.base import ToolContext

_OWN = frozenset({"credential", "type"})


async def fields_of(
    auth: Any,  # noqa: ANN401 - what the author wrote: an alias, a map, or nothing
    ctx: ToolContext,
    *,
    types: Iterable[str],
    where: str = "/auth",
) -> dict[str, Any]:
    """The fields of a credential of one of the types, by their first names; `type` says which.

    A map names a credential (`credential`) and fields of its own, which win. A task that has no
    `auth` fails, because there is no default connection.
    """
    wanted = tuple(types)
    if auth is None:
        message = f"{where}: name a credential of type {' or '.join(wanted)}"
        raise ToolError("auth", "auth_required", message)
    if isinstance(auth, str):
        return _opened(_checked(await credential(auth, ctx), wanted, f"{where}: `{auth}`"), ctx)
    if not isinstance(auth, Mapping):
        raise ToolError("config", "invalid_config", f"{where}: an alias or a map")
    own = {name: value for name, value in auth.items() if name not in _OWN and value is not None}
    alias = auth.get("credential")
    if alias is None:
        return _opened(_checked({"type": auth.get("type", wanted[0]), **own}, wanted, where), ctx)
    found = _checked(await credential(str(alias), ctx), wanted, f"{where}: `{alias}`")
    return _opened({**found, **first_names(str(found["type"]), own)}, ctx)


async def credential(alias: str, ctx: ToolContext) -> dict[str, Any]:
    """The fields of a stored credential, its type among them."""
    found: Any = None
    if ctx.secrets is not None:
        try:
            found = await ctx.secrets(alias)
        except LookupError:
            found = None
    if not isinstance(found, Mapping):
        message = f"there is no credential `{alias}`: `noetl credentials put {alias}` makes one"
        raise ToolError("auth", "credential_not_found", message)
    data = found.get("data")
    if isinstance(data, Mapping):
        return {"type": found.get("type"), **data}
    return dict(found)


def _checked(fields: Mapping[str, Any], wanted: tuple[str, ...], where: str) -> dict[str, Any]:
    kind = str(fields.get("type") or wanted[0])
    if kind not in wanted:
        message = f"{where} is of type {kind}: name a credential of type {' or '.join(wanted)}"
        raise ToolError("auth", "credential_type", message)
    return {"type": kind, **first_names(kind, fields)}


def _opened(fields: dict[str, Any], ctx: ToolContext) -> dict[str, Any]:
    """The fields of a database with those of its address, which is no field any more."""
    if fields["type"] != "postgres" or "url" not in fields:
        return fields
    found = _of_address(str(fields["url"]))
    if (password := found.get("password")) is not None:
        ctx.redactor.add(password)
    return {**found, **{name: value for name, value in fields.items() if name != "url"}}


def _of_address(url: str) -> dict[str, str]:
    parts = urlsplit(url)
    asked = dict(parse_qsl(parts.query))
    try:
        port = parts.port
    except ValueError:
        port = None
    if parts.scheme not in {"postgres", "postgresql"}:
        message = "the credential's `url` must begin with postgresql://"
        raise ToolError("config", "invalid_config", message)
    told = {
        "host": asked.get("host") or parts.hostname,
        "port": asked.get("port") or port,
        "user": asked.get("user") or parts.username,
        "password": asked.get("password") or parts.password,
        "database": asked.get("dbname") or parts.path.strip("/"),
        "sslmode": asked.get("sslmode"),
    }
    return {name: unquote(str(value)) for name, value in told.items() if value}
