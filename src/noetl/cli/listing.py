"""Lists and single things of a server in the form that was asked for."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, Final

from noetl.cli.text import columns, visible, yaml_text

if TYPE_CHECKING:
    from collections.abc import Awaitable, Callable, Mapping, Sequence

    from noetl.cli.output import Output

MOST_PER_PAGE: Final = 200

Item = dict[str, Any]


@dataclass(frozen=True, slots=True, kw_only=True)
class Look:
    """How items are shown: their columns, and the name that leads back to each."""

    head: tuple[str, ...]
    row: Callable[[Item], tuple[str, ...]]
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
        rows = [tuple(map(visible, look.row(item))) for item in items]
        out.write(columns([look.head, *rows], out.width))
    else:
        out.note(look.nothing)
    if cursor is not None and out.format in {"table", "name"}:
        out.note("there are more; `--all` shows them, `--limit N` more of them")


def show_one(out: Output, item: Mapping[str, Any], name: str) -> None:
    """Write one thing: as it is, or its fields that say something."""
    if out.is_structured:
        out.document(dict(item))
    elif out.format == "name":
        out.line(visible(name))
    else:
        said = {key: value for key, value in item.items() if value not in (None, "", (), [], {})}
        out.write(yaml_text(said))
