"""What a transfer was asked for, before anything is opened: columns, names, and its own mark."""

from __future__ import annotations

import hashlib
import re
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, Final, Protocol

from noetl.tools.base import ToolError

if TYPE_CHECKING:
    from collections.abc import Iterator, Mapping, Sequence

    import pyarrow as pa  # type: ignore[import-untyped]  # it has no types

LEDGER: Final = "_noetl_transfer"
"""The table, or the folder, that says which transfers were done."""
_PART: Final = re.compile(r'\s*(?:"((?:[^"]|"")+)"|([^".\s][^".]*?))\s*(?:\.|$)')


@dataclass(frozen=True, slots=True, kw_only=True)
class Plan:
    """What the rows become in the target."""

    mode: str
    key: tuple[str, ...]
    chunk_size: int
    is_lenient: bool
    """A value that does not fit becomes null instead of a failure."""
    columns: tuple[str, ...]
    mapping: Mapping[str, str]
    is_made: bool
    """The target is made when it is missing."""
    mark: str
    """The idempotency key."""

    @property
    def digest(self) -> str:
        """The mark as a name of a file or an object."""
        return hashlib.sha256(self.mark.encode()).hexdigest()[:32]


class Source(Protocol):
    """Where rows come from; its methods run in a thread."""

    def schema(self) -> pa.Schema:
        """The columns, known before the first row."""

    def batches(self) -> Iterator[pa.RecordBatch]:
        """The rows, in batches of at most a chunk."""

    def stop(self) -> None:
        """End what runs, from another thread."""


class Target(Protocol):
    """Where rows go; nothing is seen of them before `commit`."""

    async def earlier(self) -> dict[str, Any] | None:
        """What this very transfer said when it was done before."""

    def begin(self, schema: pa.Schema) -> None:
        """Make room for rows of these columns; in a thread."""

    def write(self, batch: pa.RecordBatch) -> None:
        """Take rows; in a thread."""

    async def commit(self, said: dict[str, Any]) -> dict[str, Any]:
        """Show all rows at once, and what is said of them; an earlier word wins."""

    def stop(self) -> None:
        """End what runs, from another thread."""


def parts_of(table: str, schema: str | None = None) -> tuple[str, ...]:
    """The parts of a table's name; a part in double quotes may hold a point."""
    parts: list[str] = []
    place = 0
    while place < len(table):
        found = _PART.match(table, place)
        if found is None:
            raise ToolError("config", "invalid_config", "/target/table: is not a name")
        parts.append(found[1].replace('""', '"') if found[1] else found[2])
        place = found.end()
    if not parts or table.rstrip().endswith("."):
        raise ToolError("config", "invalid_config", "/target/table: is not a name")
    return (schema, *parts) if schema and len(parts) == 1 else tuple(parts)


@dataclass(frozen=True, slots=True, kw_only=True)
class Pair:
    """A column of the target and the field of the source that fills it."""

    column: str
    field: str


def pairs_of(fields: Sequence[str], plan: Plan) -> tuple[Pair, ...]:
    """Which field fills which column."""
    doubled = sorted({name for name in fields if list(fields).count(name) > 1})
    if doubled:
        message = f"/source: two columns are named {', '.join(doubled)}"
        raise ToolError("schema", "duplicate_column", message)
    columns = plan.columns or tuple(plan.mapping) or tuple(fields)
    pairs = tuple(
        Pair(column=name, field=_found(plan.mapping.get(name, name), fields)) for name in columns
    )
    missing = [name for name in plan.key if name not in columns]
    if plan.mode == "upsert" and missing:
        message = f"/key: {', '.join(missing)} is not among the columns: {', '.join(columns)}"
        raise ToolError("config", "invalid_config", message)
    return pairs


def _found(name: str, fields: Sequence[str]) -> str:
    if name in fields:
        return name
    alike = [field for field in fields if field.lower() == name.lower()]
    if len(alike) == 1:
        return alike[0]
    message = f"the source has no field `{name}`; it has {', '.join(fields)}"
    raise ToolError("schema", "column_missing", message)


def named(columns: Sequence[str], known: Mapping[str, Any], table: str) -> dict[str, str]:
    """The columns as the table itself spells them."""
    spelled = {name.lower(): name for name in known}
    made = {name: name if name in known else spelled.get(name.lower(), "") for name in columns}
    missing = [name for name, own in made.items() if not own]
    if missing:
        message = f"{table} has no column {', '.join(missing)}"
        raise ToolError("schema", "column_missing", message)
    return made


def no_table(table: str) -> ToolError:
    """The error of a target that is not there."""
    message = f"there is no table {table}: make it, or say `create: true`"
    return ToolError("not_found", "table_not_found", message)


def type_error(message: str, **details: Any) -> ToolError:  # noqa: ANN401 - facts of the fault
    """The error of a value that does not fit its column."""
    hint = '`on_type_error: "null"` writes null instead'
    return ToolError("schema", "type_error", f"{message} ({hint})", details=details)


def filled(text: str, **parts: str) -> str:
    """A statement whose names, which are quoted already, stand in their places."""
    return re.sub(r"\{(\w+)\}", lambda found: parts[found[1]], text)


def quoted(*parts: str) -> str:
    """A name, as the standard quotes it."""
    return ".".join('"' + part.replace('"', '""') + '"' for part in parts)


def listed(names: Sequence[str], before: str = "") -> str:
    """Quoted names in a row."""
    return ", ".join(before + quoted(name) for name in names)
