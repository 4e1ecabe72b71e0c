import asyncio
import json
import subprocess
import sys
from dataclasses import replace
from datetime import UTC, datetime

import pytest

from noetl.local.embedded import record
from noetl.local.embedded.background import StartFailed
from noetl.local.embedded.down import down
from noetl.local.embedded.home import Home
from noetl.local.embedded.identity import identity
from noetl.local.embedded.report import report
from noetl.local.embedded.supervisor import me
from noetl.local.embedded.up import AlreadyUp, up
from noetl.local.embedded.wish import Wish
from noetl.settings import StackSettings
from tests.unit.local.embedded.test_identity import part, stack

NOW = datetime(2026, 1, 1, 0, 1, tzinfo=UTC)
SLEEPER = [sys.executable, "-S", "-c", "import signal; print(1, flush=True); signal.pause()"]


@pytest.fixture
def home(tmp_path):
    made = Home(tmp_path / "home")
    made.make()
    return made


@pytest.fixture
def child():
    with subprocess.Popen(SLEEPER, stdout=subprocess.PIPE) as process:
        process.stdout.readline()
        yield process
        process.kill()


async def answering(reader, writer):
    asked = await reader.readuntil(b"\r\n\r\n")
    pools = {"pools": [{"pool": "shared", "pending": 7}]}
    body = json.dumps(pools).encode() if b"/api/worker/pools" in asked else b""
    status = b"503 No" if b"/sick" in asked or (body and b"Bearer t" not in asked) else b"200 OK"
    writer.write(b"HTTP/1.1 " + status + b"\r\n\r\n" + body)
    writer.close()
    await writer.wait_closed()


async def test_every_part_is_told_with_its_health_age_and_queue(home, child):
    listening = await asyncio.start_server(answering, "127.0.0.1", 0)
    url = f"http://127.0.0.1:{listening.sockets[0].getsockname()[1]}"
    pid, started = me()
    alive = replace(
        part(child, "worker-shared", 3), started_at="2026-01-01T00:00:00.000000Z", health=url
    )
    sick = replace(alive, name="worker-sick", health=f"{url}/sick")
    dead = replace(alive, name="server", stage=2, pid=2**22 + 1, health="", port=5)
    plain = replace(alive, name="postgres", stage=0, health="")
    running = replace(
        stack(plain, dead, alive, sick, pid=pid, started=started),
        url=url,
        token_file=str(home.keep("admin.token", "t")),
    )
    record.write(home.record, running)

    async with listening:
        found = await report(home, NOW)

    assert [(one.name, one.health, one.queue) for one in found.parts] == [
        ("postgres", "ok", None),
        ("server", "down", None),
        ("worker-shared", "ok", 7),
        ("worker-sick", "not ready", None),
    ]
    assert found.parts[1].pid is None
    assert found.parts[2].uptime_s == 60
    assert not found.is_healthy
    assert replace(found, parts=(found.parts[0], found.parts[2])).is_healthy


async def test_no_stack_is_no_report(home):
    assert await report(home, NOW) is None
    record.write(home.record, stack(pid=2**22 + 1))
    assert await report(home, NOW) is None


def test_a_stack_without_its_supervisor_goes_down(home, child):
    record.write(home.record, stack(part(child, "server"), pid=2**22 + 1))

    assert down(home) == ["server"]
    assert identity(child.pid) is None
    assert down(home) == []
    assert not home.record.exists()


async def test_a_folder_that_somebody_holds_is_refused(home):
    wish = Wish(settings=StackSettings(home=home.path))

    with home.locked(), pytest.raises(AlreadyUp):
        await up(wish, print, print)


def test_a_start_that_failed_is_told_in_its_own_words():
    told = {"message": "m", "hint": "h", "code": "port_in_use", "lines": ["a"]}
    failed = StartFailed(told)

    assert (failed.message, failed.hint, failed.code, failed.lines) == (
        "m", "h", "port_in_use", ("a",),
    )  # fmt: skip
