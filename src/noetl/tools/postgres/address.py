"""Where a task connects, and as whom: its credential, and the fields that the task writes out."""

from __future__ import annotations

import hashlib
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any, Final

import msgspec

from noetl.tools.auth import fields_of
from noetl.tools.base import ToolError

if TYPE_CHECKING:
    from collections.abc import Mapping

    from noetl.dsl.tasks import Postgres
    from noetl.tools.base import ToolContext

TYPE: Final = "postgres"
PORT: Final = 5432
_FIELDS: Final = ("host", "port", "user", "password", "database", "sslmode", "ca")
_MODES: Final = ("disable", "allow", "prefer", "require", "verify-ca", "verify-full")
# Without a password none is asked of the environment or of a file of this machine.
_NO_PASSWORD: Final = "!password,!md5,!scram-sha-256"  # noqa: S105 - names of methods


@dataclass(frozen=True, slots=True, kw_only=True)
class Address:
    """A database, and how to reach it; nothing of it is ever shown."""

    options: Mapping[str, Any] = field(repr=False)
    """As libpq names them."""
    ca: str | None = field(default=None, repr=False)
    """Certificates of who may sign the server's own."""

    @property
    def key(self) -> str:
        """The same for the same place, user and secrets, and tells none of them."""
        told = msgspec.json.encode([sorted(self.options.items()), self.ca])
        return hashlib.sha256(told).hexdigest()


async def address_of(config: Postgres, ctx: ToolContext) -> Address:
    """The address of a task; fields of `connection` win over those of `auth`."""
    written: dict[str, Any] = {}
    if config.connection is not None:
        own = config.connection
        written = {name: getattr(own, name) for name in _FIELDS if getattr(own, name, None)}
    fields: dict[str, Any] = {}
    if config.auth is not None or not written:
        fields = await fields_of(config.auth, ctx, types=(TYPE,))
    fields |= written
    for name in ("host", "user"):
        if not fields.get(name):
            where = "/connection" if config.auth is None else "/auth"
            message = f"{where}/{name}: it is missing; there is no default connection"
            raise ToolError("auth", "auth_required", message)
    if fields.get("password"):
        ctx.redactor.add(str(fields["password"]))
    return Address(options=_options(fields), ca=fields.get("ca"))


def _options(fields: Mapping[str, Any]) -> dict[str, Any]:
    ca = fields.get("ca")
    mode = str(fields.get("sslmode") or ("verify-full" if ca else "prefer"))
    if mode not in _MODES:
        message = f"sslmode: `{mode}` is none of {', '.join(_MODES)}"
        raise ToolError("config", "invalid_config", message)
    try:
        port = int(fields.get("port") or PORT)
    except ValueError:
        raise ToolError("config", "invalid_config", "port: not a number") from None
    user, password = str(fields["user"]), fields.get("password")
    secret = {"password": str(password)} if password else {"require_auth": _NO_PASSWORD}
    return {
        "host": str(fields["host"]),
        "port": port,
        "user": user,
        "dbname": str(fields.get("database") or user),
        "sslmode": mode,
        "application_name": "noetl",
        **secret,
    }
