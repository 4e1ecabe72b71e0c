"""Secrets of tasks: asked for just before they are used, opened with the key of this process.

What the server seals can be opened by this worker alone, for one run. It is kept for the command
that asked, and every secret text of it is covered in all that the worker tells from then on.
"""

from __future__ import annotations

import json
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any, Final, Protocol

import msgspec

from noetl.api.credentials import VARIABLES
from noetl.api.http import NoAnswer
from noetl.api.problems import Refused
from noetl.dsl.documents.credential_types import secrets_in, texts_in
from noetl.settings import variable
from noetl.tools.base import ToolError
from noetl.worker.patience import is_passing, patiently

if TYPE_CHECKING:
    from collections.abc import Awaitable, Callable, Iterable, Mapping

    from noetl.api.client import Client
    from noetl.api.commands import Command
    from noetl.api.credentials import SealedAnswer, SealedKind
    from noetl.secrets.sealed import KeyPair
    from noetl.telemetry.redact import Redactor

WITHIN_S: Final = 30.0
"""How long a server that is away is asked again."""
SYSTEM_POOL: Final = "system"
_INPUTS: Final = "inputs"
_KEY_MISSING: Final = "worker_key_missing"
_NOT_FOUND: Final = 404
_FORBIDDEN: Final = 403
_FAR: Final = "residency_denied"


class Handed(Protocol):
    """The secrets of one command."""

    async def credential(self, alias: str) -> Mapping[str, Any]:
        """Type and fields of a credential; `LookupError` when there is none of that name."""

    async def keychain(self, names: Iterable[str]) -> Mapping[str, Any]:
        """The fields of keychain entries; those that there are not are left out."""

    async def inputs(self) -> Mapping[str, Any]:
        """The secret inputs of the run, by the names of their places."""

    async def ahead(self, aliases: Iterable[str]) -> None:
        """Ask for credentials before their tool runs."""

    def close(self) -> None:
        """The command has ended."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Asking:
    """As whom a worker asks, and where."""

    client: Client
    worker_id: str
    redactor: Redactor
    register: Callable[[], Awaitable[None]]
    """Tells the server the public key of this worker."""
    lifted: Mapping[str, Mapping[str, Any]] = field(default_factory=dict)
    """Credentials that the environment of this worker holds."""


class Secrets:
    """What a worker opens secrets with."""

    def __init__(self, asking: Asking) -> None:
        self._asking = asking
        self._pair: KeyPair | None = None
        for fields in asking.lifted.values():
            asking.redactor.add(*secrets_in(fields))

    @property
    def public(self) -> str:
        """The key that others seal to; none as long as nothing was asked for."""
        return "" if self._pair is None else self._pair.public

    def of(self, command: Command) -> CommandSecrets:
        """The secrets of one command."""
        return CommandSecrets(self, self._asking, command)

    def make_key(self) -> KeyPair:
        """The key pair of this process, made once."""
        if self._pair is None:
            # The library takes longer to import than a short local run may.
            from noetl.secrets.sealed import KeyPair  # noqa: PLC0415 - see above

            self._pair = KeyPair.make()
        return self._pair

    async def fetched(self, name: str, kind: SealedKind, command: Command) -> dict[str, Any]:
        """What the server seals to this worker; its refusal is raised."""
        asking = self._asking
        if self._pair is None:
            self.make_key()
            await asking.register()

        def ask() -> Awaitable[SealedAnswer]:
            return asking.client.sealed(
                name,
                worker_id=asking.worker_id,
                execution_id=command.execution_id,
                command_id=command.command_id,
                kind=kind,
            )

        try:
            answer = await patiently(ask, within_s=WITHIN_S)
        except Refused as fault:
            if fault.code != _KEY_MISSING:
                raise
            await asking.register()  # the server has forgotten this worker
            answer = await patiently(ask, within_s=WITHIN_S)
        return self._opened(answer, name, command)

    def _opened(self, answer: SealedAnswer, name: str, command: Command) -> dict[str, Any]:
        from noetl.secrets.sealed import Sealed, about_delivery  # noqa: PLC0415 - as above

        asking = self._asking
        sealed = Sealed(
            alg=answer.alg, v=answer.v, eph_pub=answer.eph_pub, ciphertext=answer.ciphertext
        )
        about = about_delivery(asking.worker_id, command.execution_id, name)
        found: dict[str, Any] = msgspec.json.decode(self.make_key().open(sealed, about), type=dict)
        asking.redactor.add(*_secret_texts(found, name))
        return found


class CommandSecrets:
    """Secrets that one command asked for; they are forgotten with it."""

    def __init__(self, secrets: Secrets, asking: Asking, command: Command) -> None:
        self._secrets = secrets
        self._asking = asking
        self._command = command
        self._known: dict[tuple[str, str], dict[str, Any] | None] = {}

    async def credential(self, alias: str) -> Mapping[str, Any]:
        """Type and fields of a credential; `LookupError` when there is none of that name."""
        if alias in self._asking.lifted:
            return self._asking.lifted[alias]
        try:
            found = await self._found(alias, "credential")
        except (Refused, NoAnswer, OSError) as fault:
            message = f"the credential `{alias}` cannot be had now: {fault}"
            raise ToolError("server_error", "credential_unavailable", message) from None
        if found is None:
            raise LookupError(alias)
        return self._filled(alias, found)

    async def ahead(self, aliases: Iterable[str]) -> None:
        """Ask for credentials before their tool runs; only a server that is away matters now."""
        for alias in aliases:
            if alias not in self._asking.lifted:
                try:
                    await self._found(alias, "credential")
                except ToolError:
                    continue  # the tool is told the same when it asks

    def close(self) -> None:
        """The command has ended: short secrets cover no words of others any more."""
        known, self._known = self._known, {}
        for (_, name), found in known.items():
            if found is not None:
                self._asking.redactor.release(*_secret_texts(found, name))

    async def keychain(self, names: Iterable[str]) -> Mapping[str, Any]:
        """The fields of keychain entries; those that there are not are left out."""
        made: dict[str, Any] = {}
        for name in names:
            found = self._asking.lifted.get(name) or await self._found(name, "keychain")
            if found is not None:
                made[name] = self._filled(name, found)["data"]
        return made

    def _filled(self, name: str, found: Mapping[str, Any]) -> Mapping[str, Any]:
        """What was found; where that are names of variables, with those of this worker."""
        names = found.get(VARIABLES)
        if not names:
            return found
        made = {field: self._variable(name, str(of)) for field, of in names.items()}
        single = {"value": next(iter(made.values()))} if len(made) == 1 else {}
        return {"type": found["type"], "data": single | made}

    def _variable(self, name: str, of: str) -> Any:  # noqa: ANN401 - a text, or the map of a JSON object
        lifted = self._asking.lifted.get(of)
        if lifted is None:
            message = f"the variable {of[:80]} of `keychain.{name}` is no secret of this pool"
            raise ToolError("auth", "credential_not_found", message)
        data = lifted["data"]
        return data["value"] if lifted["type"] == "secret" and "value" in data else data

    async def inputs(self) -> Mapping[str, Any]:
        """The secret inputs of the run, by the names of their places."""
        return await self._found(_INPUTS, "inputs") or {}

    async def _found(self, name: str, kind: SealedKind) -> dict[str, Any] | None:
        """What the server has under a name; none when there is nothing."""
        if (kind, name) not in self._known:
            self._known[kind, name] = await self._fetched(name, kind)
        return self._known[kind, name]

    async def _fetched(self, name: str, kind: SealedKind) -> dict[str, Any] | None:
        try:
            return await self._secrets.fetched(name, kind, self._command)
        except Refused as fault:
            if fault.problem.status == _NOT_FOUND:
                return None
            if is_passing(fault):
                raise
            refused, status = fault, fault.problem.status
        code = refused.code
        if status == _FORBIDDEN and code != _FAR:
            code = "credential_forbidden"
        what = "the secret inputs" if kind == "inputs" else f"the {kind} `{name}`"
        raise ToolError("auth", code, f"{what} cannot be used here: {refused.message}")


def lifted(names: Iterable[str], pool: str) -> dict[str, dict[str, Any]]:
    """Variables as credentials of their names, for the platform's own pool and no other.

    A variable with a JSON object holds fields, any other one a single value.
    """
    if pool != SYSTEM_POOL:
        return {}
    found = {name: variable(name) for name in names}
    return {name: _credential(text) for name, text in found.items() if text}


def _credential(text: str) -> dict[str, Any]:
    try:
        found = json.loads(text)
    except (ValueError, RecursionError):
        found = None
    if not isinstance(found, dict):
        return {"type": "secret", "data": {"value": text}}
    return {"type": found.pop("type", None), "data": found}


def _secret_texts(found: Mapping[str, Any], name: str) -> Iterable[str]:
    """The texts to be covered: an input is one whatever its name; others say where and as whom."""
    return texts_in(found) if name == _INPUTS else secrets_in(found["data"])
