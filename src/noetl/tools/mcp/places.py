"""Which server a task means, how it is reached, and who we are there."""

from __future__ import annotations

import re
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any, Final

from noetl.tools.auth import fields_of
from noetl.tools.base import ToolError
from noetl.tools.http.auth import auth_headers

if TYPE_CHECKING:
    from collections.abc import Mapping

    from noetl.dsl.tasks import Mcp
    from noetl.tools.base import ToolContext

ANY: Final = "*"
_TYPES: Final = ("mcp", "bearer", "api_key", "basic", "oauth2", "secret")
_NOT_IN_NAMES: Final = re.compile(r"[^A-Z0-9]+")
_HEADER: Final = re.compile(r"[!#$%&'*+.^_`|~0-9A-Za-z-]+")


@dataclass(frozen=True, slots=True, kw_only=True)
class Known:
    """What this worker knows of servers."""

    endpoints: Mapping[str, str] = field(default_factory=dict)
    """Addresses by the names of servers, as `NOETL_MCP_<SERVER>_ENDPOINT` spells them."""
    url: str = ""
    """The address of a server that has none."""
    stdio_allow: tuple[str, ...] = ()
    """Programs that tasks may start; `*` is any."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Way:
    """How a server is reached; the same way is the same session."""

    transport: str
    url: str = ""
    headers: tuple[tuple[str, str], ...] = field(default=(), repr=False)
    argv: tuple[str, ...] = ()
    domain: str = ""
    """Who shares the child of a server on standard streams."""


async def way_of(config: Mcp, ctx: ToolContext, known: Known) -> Way:
    """The way to the server of a task."""
    if config.transport == "stdio":
        return Way(transport="stdio", argv=_argv(config, known), domain=ctx.domain)
    fields = await _fields(config, ctx)
    named = _NOT_IN_NAMES.sub("_", (config.server or "").upper()).strip("_")
    url = config.endpoint or fields.pop("url", None) or known.endpoints.get(named) or known.url
    if not url:
        what = f"of `{config.server}`" if config.server else "of the server"
        name = f"NOETL_MCP_{named or '<SERVER>'}_ENDPOINT"
        message = f"/endpoint: the address {what} is not known; write it, or set {name}"
        raise ToolError("config", "invalid_config", message)
    if not str(url).startswith(("http://", "https://")):
        raise ToolError("config", "invalid_config", "/endpoint: begins with http:// or https://")
    headers = await _headers(fields, ctx)
    return Way(transport=config.transport, url=str(url), headers=tuple(sorted(headers.items())))


def _argv(config: Mcp, known: Known) -> tuple[str, ...]:
    if not config.argv:
        raise ToolError("config", "invalid_config", "/argv: is needed by the transport stdio")
    program = config.argv[0]
    if ANY not in known.stdio_allow and program not in known.stdio_allow:
        message = f"`{program}` may not be started: NOETL_MCP_STDIO_ALLOW does not list it"
        raise ToolError("config", "stdio_denied", message)
    return config.argv


async def _fields(config: Mcp, ctx: ToolContext) -> dict[str, Any]:
    if config.auth is None:
        return {}
    return await fields_of(config.auth, ctx, types=_TYPES)


async def _headers(fields: dict[str, Any], ctx: ToolContext) -> dict[str, str]:
    """The headers that prove who asks; their values are secrets from now on."""
    if not fields:
        return {}
    if fields.get("type") != "mcp":
        return await auth_headers(fields, ctx)
    given = fields.get("headers") or {}
    made = {str(name).lower(): str(value) for name, value in given.items()}
    if token := fields.get("token"):
        made["authorization"] = f"Bearer {token}"
        ctx.redactor.add(str(token))
    for name, value in made.items():
        if not _HEADER.fullmatch(name) or any(sign in value for sign in "\r\n\0"):
            raise ToolError(
                "config", "invalid_config", f"/auth: the header {name!r} cannot be sent"
            )
    ctx.redactor.add(*made.values())
    return made
