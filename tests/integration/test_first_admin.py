"""The first account of an installation that nobody has started with `noetl up`."""

import json
import subprocess
import sys

from noetl.server.access.tokens import digest
from noetl.settings import child_environment
from noetl.store.postgres.database import Database
from noetl.store.postgres.tokens import PostgresTokens


def admin(url, *words):
    done = subprocess.run(
        [sys.executable, "-m", "noetl.cli.app", "db", "admin", *words, "-o", "json"],
        env=child_environment() | {"NOETL_DATABASE_URL": url}, capture_output=True, check=False,
    )  # fmt: skip
    assert done.returncode == 0, done.stderr
    return json.loads(done.stdout)


async def test_whoever_opens_the_database_makes_the_first_admin(postgres_server) -> None:
    name = postgres_server.make()
    url = postgres_server.url_of(name)
    try:
        first, second = admin(url), admin(url)
        database = await Database.open(url, size=2)
        try:
            rows = [
                await PostgresTokens(database).find(digest(made["token"]))
                for made in (first, second)
            ]
        finally:
            await database.close()
    finally:
        postgres_server.drop(name)
    assert {(row.account, row.roles, row.expires_at is not None) for row in rows} == {
        ("admin", ("admin",), True)
    }
    assert rows[0].account_id == rows[1].account_id
