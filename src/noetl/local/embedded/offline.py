"""The database of a stack that does not run, opened for a moment."""

from __future__ import annotations

from contextlib import asynccontextmanager
from typing import TYPE_CHECKING

from noetl.local.embedded.up import AlreadyUp, repair
from noetl.local.postgres import Postgres

if TYPE_CHECKING:
    from collections.abc import AsyncIterator

    from noetl.local.embedded.home import Home


def has_database(home: Home) -> bool:
    """Whether a stack has been here."""
    folder = home.folder("pg")
    return folder.is_dir() and any(folder.iterdir())


@asynccontextmanager
async def opened(home: Home) -> AsyncIterator[str]:
    """Start the database of a folder, made if it is not there; its address, until it is stopped."""
    home.make()
    with home.locked() as is_ours:
        if not is_ours:
            raise AlreadyUp(f"A stack runs in {home.path}.", hint="stop it with `noetl down`")
        repair(home)
        postgres = Postgres(home.folder("pg") / "data")
        await postgres.start()
        try:
            yield postgres.url
        finally:
            await postgres.stop()
