"""Code that stores and reads blobs, in real children."""

from __future__ import annotations

import asyncio
import hashlib
import os
from typing import TYPE_CHECKING, Any

import pytest

from noetl.blobs.memory import MemoryBlobs
from noetl.tools.base import ToolContext, run_tool
from noetl.tools.interpreter.pool import Interpreters
from noetl.tools.interpreter.sandbox import Sandbox
from noetl.tools.python import PythonTool

if TYPE_CHECKING:
    from collections.abc import AsyncIterator

    from noetl.dsl.views import Outcome

ENVIRON = {"PATH": os.defpath, "LANG": "C.UTF-8"}
MIB = 1 << 20


class Stage:
    """One pool, and the blobs of a run."""

    def __init__(self) -> None:
        self.pool = Interpreters(Sandbox.detect(), ENVIRON, spares=0)
        self.blobs: MemoryBlobs | None = MemoryBlobs()

    async def run(self, code: str, given: dict[str, Any] | None = None, **config: Any) -> Outcome:
        ctx = ToolContext(
            execution_id="7", step="s", command_id="c", idempotency_key="k", input=given or {},
            blobs=self.blobs, deadline=asyncio.get_running_loop().time() + 30,
        )  # fmt: skip
        made = await run_tool(
            PythonTool(self.pool), {"kind": "python", "code": code, **config}, ctx
        )
        assert not hasattr(made, "request")
        return made

    async def ok(self, code: str, given: dict[str, Any] | None = None) -> Any:
        made = await self.run(code, given)
        assert made.error is None, made.error
        return made.data


@pytest.fixture
async def at() -> AsyncIterator[Stage]:
    stage = Stage()
    yield stage
    await stage.pool.close()


SOURCES = {
    "bytes": "result = blob(data)",
    "view": "result = blob(memoryview(data))",
    "path": "open('f', 'wb').write(data); result = blob('f')",
    "pathlib": "import pathlib; p = pathlib.Path('f'); p.write_bytes(data); result = blob(p)",
    "file": "import io; result = blob(io.BytesIO(data))",
}


@pytest.mark.parametrize(
    ("source", "size"), [("bytes", 7), *((name, n) for name in SOURCES for n in (0, 2 * MIB + 5))]
)
async def test_what_code_stores_other_code_reads(at: Stage, source: str, size: int) -> None:
    head = f"data = (bytes(range(256)) * {size // 256 + 1})[:{size}]\n"
    kept = await at.ok(head + SOURCES[source])
    data = (bytes(range(256)) * (size // 256 + 1))[:size]
    digest = hashlib.sha256(data).hexdigest()
    assert (kept["bytes"], kept["sha256"], kept["content_type"]) == (
        size, digest, "application/octet-stream",
    )  # fmt: skip
    assert at.blobs is not None
    assert await at.blobs.get(kept["ref"].removeprefix("noetl://")) == data
    read = "import hashlib; result = hashlib.sha256(open(open_blob(ref), 'rb').read()).hexdigest()"
    for ref in (kept, kept["ref"]):
        assert await at.ok(read, {"ref": ref}) == digest
    named = (
        "import os; p = open_blob(ref, 'here.csv'); result = [os.path.basename(p), os.listdir()]"
    )
    assert await at.ok(named, {"ref": kept}) == ["here.csv", ["here.csv"]]


async def test_blobs_of_threads_do_not_mix(at: Stage) -> None:
    code = """
from concurrent.futures import ThreadPoolExecutor
with ThreadPoolExecutor(4) as pool:
    result = list(pool.map(lambda n: blob(bytes([n]) * 2500000), range(4)))
"""
    for number, kept in enumerate(await at.ok(code)):
        assert kept["sha256"] == hashlib.sha256(bytes([number]) * 2500000).hexdigest()


@pytest.mark.parametrize(
    ("code", "said"),
    [
        ("open_blob('noetl://execution/7/result/s/none')", "is gone"),
        ("open_blob('elsewhere')", "is not a reference"),
        ("blob('no-such-file')", "No such file"),
        ("blob(bytes(3 << 20))", "raise `limits.disk_mb`"),
        ("open_blob(ref)", "raise `limits.disk_mb`"),
    ],
)
async def test_what_cannot_be_done_is_an_exception_of_the_code(
    at: Stage, code: str, said: str
) -> None:
    kept = await at.ok("result = blob(bytes(3 << 20))")
    limits = {"disk_mb": 2}
    made = await at.run(code, {"ref": kept["ref"]}, limits=limits)
    assert made.error is not None
    assert made.error["kind"] == "python"
    assert said in made.error["message"]
    caught = f"try:\n    {code}\nexcept Exception as e:\n    result = str(e)\nkept = blob(b'after')"
    after = await at.run(caught, {"ref": kept["ref"]}, limits=limits)
    assert (after.error, said in after.data) == (None, True)


async def test_a_worker_without_blobs_says_so(at: Stage) -> None:
    at.blobs = None
    made = await at.run("blob(b'x')")
    assert made.error is not None
    assert "no blob store" in made.error["message"]


async def test_inputs_of_the_same_names_come_first(at: Stage) -> None:
    given = {"blob": 1, "open_blob": 2}
    assert await at.ok("result = [blob, open_blob]", given) == [1, 2]


FORGED = """
import glob, json, os, struct, stat, binascii
def send(**frame):
    body = json.dumps(frame).encode()
    for fd in range(3, 64):
        try:
            if stat.S_ISSOCK(os.fstat(fd).st_mode):
                os.write(fd, struct.pack(">I", len(body)) + body)
                return
        except OSError:
            continue
"""


@pytest.mark.parametrize(
    "frames",
    [
        "send(op='part', data=binascii.b2a_base64(bytes(3 << 20), newline=False).decode())",
        "send(op='part', data='not base64!')",
        "for _ in range(40): send(op='next')",
        "send(op='stored', content_type=7)",
    ],
)
async def test_frames_that_code_forges_fail_its_own_command_alone(at: Stage, frames: str) -> None:
    made = await at.run(FORGED + frames + "\nimport time; time.sleep(0.3)\nresult = 1")
    assert made.error is not None or made.data == 1
    assert await at.ok("result = blob(b'x')['bytes']") == 1
