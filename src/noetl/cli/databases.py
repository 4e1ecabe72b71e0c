"""Which database a command of `noetl db` opens, and how it ends when it cannot."""

from __future__ import annotations

from contextlib import asynccontextmanager
from typing import TYPE_CHECKING, Annotated, TypeVar

import typer

from noetl.cli.failures import CommandFailed, failure_of

if TYPE_CHECKING:
    from collections.abc import AsyncIterator, Awaitable, Callable
    from pathlib import Path

    from noetl.cli.output import Output

T = TypeVar("T")

DatabaseUrl = Annotated[
    str | None, typer.Option("--database-url", metavar="URL", help="Another than the stack's.")
]


def with_database(
    out: Output,
    given: str | None,
    work: Callable[[str], Awaitable[T]],
    *,
    home: Path | None = None,
    may_make: bool = False,
) -> T:
    """Do something with the database that is meant; its failures are those of the command."""
    import asyncio

    from noetl.errors import NoetlError

    async def main() -> T:
        async with _opened(out, given, home, may_make=may_make) as url:
            return await work(url)

    try:
        return asyncio.run(main())
    except NoetlError as fault:
        raise failure_of(fault) from fault


@asynccontextmanager
async def _opened(
    out: Output, given: str | None, home: Path | None, *, may_make: bool
) -> AsyncIterator[str]:
    """The one that an option or a setting names, else that of the stack, which may be stopped."""
    from noetl.cli.stacks import database_url_of, running_stack
    from noetl.local.embedded.home import Home
    from noetl.local.embedded.offline import has_database, opened

    folder = Home(home or out.settings.home)
    is_elsewhere = home is not None and running_stack(home) is None
    url = None if is_elsewhere and given is None else database_url_of(out, given, home)
    if url:
        yield url
    elif may_make or has_database(folder):
        async with opened(folder) as address:
            yield address
    else:
        raise CommandFailed(
            "stack_not_running",
            "no database was named, and no embedded stack runs here",
            hint="give `--database-url`, or start one with `noetl up`",
        )
