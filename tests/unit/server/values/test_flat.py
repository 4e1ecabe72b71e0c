"""Large bodies pass through in pieces: memory does not grow with them."""

from __future__ import annotations

import tracemalloc
from typing import Any

import msgspec

from noetl.api.http import _scope
from noetl.api.results import MANIFEST, PutResult
from noetl.blobs.file import FileBlobs
from tests.unit.server.rig import ONE_STEP, rig, virtually

MIB = 1 << 20
PIECE = b",".join([b"[1,2,3]"] * 8192)


async def sent(r, method: str, path: str, pieces: int, media_type: str) -> tuple[int, int, bytes]:
    """Status, size and beginning of an answer that nobody keeps."""
    left, size, head, status = pieces, 0, b"", 0

    async def receive() -> dict[str, Any]:
        nonlocal left
        left -= 1
        return {
            "type": "http.request",
            "body": PIECE if left >= 0 else b"",
            "more_body": left > 0,
        }

    async def send(message: Any) -> None:
        nonlocal size, head, status
        if message["type"] == "http.response.start":
            status = message["status"]
        else:
            size += len(message.get("body", b""))
            head = (head + message.get("body", b""))[:1000]

    scope = _scope(method, path, b"", {"content-type": media_type})
    await r.server.asgi(scope, receive, send)
    return status, size, head


def test_a_body_of_40_mebibytes_costs_a_few(tmp_path) -> None:
    @virtually
    async def check() -> None:
        async with rig(blobs=FileBlobs(tmp_path)) as r:
            run = await r.start(ONE_STEP)
            pieces = 40 * MIB // len(PIECE)
            await r.client.put_result(run, "warm", b"1", "text/plain")
            tracemalloc.start()
            try:
                put = await sent(r, "PUT", f"/api/result/{run}?name=x", pieces, "text/plain")
                stored = msgspec.json.decode(put[2] if put[2].endswith(b"}") else b"{}")
                ref = stored.get("ref") or (await r.client.results(run)).items[1].ref
                got = await sent(r, "GET", f"/api/result/resolve?ref={ref}", 0, "text/plain")
                _, peak = tracemalloc.get_traced_memory()
            finally:
                tracemalloc.stop()
            assert (put[0], got[:2]) == (201, (200, pieces * len(PIECE)))
            assert peak < 12 * MIB
            parts = [ref] * 4
            for strategy in ("concat", "append"):
                data = {"strategy": strategy, "parts": parts}
                wish = PutResult(name=strategy, data=data, content_type=MANIFEST)
                made = await r.client.keep_result(run, wish)
                tracemalloc.start()
                try:
                    path = f"/api/result/resolve?ref={made.ref}"
                    status, size, _ = await sent(r, "GET", path, 0, "text/plain")
                    _, peak = tracemalloc.get_traced_memory()
                finally:
                    tracemalloc.stop()
                assert status == 200
                if strategy == "concat":
                    assert size == 4 * pieces * len(PIECE)
                assert peak < 8 * MIB

    check()
