"""The options of every long list, and how its pages become one."""

from typing import TYPE_CHECKING, Annotated, Any

import typer

if TYPE_CHECKING:
    from collections.abc import Awaitable, Callable, Sequence

    from noetl.api.client import Client
    from noetl.cli.listing import Look
    from noetl.cli.output import Output

Limit = Annotated[int, typer.Option("--limit", metavar="N", min=1, max=1000, help="How many (50).")]
Everything = Annotated[bool, typer.Option("--all", help="All of them.")]


def show_pages(
    out: "Output",
    fetch: "Callable[[Client, dict[str, Any]], Awaitable[Any]]",
    look: "Look",
    limit: int | None,
    *,
    part: str = "items",
) -> None:
    """Show so many items of a list of the server; all of them without a limit.

    `fetch` asks for one page; what it is given says how large it is and where it begins.
    """
    from noetl.cli.listing import show_list
    from noetl.cli.remote import ask

    items, cursor = ask(out, lambda client: all_pages(client, fetch, limit, part=part))
    show_list(out, items, look, cursor)


async def all_pages(
    client: "Client",
    fetch: "Callable[[Client, dict[str, Any]], Awaitable[Any]]",
    limit: int | None,
    *,
    part: str = "items",
    most: int | None = None,
) -> tuple[list[dict[str, Any]], str | None]:
    """The items of a list as plain maps, and where the rest of it begins."""
    from noetl.api.plain import plain
    from noetl.cli.listing import MOST_PER_PAGE, pages

    async def page(size: int, cursor: str | None) -> "tuple[Sequence[Any], str | None]":
        more = {"limit": size, "cursor": cursor} if cursor else {"limit": size}
        found = await fetch(client, more)
        return [plain(item) for item in getattr(found, part)], found.next_cursor

    return await pages(page, limit, most or MOST_PER_PAGE)


def given(**values: object) -> dict[str, Any]:
    """The filters of a list that were named."""
    return {name: value for name, value in values.items() if value not in (None, "", ())}
