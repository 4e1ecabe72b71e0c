"""Which rows a reader wants: the filters of a list as one predicate."""

from __future__ import annotations

from typing import TYPE_CHECKING, Final

if TYPE_CHECKING:
    from collections.abc import Callable

    from noetl.store.base import ExecutionRow, Listing

_EQUAL: Final = (
    "tenant_id", "catalog_id", "version", "pool", "created_by", "request_id", "client_id",
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
    if listing.status:
        tests.append(lambda row: row.status in listing.status)
    if (since := listing.since) is not None:
        tests.append(lambda row: row.started_at >= since)
    if (until := listing.until) is not None:
        tests.append(lambda row: row.started_at < until)
    if listing.has_error is not None:
        tests.append(lambda row: (row.error is not None) == listing.has_error)
    return tests


def _texts(listing: Listing) -> list[Callable[[ExecutionRow], bool]]:
    tests: list[Callable[[ExecutionRow], bool]] = []
    if (path := listing.path) is not None:
        if path.endswith("*"):
            tests.append(lambda row: row.path.startswith(path[:-1]))
        else:
            tests.append(lambda row: row.path == path)
    if (parent := listing.parent_execution_id) is not None:
        wanted = None if parent == "none" else parent
        tests.append(lambda row: row.parent_execution_id == wanted)
    if listing.labels:
        tests.append(lambda row: listing.labels.items() <= row.labels.items())
    if (text := listing.q) is not None:
        tests.append(lambda row: row.path.startswith(text) or _message(row).startswith(text))
    return tests


def _message(row: ExecutionRow) -> str:
    return "" if row.error is None else str(row.error.get("message", ""))
