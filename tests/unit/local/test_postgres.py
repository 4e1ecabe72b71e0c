"""The embedded server: from nothing to connections, and again on the same data."""

import os
import signal
import stat

import asyncpg
import pytest

from noetl.local import lodging
from noetl.local.lodging import EmbeddedUnavailable, lodge
from noetl.local.postgres import Postgres, free_port
from tests.servers.postgres import FAST

needs_root = pytest.mark.skipif(os.geteuid() != 0, reason="only root has a user to give away to")


@pytest.fixture
def home(postgres_home):
    return postgres_home


async def asked(url, sql):
    connection = await asyncpg.connect(url)
    try:
        return await connection.fetchval(sql)
    finally:
        await connection.close()


async def test_a_server_keeps_its_data_and_its_password(home):
    first = Postgres(home / "pg", settings=FAST)
    assert first.pid is None
    with pytest.raises(EmbeddedUnavailable):
        _ = first.url
    await first.start()
    assert await asked(first.url, "show server_encoding") == "UTF8"
    await asked(first.url, "create table kept (n int)")
    await asked(first.url, "select pg_advisory_lock(1)")
    url = first.url
    await first.stop()
    await first.stop()
    assert first.pid is None

    told = []
    second = Postgres(home / "pg", port=free_port(), settings=FAST, on_line=told.append)
    await second.start()
    assert second.url != url
    assert "@127.0.0.1:" in second.url
    assert await asked(second.url, "select count(*) from kept") == 0
    with pytest.raises(asyncpg.InvalidPasswordError):
        await asked(second.url.replace("noetl:", "noetl:x"), "select 1")
    assert any("ready to accept" in line for line in told)
    await second.stop()


async def test_a_server_that_outlived_its_supervisor_is_replaced(home):
    first = Postgres(home / "pg", settings=FAST)
    await first.start()
    orphan = first.pid
    second = Postgres(home / "pg", settings=FAST)
    await second.start()
    assert await first.wait() == 0
    assert second.pid != orphan
    assert await asked(second.url, "select 1") == 1
    await first.stop()

    os.kill(second.pid, signal.SIGKILL)
    assert await second.wait() == -signal.SIGKILL
    await second.stop()
    third = Postgres(home / "pg", settings=FAST)
    await third.start()
    assert await asked(third.url, "select 1") == 1
    await third.stop()


async def test_a_server_that_cannot_start_says_why(home):
    server = Postgres(home / "pg", settings={"shared_buffers": "lots"})
    with pytest.raises(EmbeddedUnavailable, match="shared_buffers"):
        await server.start()
    assert server.pid is None


async def test_nothing_is_readable_for_others_and_no_folder_of_others_is_changed(home):
    await Postgres(home / "pg", settings=FAST).initialise()
    modes = {path.name: stat.S_IMODE(path.stat().st_mode) for path in home.iterdir()}
    assert modes == {"pg": 0o700, "run": 0o700, ".pg.password": 0o600}
    assert stat.S_IMODE(home.stat().st_mode) == 0o711
    assert list((home / "run").iterdir()) == []


@needs_root
async def test_what_the_servers_user_cannot_reach_lies_elsewhere(tmp_path, home, monkeypatch):
    closed = tmp_path / "closed"
    closed.mkdir(mode=0o700)
    monkeypatch.setattr(lodging, "SHARED", home / "shared")
    monkeypatch.setattr(lodging, "_reaches", lambda _, path: path.is_relative_to(home))
    place = await lodge(closed / "pg")
    assert place.data_dir.is_relative_to(home / "shared")
    assert place.binaries.is_relative_to(home / "shared" / "binaries")
    assert stat.S_IMODE(closed.stat().st_mode) == 0o700
    server = Postgres(closed / "pg", settings=FAST)
    await server.start()
    await asked(server.url, "create table kept ()")
    await server.stop()
    assert [path.name for path in closed.iterdir()] == [".pg.password"]
    await server.start()
    assert await asked(server.url, "select to_regclass('kept') is not null")
    await server.stop()

    (closed / ".pg.password").unlink()  # as when the home was deleted, and made again
    again = Postgres(closed / "pg", settings=FAST)
    await again.start()
    assert not await asked(again.url, "select to_regclass('kept') is not null")
    await again.stop()
    assert [path.name.partition("-")[0] for path in place.data_dir.parent.glob("pg.*")] == [
        "pg.left",
    ]  # fmt: skip


async def test_a_long_path_has_its_socket_elsewhere(home):
    deep = home / ("x" * 60) / ("y" * 60)
    deep.mkdir(parents=True)
    place = await lodge(deep / "pg")
    try:
        assert len(os.fsencode(place.socket_dir / ".s.PGSQL.5432")) <= 107
        assert stat.S_IMODE(place.socket_dir.stat().st_mode) == 0o700
        place.socket_dir.rmdir()
        place.socket_dir.symlink_to(home)
        with pytest.raises(EmbeddedUnavailable, match="not a folder of ours"):
            await lodge(deep / "pg")
    finally:
        place.socket_dir.unlink()


async def test_without_the_wheel_there_is_no_server(home, monkeypatch):
    monkeypatch.setattr(lodging, "_WHEEL", "noetl_no_such_wheel")
    with pytest.raises(EmbeddedUnavailable, match="not installed"):
        await lodge(home / "pg")
