"""Bodies of requests in parts, large answers, pages by links, and many requests at once."""

from __future__ import annotations

import asyncio
import hashlib
import json
import subprocess
import sys
from email import message_from_bytes
from email.policy import HTTP
from pathlib import Path

import pytest
import zstandard

from noetl.blobs.memory import MemoryBlobs
from noetl.dsl.tasks import Http
from noetl.tools.base import ToolContext, read_config
from noetl.tools.http import answer
from noetl.tools.http.egress import Egress, Guard
from noetl.tools.http.identity import Identities
from noetl.tools.http.request import request_of
from noetl.tools.http.tool import HttpTool
from noetl.tools.stored import put_bytes
from tests.servers.http_stage import FakeClock, fixed, reply, routes, stage


def parts_of(seen):
    """The parts of a body: name, file name, type, content."""
    head = f"Content-Type: {seen.headers['content-type']}\r\n\r\n".encode()
    return [
        (part.get_param("name", header="content-disposition"), part.get_filename(),
         part.get_content_type() if part["content-type"] else None, part.get_payload(decode=True))
        for part in message_from_bytes(head + seen.body, policy=HTTP).iter_parts()
    ]  # fmt: skip


async def stored(data, media_type="text/csv"):
    blobs = MemoryBlobs()
    ctx = ToolContext(execution_id="7", step="s", command_id="c", idempotency_key="k", blobs=blobs)
    return blobs, (await put_bytes(data, media_type, ctx))["ref"]


async def test_several_files_from_everywhere(tmp_path):
    (tmp_path / "notes.txt").write_text("on disk")
    blobs, ref = await stored(b"a,b\n" * 100_000)
    files = {
        "report": {"ref": ref, "filename": "report.csv"},
        "notes": {"path": "notes.txt"},
        "meta": {"content": {"a": 1}},
        "photos": [
            {"content_b64": "AP8=", "filename": "1.png"},
            {"content_b64": "AQ==", "filename": 'a"b.png', "content_type": "image/x-own"},
        ],
        "note": {"value": "plain"},
    }
    async with stage(fixed({})) as at:
        at.tool = HttpTool(Egress(mode="open"), FakeClock(), roots=(tmp_path,))
        outcome = await at.http(method="POST", files=files, blobs=blobs)
        await at.tool.close()
    assert outcome.status == "ok", outcome.error
    seen = at.seen[0]
    assert int(seen.headers["content-length"]) == len(seen.body)
    assert "transfer-encoding" not in seen.headers
    assert parts_of(seen) == [
        ("report", "report.csv", "text/csv", b"a,b\n" * 100_000),
        ("notes", "notes.txt", "text/plain", b"on disk"),
        ("meta", "meta", "application/json", b'{"a":1}'),
        ("photos", "1.png", "image/png", b"\x00\xff"),
        ("photos", "a%22b.png", "image/x-own", b"\x01"),
        ("note", None, None, b"plain"),
    ]


async def test_a_stored_part_is_sent_again_after_a_redirect():
    blobs, ref = await stored(b"x" * 3_000_000)
    async with stage(routes({"/a": (307, [("Location", "/b")], b"")})) as at:
        await at.http("/a", method="POST", files={"f": {"ref": ref}}, blobs=blobs)
    assert [(seen.path, parts_of(seen)[0][3] == b"x" * 3_000_000) for seen in at.seen] == [
        ("/a", True), ("/b", True),
    ]  # fmt: skip


async def test_a_stored_part_passes_in_small_pieces():
    blobs, ref = await stored(b"y" * 20_000_000)
    largest = []
    whole = blobs.get_stream

    async def counted(*about):
        async for chunk in whole(*about):
            largest.append(len(chunk))
            yield chunk

    blobs.get_stream = counted
    async with stage(fixed({})) as at:
        await at.http(method="PUT", files={"f": {"ref": ref}}, blobs=blobs, within=30)
    assert max(largest) <= 1 << 20
    assert len(at.seen[0].body) > 20_000_000


@pytest.mark.parametrize(
    ("part", "kind", "code"),
    [
        ({"path": "../outside.txt"}, "storage_access", "outside_data_roots"),
        ({"path": "/etc/passwd"}, "storage_access", "outside_data_roots"),
        ({"path": "missing.txt"}, "config", "invalid_config"),
        ({"ref": "noetl://execution/7/result/s/0123"}, "not_found", "result_gone"),
        ({"ref": "http://elsewhere/"}, "config", "invalid_config"),
        ({"content": "x", "content_type": "text/plain\r\nX-A: 1"}, "config", "invalid_config"),
    ],
)
async def test_parts_that_cannot_be_sent(tmp_path, part, kind, code):
    async with stage(fixed({})) as at:
        at.tool = HttpTool(Egress(mode="open"), FakeClock(), roots=(tmp_path,))
        error = (await at.http(method="POST", files={"f": part}, blobs=MemoryBlobs())).error
        await at.tool.close()
    assert (error["kind"], error["code"]) == (kind, code)
    assert at.seen == []


async def test_names_of_parts_begin_no_header():
    files = [{"name": 'a"\r\nX-A: 1', "filename": "b\r\nX-B: 2", "content": "x"}]
    async with stage(fixed({})) as at:
        await at.http(method="POST", files=files)
    assert b"\r\nX-A" not in at.seen[0].body
    assert b"\r\nX-B" not in at.seen[0].body


# ---------------------------------------------------------------------------- answers


async def test_zstd_is_asked_for_and_unpacked():
    packed = zstandard.ZstdCompressor().compress(b'{"a": 1}')
    headers = [("Content-Encoding", "zstd"), ("Content-Type", "application/json")]
    async with stage(lambda _: (200, headers, packed)) as at:
        outcome = await at.http()
    assert outcome.data["body"] == {"a": 1}
    assert "zstd" in at.seen[0].headers["accept-encoding"]


async def test_a_blob_holds_what_was_unpacked():
    packed = zstandard.ZstdCompressor().compress(b"z" * 5_000_000)
    blobs = MemoryBlobs()
    async with stage(lambda _: (200, [("Content-Encoding", "zstd")], packed)) as at:
        body = (await at.http(response_type="blob", blobs=blobs)).data["body"]
    assert (body["bytes"], body["sha256"]) == (
        5_000_000, hashlib.sha256(b"z" * 5_000_000).hexdigest(),
    )  # fmt: skip


async def test_a_bomb_fills_no_disk(monkeypatch):
    monkeypatch.setattr(answer, "BLOB_BYTES", 3_000_000)
    packed = zstandard.ZstdCompressor().compress(b"\0" * (64 << 20))
    async with stage(lambda _: (200, [("Content-Encoding", "zstd")], packed)) as at:
        error = (await at.http(response_type="blob", blobs=MemoryBlobs())).error
    assert (error["kind"], error["code"]) == ("limit", "output_limit")


async def test_a_body_that_was_cut_is_no_answer():
    def cut(_seen):
        return 200, [("Content-Encoding", "gzip")], b"\x1f\x8b\x08\x00"

    async with stage(cut) as at:
        error = (await at.http()).error
    assert (error["kind"], error["code"]) == ("parse", "invalid_encoding")


@pytest.mark.parametrize(
    ("given", "limits"),
    [
        (None, (10.0, 60.0)),
        (5, (10.0, 60.0)),
        (300, (10.0, 300.0)),
        ({"connect": 2, "read": 3}, (2.0, 3.0)),
    ],
)
async def test_a_limit_of_the_whole_is_one_of_its_parts(given, limits):
    limit = {} if given is None else {"timeout": given}
    config = read_config(Http, {"kind": "http", "url": "http://a.example/", **limit})
    ctx = ToolContext(execution_id="7", step="s", command_id="c", idempotency_key="k")
    request = await request_of(config, ctx, Identities(Guard(), FakeClock()).google)
    assert (request.timeout["connect"], request.timeout["read"]) == limits


# ---------------------------------------------------------------------------- pages by links


async def test_the_header_link_leads_on():
    def answer_of(seen):
        number = int(dict(seen.query).get("page", 1))
        links = '</p?page=1>; rel="first prev"'
        if number < 3:
            links += f', <{seen.path}?page={number + 1}&q=a,b>; title="a, b"; rel=next'
        return reply([number], 200, ("Link", links))

    async with stage(answer_of) as at:
        outcome = await at.http("/p", paginate={"next": "{{ page.links.next }}"})
    assert (outcome.data["items"], outcome.data["pages"]) == ([1, 2, 3], 3)
    assert at.seen[1].target == "/p?page=2&q=a,b"


# ---------------------------------------------------------------------------- many at once


async def test_a_hundred_slow_requests_keep_nobody_waiting():
    def answer_of(seen):
        return "hang" if seen.path == "/slow" else reply({"ok": 1})

    async with stage(answer_of) as at:
        slow = [asyncio.ensure_future(at.http("/slow", within=60)) for _ in range(100)]
        async with asyncio.timeout(30):
            while len(at.seen) < 100:  # noqa: ASYNC110 - the server counts
                await asyncio.sleep(0.01)
        outcome = await at.http("/fast", timeout={"connect": 5, "read": 5})
        for task in slow:
            task.cancel()
        await asyncio.gather(*slow, return_exceptions=True)
    assert outcome.data["body"] == {"ok": 1}


# ---------------------------------------------------------------------------- memory

LOADING = """
import asyncio, json, sys
from pathlib import Path
from noetl.blobs.file import FileBlobs
from noetl.clock import SystemClock
from noetl.tools.base import ToolContext, run_tool
from noetl.tools.http.egress import Egress
from noetl.tools.http.tool import HttpTool

def status(name):
    lines = Path("/proc/self/status").read_text().splitlines()
    return next(int(line.split()[1]) for line in lines if line.startswith(name)) * 1024

async def load(tool, blobs, url):
    loop = asyncio.get_running_loop()
    ctx = ToolContext(execution_id="7", step="s", command_id="c", idempotency_key="k",
                      blobs=blobs, deadline=loop.time() + 100)
    return await run_tool(tool, {"kind": "http", "url": url, "response_type": "blob"}, ctx)

async def main(folder, url):
    tool, blobs = HttpTool(Egress(mode="open"), SystemClock()), FileBlobs(Path(folder))
    await load(tool, blobs, url + "/1")
    before = status("VmRSS")
    outcome = await load(tool, blobs, url + "/200")
    grown = status("VmHWM") - before
    await tool.close()
    print(json.dumps([grown, outcome.data["body"]]))

asyncio.run(main(*sys.argv[1:]))
"""


@pytest.mark.skipif(not Path("/proc/self/status").exists(), reason="needs /proc to measure")
async def test_a_body_of_200_mib_grows_the_process_by_less_than_32(tmp_path):
    block = bytes(range(256)) * 4096

    def blocks(seen):
        return 200, [("Content-Type", "application/x-tar")], [block] * int(seen.path[1:])

    async with stage(blocks) as at:
        child = await asyncio.create_subprocess_exec(
            sys.executable, "-c", LOADING, str(tmp_path), at.base, stdout=subprocess.PIPE
        )
        async with asyncio.timeout(100):
            told, _ = await child.communicate()
    grown, body = json.loads(told)
    digest = hashlib.sha256()
    for _ in range(200):
        digest.update(block)
    assert (body["bytes"], body["sha256"]) == (200 << 20, digest.hexdigest())
    assert grown < 32 << 20
