"""Which transfers there are: what each side needs, and which modes a target has."""

from __future__ import annotations

from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from noetl.dsl.tasks.data import Transfer

_FILES = ("sqlite", "duckdb")
OBJECTS = {"s3": ("s3://",), "gcs": ("gs://", "gcs://")}
"""Stores without transactions, and how their addresses begin."""


def faults_of(task: Transfer) -> list[tuple[str, str, str]]:
    """What is wrong: the side, its key, and the reason; a template is judged by its value."""
    source, target = task.source, task.target
    found = [("source", key, told) for key, told in _source(source.kind, source)]
    found += [("target", key, told) for key, told in _target(target.kind, target)]
    if target.kind in OBJECTS and task.mode == "upsert":
        told = f"a transfer to {target.kind} does not upsert: an object has no rows to change"
        found.append(("", "mode", told))
    return found


def _source(kind: str, side: object) -> list[tuple[str, str]]:
    needed = {"http": "url", "s3": "uri", "gcs": "uri"}.get(kind, "query")
    if getattr(side, needed) is None:
        return [(needed, f"a transfer from {kind} needs `{needed}`")]
    if kind == "sqlite" and not _has_file(side):
        return [("path", "a transfer from sqlite needs `path`")]
    return _address(kind, side)


def _target(kind: str, side: object) -> list[tuple[str, str]]:
    needed = "uri" if kind in OBJECTS else "table"
    if getattr(side, needed) is None:
        return [(needed, f"a transfer to {kind} needs `{needed}`")]
    if kind in _FILES and not _has_file(side):
        return [("path", f"a transfer to {kind} needs `path`")]
    return _address(kind, side)


def _has_file(side: object) -> bool:
    return bool(getattr(side, "path", None) or getattr(side, "database", None))


def _address(kind: str, side: object) -> list[tuple[str, str]]:
    uri = str(getattr(side, "uri", None) or "")
    begins = OBJECTS.get(kind)
    if begins is None or "{{" in uri or "{%" in uri or uri.startswith(begins):
        return []
    return [("uri", f"an address of {kind} starts with {begins[0]}")]
