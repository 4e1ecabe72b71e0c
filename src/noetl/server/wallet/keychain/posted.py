"""Values that somebody put: whether the server can make one anew, and for whom it may."""

from __future__ import annotations

import hashlib
import re
from collections.abc import Mapping
from typing import TYPE_CHECKING, Any, Final

import msgspec

from noetl.dsl.playbook.document import entry_faults
from noetl.edge.errors import Forbidden, Unacceptable
from noetl.server.access.caller import must

if TYPE_CHECKING:
    from collections.abc import Iterator

    from noetl.server.access.caller import Caller
    from noetl.server.wallet.runs import RunFacts
    from noetl.store.secrets import KeychainRow

RENEWED: Final = frozenset({"credential", "secret_manager", "oauth2", "google_id_token"})
"""Kinds that the server reads or mints; a value that is of no such kind just ends."""
BY_WORKERS: Final = frozenset({"credential", "secret_manager"})
"""Kinds that the `secrets` tool names; a worker brings no other, and says not where to ask."""
WRITE: Final = "keychain:write"
_USE: Final = "credential:use"
_OF_WORKERS: Final = frozenset({"name", "kind", "provider", "credential", "auth", "map"})
_TEMPLATE: Final = re.compile(r"\{\{.*?\}\}|\{%.*?%\}|\{#.*?#\}", re.DOTALL)


def must_be_fit(caller: Caller, config: Mapping[str, Any] | None) -> None:
    """Refuse a way to renew a value that is malformed, or that the caller may not give."""
    if config is None or config.get("kind") not in RENEWED:
        return
    for fault in entry_faults({**config, "name": "value"}):
        raise Unacceptable(
            f"/renew_config{fault.pointer}: {fault.message}",
            errors=({"pointer": f"/renew_config{fault.pointer}", "code": fault.code},),
        )
    for alias in aliases_in(config):
        must(caller, _USE, alias)
    is_simple = config["kind"] in BY_WORKERS and _OF_WORKERS.issuperset(config)
    if caller.mark(WRITE) == "o" and not (is_simple and _is_alias(config.get("auth"))):
        raise Forbidden(
            "a worker names secrets, and does not say where the server is to ask for them",
            hint=f"`renew_config` of a worker has the keys {', '.join(sorted(_OF_WORKERS))}",
        )


def renewal_of(row: KeychainRow | None) -> dict[str, Any] | None:
    """The entry that makes a value anew; none when there is no way to."""
    config = None if row is None else row.renew_config
    if row is None or config is None or config.get("kind") not in RENEWED:
        return None
    return {"name": row.keychain_name, **config}


def digest_of(entry: Mapping[str, Any]) -> str:
    """A short name of what an entry says."""
    text = msgspec.json.encode(dict(entry), order="deterministic")
    return hashlib.sha256(text).hexdigest()[:16]


def must_name(run: RunFacts, entry: Mapping[str, Any]) -> None:
    """Refuse to make a value for a run whose playbook does not name what it is made of.

    A worker puts values of its runs: it must not get by them what it would not be given.
    """
    for alias in aliases_in(entry):
        if alias not in run.aliases:
            raise Forbidden(f"{run.path} does not name the credential `{alias[:80]}`")
    if entry["kind"] == "secret_manager":
        provider = str(entry.get("provider") or "")
        for name in _managed(entry):
            if not _is_named(run, provider, name):
                raise Forbidden(f"{run.path} does not name the secret `{name[:80]}` of {provider}")


def aliases_in(entry: Mapping[str, Any]) -> Iterator[str]:
    """The credentials that an entry is made with."""
    for given in (entry.get("credential"), entry.get("auth")):
        alias = given.get("credential") if isinstance(given, Mapping) else given
        if alias is not None and alias != "":
            yield str(alias)


def _is_alias(auth: object) -> bool:
    return auth is None or isinstance(auth, str)


def _managed(entry: Mapping[str, Any]) -> Iterator[str]:
    for wanted in (entry.get("map") or {}).values():
        yield str(wanted.get("name") if isinstance(wanted, Mapping) else wanted)


def _is_named(run: RunFacts, provider: str, name: str) -> bool:
    """Whether a task of the run's playbook names a secret, or a template that may become it."""
    for known, written in run.named.managed:
        if known != provider:
            continue
        parts = _TEMPLATE.split(written)
        if not any(parts):
            if name in run.aliases:
                return True
        elif re.fullmatch(".*".join(map(re.escape, parts)), name, re.DOTALL):
            return True
    return False
