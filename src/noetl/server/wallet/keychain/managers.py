"""Secrets that lie elsewhere: in a secret manager, in a variable or in a file of the server."""

from __future__ import annotations

import asyncio
from collections.abc import Mapping
from typing import TYPE_CHECKING, Any, Final

import msgspec

from noetl.dsl.documents.credential_types import first_names, secrets_in
from noetl.errors import NoetlError
from noetl.secrets.providers.choose import TYPE_OF, manager_of
from noetl.secrets.source import SourceMissing, SourceRefused

if TYPE_CHECKING:
    from collections.abc import Awaitable
    from pathlib import Path

    from noetl.clock import Clock
    from noetl.secrets.fetch import Fetch
    from noetl.secrets.providers.base import SecretManager
    from noetl.server.metrics import ServerMetrics
    from noetl.server.surroundings import Surroundings
    from noetl.telemetry.fingerprints import Fingerprints

MOST_BYTES: Final = 1 << 20
MANAGERS: Final = ("vault", "gcp", "aws", "azure", "k8s")
_SINGLE: Final = {"secret": "value", "bearer": "token", "api_key": "key", "mcp": "token"}
"""The field that a plain text is, by the type of its credential."""
_OUTCOMES: Final = {"secret_missing": "not_found", "not_found": "not_found",
                    "secret_refused": "denied", "residency_denied": "denied"}  # fmt: skip


class Managers:
    """Reads secrets where they lie."""

    def __init__(  # noqa: PLR0913 - the parts it is made from
        self,
        fetch: Fetch | None,
        metadata: Fetch | None,
        around: Surroundings,
        *,
        seen: Fingerprints,
        clock: Clock,
        metrics: ServerMetrics,
    ) -> None:
        self._fetch = fetch
        self._metadata = metadata
        self._around = around
        self._seen = seen
        self._clock = clock
        self._metrics = metrics

    @property
    def fetch(self) -> Fetch:
        """The way out; refused where there is none."""
        if self._fetch is None:
            raise SourceRefused("this server asks no other system for secrets")
        return self._fetch

    @property
    def metadata(self) -> Fetch | None:
        """The way to the metadata service of the machine."""
        return self._metadata

    async def mapped(
        self,
        provider: str,
        names: Mapping[str, Any],
        fields: Mapping[str, Any],
        region: str = "",
    ) -> dict[str, Any]:
        """Field by field, from the names that a provider knows them by."""
        if provider not in MANAGERS:
            return {name: await self._near(provider, str(of)) for name, of in names.items()}
        manager = self._manager(provider, fields, region)
        return {
            name: await self._counted(provider, _read(manager, of)) for name, of in names.items()
        }

    async def whole(
        self,
        provider: str,
        wanted: object,
        fields: Mapping[str, Any],
        *,
        type_: str,
        region: str = "",
    ) -> dict[str, Any]:
        """All fields of a credential from one secret: a JSON map, or the one field of the type."""
        if provider in MANAGERS:
            manager = self._manager(provider, fields, region)
            text = await self._counted(provider, _read(manager, wanted))
        else:
            text = await self._near(provider, str(wanted))
        return _fields(text, type_)

    def _manager(self, provider: str, fields: Mapping[str, Any], region: str) -> SecretManager:
        return manager_of(
            provider,
            first_names(TYPE_OF.get(provider, ""), fields),
            self.fetch,
            clock=self._clock,
            region=region,
            metadata=self._metadata,
        )

    async def _near(self, provider: str, name: str) -> str:
        if provider == "env":
            return await self._counted(provider, self._variable(name))
        if provider == "file":
            return await self._counted(provider, asyncio.to_thread(self._file, name))
        raise SourceRefused(f"{provider[:40]!r} keeps no secrets")

    async def _counted(self, provider: str, reading: Awaitable[str]) -> str:
        try:
            found = await reading
        except NoetlError as fault:
            outcome = _OUTCOMES.get(fault.code, "error")
            self._metrics.secret_resolve.inc(provider, outcome)
            raise
        self._metrics.secret_resolve.inc(provider, "ok")
        self._seen.add(*secrets_in(found))
        return found

    async def _variable(self, name: str) -> str:
        found = self._around.environment.get(name)
        if not found:
            raise SourceMissing(
                f"the server has no variable `{name[:80]}` for credentials",
                hint="list it in NOETL_KEYCHAIN_ENV_VARS of the server",
            )
        return found

    def _file(self, name: str) -> str:
        """The text of a file in one of the folders, wherever links lead."""
        for folder in self._around.folders:
            path = _inside(folder, name)
            if path is None:
                continue
            try:
                if path.stat().st_size > MOST_BYTES:
                    raise SourceRefused(f"the file has more than {MOST_BYTES} bytes")
                return path.read_text("utf-8").rstrip("\n")
            except (OSError, UnicodeDecodeError):
                raise SourceRefused("the file cannot be read as text") from None
        folders = ", ".join(map(str, self._around.folders)) or "no folder"
        raise SourceMissing(
            f"the server has no file `{name[:80]}` for credentials", hint=f"put it into {folders}"
        )


def _inside(folder: Path, name: str) -> Path | None:
    """The file of a name, if it lies in a folder wherever links lead."""
    try:
        root = folder.resolve()
        path = (root / name).resolve()
        return path if path.is_relative_to(root) and path.is_file() else None
    except (OSError, ValueError, RuntimeError):  # no name of a file, or links without an end
        return None


async def _read(manager: SecretManager, wanted: object) -> str:
    """One secret, by its name or by a map with name, version and field."""
    if not isinstance(wanted, Mapping):
        return await manager.read(str(wanted))
    name = wanted.get("name") or wanted.get("path") or wanted.get("secret")
    if not name:
        raise SourceRefused("the secret has no name", hint="write `name`")
    part = wanted.get("field") or wanted.get("key")
    version = wanted.get("version")
    return await manager.read(
        f"{name}#{part}" if part else str(name), None if version is None else str(version)
    )


def _fields(text: str, type_: str) -> dict[str, Any]:
    try:
        found = msgspec.json.decode(text)
    except (msgspec.DecodeError, UnicodeEncodeError, RecursionError):
        found = None
    if isinstance(found, dict):
        return found
    if type_ not in _SINGLE:
        raise SourceRefused(
            f"the secret is no JSON map of the fields of {type_}",
            hint="keep the fields as one JSON map, or name each with `provider` and `map`",
        )
    return {_SINGLE[type_]: text}
