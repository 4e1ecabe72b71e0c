"""Credentials that the caller brings along for one run: in memory, sealed, gone with it."""

from __future__ import annotations

import os
from base64 import b64encode
from typing import TYPE_CHECKING, Any

from noetl.api.credentials import CredentialPut
from noetl.dsl.documents.credential_types import TYPES, secrets_in
from noetl.dsl.shape import Fields
from noetl.errors import NoetlError
from noetl.secrets.kek.local import LocalKek
from noetl.secrets.wallet import Wallet
from noetl.telemetry.redact import Redactor

if TYPE_CHECKING:
    from collections.abc import Iterable, Mapping

    from noetl.clock import Clock
    from noetl.worker.secrets import Handed

_KEY_BYTES = 32


class NoType(NoetlError):
    """A credential does not say of which type it is, and its fields do not either."""

    code = "credential_type"


def wallet(clock: Clock) -> Wallet:
    """A wallet whose key nobody else has: what it seals is lost with this process."""
    return Wallet(LocalKek(b64encode(os.urandom(_KEY_BYTES)).decode()), clock)


class Credentials:
    """Credentials by name."""

    def __init__(self, known: Mapping[str, Mapping[str, Any]]) -> None:
        self._known = {name: _parts(name, fields) for name, fields in known.items()}

    def redactor(self) -> Redactor:
        """A redactor that knows every secret."""
        return Redactor(secrets_in([data for _, data in self._known.values()]))

    def puts(self) -> tuple[CredentialPut, ...]:
        """What the server of the run is told to keep."""
        return tuple(
            CredentialPut(name=name, type=kind, data=data)
            for name, (kind, data) in self._known.items()
        )

    def before(self, below: Handed) -> Handed:
        """The secrets of a command: an entry of the keychain may be lent under its own name."""
        lent = {name: _entry(kind, data) for name, (kind, data) in self._known.items()}
        return _Lent(lent, below)


class _Lent:
    """Keychain entries that the caller brought, before those that the server resolves."""

    def __init__(self, known: Mapping[str, Mapping[str, Any]], below: Handed) -> None:
        self._known = known
        self._below = below

    async def credential(self, alias: str) -> Mapping[str, Any]:
        """A credential as the server keeps it."""
        return await self._below.credential(alias)

    async def keychain(self, names: Iterable[str]) -> Mapping[str, Any]:
        """The entries that were brought, and the others of the server."""
        wanted = frozenset(names)
        lent = {name: self._known[name] for name in wanted & self._known.keys()}
        others = wanted - lent.keys()
        return {**lent, **(await self._below.keychain(others) if others else {})}

    async def inputs(self) -> Mapping[str, Any]:
        """The secret inputs of the run."""
        return await self._below.inputs()

    async def ahead(self, aliases: Iterable[str]) -> None:
        """Ask for credentials before their tool runs."""
        await self._below.ahead(aliases)

    def close(self) -> None:
        """The command has ended."""
        self._below.close()


def _entry(kind: str, data: dict[str, Any]) -> dict[str, Any]:
    """The fields of an entry; a single value is a token, too."""
    return {"token": data.get("value"), **data} if kind == "secret" else data


def _parts(name: str, fields: Mapping[str, Any]) -> tuple[str, dict[str, Any]]:
    """Type and fields of a credential; one type alone may have all of the fields."""
    data = fields.get("data")
    if isinstance(data, dict) and fields.keys() <= {"type", "data"}:
        kind, data = fields.get("type"), dict(data)
    else:
        kind, data = fields.get("type"), {key: fields[key] for key in fields if key != "type"}
    if isinstance(kind, str):
        return kind, data
    fits = [word for word, cls in TYPES.items() if data.keys() <= Fields.of(cls).by_name.keys()]
    if not fits:
        raise NoType(
            f"the credential `{name}` has no type, and no type has all of its fields",
            hint=f"add `type`: {', '.join(TYPES)}",
        )
    return fits[0], data
