"""Lists and single things of a server in the form that was asked for."""

from __future__ import annotations

import re
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, Final

from noetl.cli.failures import CommandFailed
from noetl.cli.text import columns, json_line, visible, yaml_text
from noetl.cli.times import At
from noetl.clock import SystemClock

if TYPE_CHECKING:
    from collections.abc import Awaitable, Callable, Iterator, Mapping, Sequence
    from datetime import datetime

    from noetl.cli.output import Output

MOST_PER_PAGE: Final = 200
_MOMENT: Final = re.compile(r"\d{4}-\d\d-\d\dT\d\d:\d\d:\d\d(\.\d+)?(Z|[+-]\d\d:\d\d)")

Item = dict[str, Any]
Cell = str | At


@dataclass(frozen=True, slots=True, kw_only=True)
class Look:
    """How items are shown: their columns, and the name that leads back to each.

    `--columns` and `--wide` show fields of the items instead, under the names they have there.
    """

    head: tuple[str, ...]
    row: Callable[[Item], Sequence[Cell]]
    name: Callable[[Item], str]
    nothing: str = "nothing was found"


async def pages(
    page: Callable[[int, str | None], Awaitable[tuple[Sequence[Item], str | None]]],
    limit: int | None,
    most: int = MOST_PER_PAGE,
) -> tuple[list[Item], str | None]:
    """So many items and where the rest begins; all of them without a limit."""
    found: list[Item] = []
    cursor: str | None = None
    while limit is None or len(found) < limit:
        size = most if limit is None else min(most, limit - len(found))
        items, cursor = await page(size, cursor)
        found += items
        if cursor is None:
            break
    return found, cursor


def show_list(out: Output, items: Sequence[Item], look: Look, cursor: str | None = None) -> None:
    """Write a list."""
    if out.is_structured:
        out.items(items, cursor)
    elif out.format == "name":
        out.write("".join(f"{visible(look.name(item))}\n" for item in items))
    elif items:
        out.write(columns(table(out, items, look), out.width))
    else:
        out.note(look.nothing)
    if cursor is not None and out.format in {"table", "name"}:
        out.note("there are more; `--all` shows them, `--limit N` more of them")


def table(out: Output, items: Sequence[Item], look: Look) -> list[tuple[str, ...]]:
    """The rows of a table, its head first."""
    now = SystemClock().now()
    if out.columns or out.is_wide:
        names = out.columns or tuple(dict.fromkeys(key for item in items for key in item))
        _must_be_known(names, items)
        head = tuple(name.upper() for name in names)
        made = [tuple(_field(item, name) for name in names) for item in items]
    else:
        head, made = look.head, [tuple(look.row(item)) for item in items]
    return [head, *(tuple(_shown(out, cell, now) for cell in row) for row in made)]


def _shown(out: Output, cell: Cell, now: datetime) -> str:
    return visible(cell.shown(out.time, now) if isinstance(cell, At) else cell)


def _must_be_known(names: Sequence[str], items: Sequence[Item]) -> None:
    from noetl.cli.text import nearest

    known = dict.fromkeys(key for item in items for key in _keys(item))
    for name in names:
        if name not in known:
            hint = nearest(name, tuple(known))
            raise CommandFailed("usage", f"there is no column `{name}`", hint=hint)


def _keys(item: Item, before: str = "") -> Iterator[str]:
    """The fields of an item, those of maps in it by their paths."""
    for key, value in item.items():
        yield f"{before}{key}"
        if isinstance(value, dict):
            yield from _keys(value, f"{before}{key}.")


def _field(item: Item, path: str) -> Cell:
    value: Any = item
    for key in path.split("."):
        value = value.get(key) if isinstance(value, dict) else None
    if value is None or value in ("", [], (), {}):
        return "-"
    if isinstance(value, str):
        return At(value) if _MOMENT.fullmatch(value) else value
    is_names = isinstance(value, list | tuple) and all(isinstance(part, str) for part in value)
    return ", ".join(value) if is_names else json_line(value).rstrip("\n")


def show_one(out: Output, item: Mapping[str, Any], name: str) -> None:
    """Write one thing: as it is, or its fields that say something."""
    if out.is_structured:
        out.document(dict(item))
    elif out.format == "name":
        out.line(visible(name))
    else:
        wanted = {key: item[key] for key in out.columns if key in item} if out.columns else item
        said = {key: value for key, value in wanted.items() if value not in (None, "", (), [], {})}
        out.write(yaml_text(said))
