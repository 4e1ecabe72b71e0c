"""Keychain entries with their templates filled in."""

from __future__ import annotations

from dataclasses import fields
from typing import TYPE_CHECKING, Any, Final

from noetl.dsl.names import names_in
from noetl.dsl.shape.units import seconds
from noetl.dsl.template import TemplateFailure, UndefinedName, render
from noetl.secrets.source import SourceRefused

if TYPE_CHECKING:
    from collections.abc import Mapping

    from noetl.dsl.playbook.document import KeychainEntry
    from noetl.server.wallet.runs import RunFacts
    from noetl.store.base import ExecutionRow

_ASIDE: Final = frozenset({"place", "extra", "scope", "residency", "allowed_regions"})


def written(entry: KeychainEntry) -> dict[str, Any]:
    """An entry as its author wrote it."""
    return {
        part.name: getattr(entry, part.name) for part in fields(entry) if part.name not in _ASIDE
    }


def reads(entry: Mapping[str, Any]) -> frozenset[tuple[str, ...]]:
    """The names that the templates of an entry read."""
    return names_in(dict(entry))


def entries_before(run: RunFacts, name: str, named: frozenset[tuple[str, ...]]) -> list[str]:
    """The entries that an entry builds on, which stand before it."""
    order = list(run.named.keychain)
    before = order[: order.index(name)] if name in order else order
    wanted = {path[1] for path in named if path[0] == "keychain" and len(path) > 1}
    if ("keychain",) in named:
        wanted |= set(before)
    for other in sorted(wanted - set(before)):
        raise SourceRefused(
            f"the entry `{name}` builds on `{other[:80]}`, which does not stand before it"
        )
    return [other for other in before if other in wanted]


def filled(
    entry: Mapping[str, Any],
    row: ExecutionRow,
    workload: Mapping[str, Any],
    keychain: Mapping[str, Any],
) -> dict[str, Any]:
    """An entry with its templates rendered; values are in no message."""
    facts = {
        "id": row.execution_id,
        "path": row.path,
        "version": row.version,
        "catalog_id": row.catalog_id,
        "started_at": row.started_at,
        "parent_id": row.parent_execution_id,
        "pool": row.pool,
        "trace": row.trace,
    }
    scope = {
        "catalog_id": row.catalog_id,
        "path": row.path,
        "version": row.version,
        **workload,
        "workload": workload,
        "execution": facts,
        "execution_id": row.execution_id,
        "keychain": keychain,
    }
    try:
        made: Any = render(dict(entry), scope)
    except UndefinedName as fault:
        raise SourceRefused(f"the entry `{entry['name']}`: {fault.message}") from None
    except TemplateFailure as fault:
        kind = type(fault).__name__
        raise SourceRefused(f"a template of the entry `{entry['name']}` fails ({kind})") from None
    return dict(made)


def ttl_of(entry: Mapping[str, Any]) -> float | None:
    """How long the author wants a value to be kept."""
    value = entry.get("ttl")
    if isinstance(value, str):
        found = seconds(value)
        return found if found is not None else float(value) if value.isdecimal() else None
    return None if value is None or isinstance(value, bool) else float(value)
