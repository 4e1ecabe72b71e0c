"""A result of 500 MB passes through a run, and no process of the stack grows with it."""

from __future__ import annotations

import asyncio
import hashlib
import threading
from contextlib import contextmanager, suppress
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from typing import TYPE_CHECKING

import asyncpg
import pytest

from noetl.api.catalog import Register
from noetl.api.executions import Execute
from noetl.blobs.base import BlobGone, InvalidKey
from noetl.worker.blobs import ServerBlobs

if TYPE_CHECKING:
    from collections.abc import AsyncIterator, Iterator

    from noetl.api.client import Client
    from tests.servers.stack import FullStack

MIB = 1 << 20
SIZE = 500_000_000
GROWTH = 64 * MIB
ENDED = {"COMPLETED", "FAILED"}
BLOCK = bytes(range(256)) * (MIB // 256)
PLAYBOOK = """
apiVersion: noetl.io/v2
kind: Playbook
metadata: {name: large, path: tests/large}
workflow:
  - step: load
    spec: {pool: one}
    tool: {kind: http, url: "{{ workload.url }}", response_type: blob, timeout: 120}
    next: {arcs: [{step: copy}]}
  - step: copy
    spec: {pool: two}
    tool:
      kind: artifact
      action: put
      timeout: 120
      input: {uri: "file:///{{ workload.file }}", result_ref: "{{ load.body.ref }}"}
    next: {arcs: [{step: part}]}
  - step: part
    spec: {pool: two}
    tool: {kind: result_fetch, ref: "{{ load.body.ref }}", range: {offset: 400000000, length: 16}}
"""

CODE = """
apiVersion: noetl.io/v2
kind: Playbook
metadata: {name: code, path: tests/large_code}
workflow:
  - step: write
    spec: {pool: one}
    tool:
      kind: python
      timeout: 120
      input: {size: "{{ workload.size }}"}
      code: |
        block = bytes(range(256)) * 4096
        with open("large", "wb") as file:
            for start in range(0, size, len(block)):
                file.write(block[: size - start])
        result = blob("large", content_type="application/x-tar")
    next: {arcs: [{step: read}]}
  - step: read
    spec: {pool: two}
    tool:
      kind: python
      timeout: 120
      input: {given: "{{ write }}"}
      code: |
        import hashlib
        with open(open_blob(given), "rb") as file:
            result = {"sha256": hashlib.file_digest(file, "sha256").hexdigest(), **given}
"""


class Endless(BaseHTTPRequestHandler):
    """Serves as many bytes as the path says, a block at a time."""

    def do_GET(self) -> None:
        size = int(self.path.strip("/"))
        self.send_response(200)
        self.send_header("content-type", "application/x-tar")
        self.send_header("content-length", str(size))
        self.end_headers()
        while size > 0:
            self.wfile.write(BLOCK[: min(size, MIB)])
            size -= MIB

    def log_message(self, *_: object) -> None:
        """Say nothing."""


@contextmanager
def serving() -> Iterator[str]:
    server = ThreadingHTTPServer(("127.0.0.1", 0), Endless)
    thread = threading.Thread(target=server.serve_forever)
    thread.start()
    try:
        yield f"http://127.0.0.1:{server.server_port}"
    finally:
        server.shutdown()
        thread.join()
        server.server_close()


class Peaks:
    """How far processes grow above what they had when the watch began; those that end do not."""

    def __init__(self, processes: dict[str, int]) -> None:
        self._processes = processes
        for pid in processes.values():
            with suppress(FileNotFoundError):
                Path(f"/proc/{pid}/clear_refs").write_text("5")  # the peak is what it is now
        self._before = self._told("VmRSS")

    def grown(self) -> dict[str, int]:
        peaks = self._told("VmHWM")
        return {
            name: peaks[name] - before for name, before in self._before.items() if name in peaks
        }

    def _told(self, field: str) -> dict[str, int]:
        found: dict[str, int] = {}
        for name, pid in self._processes.items():
            with suppress(FileNotFoundError):
                lines = Path(f"/proc/{pid}/status").read_text().splitlines()
                sizes = [int(line.split()[1]) * 1024 for line in lines if line.startswith(field)]
                if sizes:  # one that is about to end has none
                    found[name] = sizes[0]
        return found


@pytest.mark.timeout(240)
def test_500_mb_pass_through_a_run_and_no_process_grows_by_64_mib(full_stack: FullStack) -> None:
    with serving() as url:
        asyncio.run(_pass_through(full_stack, f"{url}/{SIZE}"))


@pytest.mark.timeout(240)
def test_code_writes_and_reads_500_mb_and_no_process_but_its_own_grows(
    full_stack: FullStack,
) -> None:
    asyncio.run(_through_code(full_stack))


async def _through_code(stack: FullStack) -> None:
    async with stack.client() as client:
        run, _ = await _watched(stack, client, CODE, {"size": SIZE})
        told = await client.step_result(run, "read")
        full, rest = divmod(SIZE, MIB)
        digest = hashlib.sha256(BLOCK * full + BLOCK[:rest]).hexdigest()
        assert (told["bytes"], told["sha256"]) == (SIZE, digest)
        assert told["content_type"] == "application/x-tar"
        await client.delete_results(run)


async def _watched(
    stack: FullStack, client: Client, text: str, payload: dict[str, object]
) -> tuple[str, list[asyncpg.Record]]:
    """Run a playbook that no process of the stack may grow with; the rows of its values."""
    for pool in ("one", "two"):
        stack.serve(pool, slots=2)
    entry = await client.register(Register(content=text))
    database = await asyncpg.connect(stack.database_url)
    try:
        backends = await database.fetch(
            "select pid from pg_stat_activity where datname = current_database()"
            " and backend_type = 'client backend'"
        )
        named = {f"postgres {row['pid']}": row["pid"] for row in backends}
        peaks = Peaks(stack.processes | named)
        run = (await client.execute(Execute(path=entry.path, payload=payload))).execution_id
        async with asyncio.timeout(200):
            while (found := await client.execution(run)).status not in ENDED:  # noqa: ASYNC110 - another process ends it
                await asyncio.sleep(0.2)
        grown = peaks.grown()
        rows = await database.fetch(
            "select object_key, bytes, length(body) as inside from noetl.result"
            " where execution_id = $1",
            int(run),
        )
    finally:
        await database.close()
    assert found.status == "COMPLETED", found.error
    assert stack.processes.keys() <= grown.keys()
    print({name: f"{size / MIB:.1f} MiB" for name, size in grown.items()})  # noqa: T201 - figures
    assert {name: size // MIB for name, size in grown.items() if size > GROWTH} == {}
    return run, rows


async def _pass_through(stack: FullStack, url: str) -> None:
    file = stack.data / "copy.tar"
    async with stack.client() as client:
        payload = {"url": url, "file": str(file).lstrip("/")}
        run, rows = await _watched(stack, client, PLAYBOOK, payload)
        part = await client.step_result(run, "part")
    (large,) = [row for row in rows if row["bytes"] == SIZE]
    assert (large["inside"], large["object_key"].split("/")[3]) == (None, run)
    start = 400_000_000 % 256
    text = bytes((start + n) % 256 for n in range(16))
    assert (part["data"], part["length"], part["size_bytes"]) == (text.decode("latin-1"), 16, SIZE)
    whole = hashlib.sha256()
    with file.open("rb") as copy:
        while block := copy.read(MIB):
            whole.update(block)
    full, rest = divmod(SIZE, MIB)
    wanted = hashlib.sha256(BLOCK * full + BLOCK[:rest])
    assert whole.hexdigest() == wanted.hexdigest()
    file.unlink()
    await _deleted(stack, run, large["object_key"])


async def _deleted(stack: FullStack, run: str, object_key: str) -> None:
    """The object goes with the values of its run."""
    place = stack.objects / f"{object_key}+"
    assert place.stat().st_size > SIZE
    async with stack.client() as client:
        await client.delete_results(run)
    assert not place.exists()


def test_what_a_worker_s_tools_keep_lies_at_the_server(full_stack: FullStack) -> None:
    asyncio.run(_kept_there(full_stack))


async def _kept_there(stack: FullStack) -> None:
    stack.serve("one", slots=2)
    async with stack.client() as client:
        entry = await client.register(Register(content=PLAYBOOK))
        body = Execute(path=entry.path, payload={"url": "http://127.0.0.1:1", "file": "x"})
        run = (await client.execute(body)).execution_id
        blobs = ServerBlobs(client)
        large = bytes(range(256)) * (3 * MIB // 256)
        wanted = {"a%2Fb": b"", "b": b'{"n": 1}', "c": large}
        keys = {name: f"execution/{run}/result/step%20s/{name}" for name in wanted}
        for name, data in wanted.items():
            if name == "c":
                stat = await blobs.put_stream(keys[name], _two(data), media_type="x/y")
                assert (stat.size, stat.sha256) == (len(data), _sha(data))
            else:
                await blobs.put(keys[name], data, media_type="x/y")
        for name, data in wanted.items():
            found = await blobs.head(keys[name])
            assert found is not None
            assert (found.size, found.sha256) == (len(data), _sha(data))
            assert await blobs.get(keys[name]) == data
            assert b"".join([part async for part in blobs.get_stream(keys[name])]) == data
        part = [piece async for piece in blobs.get_stream(keys["c"], 5, MIB + 4)]
        assert b"".join(part) == large[5 : MIB + 5]
        assert [piece async for piece in blobs.get_stream(keys["c"], len(large), None)] == []
        assert await blobs.listed(f"execution/{run}/result/step") == sorted(keys.values())
        with pytest.raises(InvalidKey):
            await blobs.get("elsewhere/x")

        async def failing() -> AsyncIterator[bytes]:
            yield b"half"
            message = "source"
            raise OSError(message)

        with pytest.raises(OSError, match="source"):
            await blobs.put_stream(keys["b"] + "x", failing())
        assert await blobs.head(keys["b"] + "x") is None
        for key in keys.values():
            await blobs.delete(key)
            await blobs.delete(key)
            assert await blobs.head(key) is None
        with pytest.raises(BlobGone):
            await blobs.get(keys["b"])


async def _two(data: bytes) -> AsyncIterator[bytes]:
    yield data[:MIB]
    yield data[MIB:]


def _sha(data: bytes) -> str:
    return hashlib.sha256(data).hexdigest()
