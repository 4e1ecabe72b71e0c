"""Which rows a reader wants: the filters of a list as one predicate."""

from __future__ import annotations

from typing import TYPE_CHECKING, Final

from noetl.store.upkeep import IMPORTED

if TYPE_CHECKING:
    from collections.abc import Callable

    from noetl.store.base import ExecutionRow, Listing

_EQUAL: Final = (
    "tenant_id", "catalog_id", "version", "pool", "created_by", "client_id",
)  # fmt: skip


def matcher(listing: Listing) -> Callable[[ExecutionRow], bool]:
    """Whether a run fits every filter that is set."""
    tests: list[Callable[[ExecutionRow], bool]] = [
        _equal(name, wanted) for name in _EQUAL if (wanted := getattr(listing, name)) is not None
    ]
    tests += _ranges(listing)
    tests += _texts(listing)
    return lambda row: all(test(row) for test in tests)


def _equal(name: str, wanted: object) -> Callable[[ExecutionRow], bool]:
    return lambda row: getattr(row, name) == wanted


def _ranges(listing: Listing) -> list[Callable[[ExecutionRow], bool]]:
    tests: list[Callable[[ExecutionRow], bool]] = []
    if listing.execution_ids:
        wanted = frozenset(listing.execution_ids)
        tests.append(lambda row: row.execution_id in wanted)
    if listing.status:
        tests.append(lambda row: row.status in listing.status)
    if (since := listing.since) is not None:
        tests.append(lambda row: row.started_at >= since)
    if (until := listing.until) is not None:
        tests.append(lambda row: row.started_at < until)
    if listing.has_error is not None:
        tests.append(lambda row: (row.error is not None) == listing.has_error)
    if (idle := listing.idle_since) is not None:
        tests.append(lambda row: _is_idle(row, idle))
    return tests


def _texts(listing: Listing) -> list[Callable[[ExecutionRow], bool]]:
    tests: list[Callable[[ExecutionRow], bool]] = []
    if (path := listing.path) is not None:
        tests.append(lambda row: _fits(path, row))
    if (allowed := listing.allowed) is not None:
        tests.append(lambda row: any(_fits(pattern, row) for pattern in allowed))
    if denied := listing.denied:
        tests.append(lambda row: not any(_fits(pattern, row) for pattern in denied))
    if (parent := listing.parent_execution_id) is not None:
        wanted = None if parent == "none" else parent
        tests.append(lambda row: row.parent_execution_id == wanted)
    if (request := listing.request_id) is not None:
        tests.append(lambda row: row.request_id is not None and request in {"*", row.request_id})
    if listing.labels:
        tests.append(lambda row: listing.labels.items() <= row.labels.items())
    if (text := listing.q) is not None:
        tests.append(lambda row: row.path.startswith(text) or _message(row).startswith(text))
    return tests


def _is_idle(row: ExecutionRow, since: str) -> bool:
    return (
        row.status == "RUNNING"
        and row.kind != IMPORTED
        and row.pending_commands == 0
        and row.updated_at <= since
    )


def _fits(pattern: str, row: ExecutionRow) -> bool:
    """Whether a run is of a path, or of one that begins so."""
    return row.path.startswith(pattern[:-1]) if pattern.endswith("*") else row.path == pattern


def _message(row: ExecutionRow) -> str:
    return "" if row.error is None else str(row.error.get("message", ""))
