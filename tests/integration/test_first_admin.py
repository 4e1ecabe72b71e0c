"""The first account of an installation that nobody has started with `noetl up`."""

import json
import subprocess
import sys

import pytest

from noetl.edge.errors import NotFound
from noetl.server.access.tokens import digest
from noetl.server.admin import Bearer, give_password, welcome
from noetl.server.identity.passwords import Passwords
from noetl.settings import child_environment
from noetl.store.identity import SessionRow
from noetl.store.postgres.accounts import PostgresAccounts
from noetl.store.postgres.database import Database
from noetl.store.postgres.sessions import PostgresSessions
from noetl.store.postgres.tokens import PostgresTokens

FIRST, SECOND = "a long enough secret", "another long secret"
NOW, LATER = "2026-01-01T00:00:00.000000Z", "2099-01-01T00:00:00.000000Z"


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


async def test_a_password_is_given_once_and_another_one_ends_sessions(postgres_url) -> None:
    await welcome(
        postgres_url,
        [Bearer(token="t-1", account="admin", roles=("admin",), name="n", is_person=True)],  # noqa: S106 - of a test
    )
    database = await Database.open(postgres_url, size=2)
    accounts, sessions = PostgresAccounts(database), PostgresSessions(database)

    async def given(password):
        """The account after it was given a password, and how many sessions it has."""
        await give_password(postgres_url, "admin", password)
        row = await accounts.by_subject("default", "admin")
        return row, len(await sessions.listed(row.account_id, NOW))

    try:
        row, _ = await given(FIRST)
        assert (row.kind, row.roles, row.active) == ("user", ("admin",), True)
        assert await Passwords().fits(FIRST, row.password_hash)
        await sessions.put(
            SessionRow(
                session_id="7", account_id=row.account_id, sha256=digest("s"), created_at=NOW,
                expires_at=LATER, idle_until=LATER,
            )
        )  # fmt: skip
        assert await given(FIRST) == (row, 1)
        changed, left = await given(SECOND)
        assert await Passwords().fits(SECOND, changed.password_hash)
        assert not await Passwords().fits(FIRST, changed.password_hash)
        assert left == 0
        with pytest.raises(NotFound, match="there is no account nobody"):
            await give_password(postgres_url, "nobody", FIRST)
    finally:
        await database.close()
