"""Stored values, as routes show them."""

from __future__ import annotations

import asyncio
import hashlib
from urllib.parse import quote

import msgspec
import pytest

from noetl.api.callbacks import Collect
from noetl.api.problems import Refused
from noetl.api.results import MANIFEST, PutResult
from noetl.blobs.file import FileBlobs
from noetl.blobs.memory import MemoryBlobs
from tests.unit.server.rig import ONE_STEP, rig, virtually
from tests.unit.server.values.calls import call, codes, started, tenant

BIG = bytes(range(256)) * 4096
"""A mebibyte."""


def resolve(ref: str) -> str:
    return f"/api/result/resolve?ref={quote(ref, safe='')}"


async def put(r, run: str, **fields):
    answer, told = await call(r, "PUT", f"/api/result/{run}", fields)
    assert answer.status == 201, told
    return told


@virtually
async def test_a_value_is_stored_once_and_all_is_told_of_it() -> None:
    async with rig() as r:
        run = await r.start(ONE_STEP)
        told = await put(r, run, name="out/a", data=[1, 2, 3], source_step="load", ttl=60)
        digest = hashlib.sha256(b"[1,2,3]").hexdigest()
        assert {key: told[key] for key in told if key != "reference"} == {
            "ref": f"noetl://execution/{run}/result/out/a/{digest[:32]}",
            "store": "kv",
            "scope": "execution",
            "size": 7,
            "sha256": digest,
            "expires_at": "2026-01-01T00:01:00.000000Z",
        }
        assert told["reference"]["extracted"]["row_count"] == 3
        assert (await put(r, run, name="out/a", data=[1, 2, 3]))["ref"] == told["ref"]
        other = await put(r, run, name="out/a", data=[1, 2])
        assert other["ref"] != told["ref"]
        page = await r.client.results(run)
        assert len(page.items) == 2


@virtually
async def test_a_raw_body_is_stored_under_the_name_of_the_query() -> None:
    async with rig() as r:
        run = await r.start(ONE_STEP)
        path = f"/api/result/{run}?name=a/b.csv&step=load&scope=permanent&ttl=5"
        answer, told = await call(r, "PUT", path, BIG, content_type="text/csv")
        assert (answer.status, told["size"], told["scope"]) == (201, len(BIG), "permanent")
        assert told["reference"]["media_type"] == "text/csv"
        answer, _ = await call(r, "GET", resolve(told["ref"]))
        assert answer.body == BIG
        assert answer.headers["content-type"].startswith("text/csv")
        assert answer.headers["content-length"] == str(len(BIG))
        (item,) = (await r.client.results(run)).items
        assert (item.name, item.source_step, item.scope) == ("a/b.csv", "load", "permanent")
        answer, told = await call(r, "PUT", f"/api/result/{run}?step=load", b'{"a":1}')
        assert (answer.status, told["reference"]["extracted"]["a"]) == (201, 1)


@pytest.mark.parametrize("blobs", ["memory", "file"])
def test_parts_of_large_bytes_are_read_alone(blobs: str, tmp_path) -> None:
    kept = MemoryBlobs() if blobs == "memory" else FileBlobs(tmp_path)

    @virtually
    async def check() -> None:
        async with rig(blobs=kept) as r:
            run = await r.start(ONE_STEP)
            _, told = await call(r, "PUT", f"/api/result/{run}?name=x", BIG, content_type="a/b")
            size = len(BIG)
            for asked, status, part in (
                ("bytes=0-0", 206, BIG[:1]), ("bytes=5-300000", 206, BIG[5:300_001]),
                ("bytes=1048570-", 206, BIG[-6:]), ("bytes=-4", 206, BIG[-4:]),
                (f"bytes=-{size * 2}", 206, BIG), (f"bytes=10-{size * 2}", 206, BIG[10:]),
                (f"bytes={size}-", 416, b""), ("bytes=-0", 416, b""), ("bytes=7-3", 416, b""),
                ("bytes=0-1,3-4", 416, b""), ("bytes=a-b", 200, BIG), ("lines=1-2", 200, BIG),
                ("bytes=-", 200, BIG),
            ):  # fmt: skip
                answer, _ = await call(r, "GET", resolve(told["ref"]), range=asked)
                assert (answer.status, answer.body == part) == (status, True), asked
                if status == 206:
                    assert answer.headers["content-length"] == str(len(part))
                    assert answer.headers["content-range"].endswith(f"/{size}")
                if status == 416:
                    assert answer.headers["content-range"] == f"bytes */{size}"

    check()


@virtually
async def test_a_tag_spares_the_bytes() -> None:
    async with rig() as r:
        run = await r.start(ONE_STEP)
        told = await put(r, run, name="x", data="text")
        tag = f'"{told["sha256"]}"'
        for given, status in (
            (tag, 304), (f"W/{tag}", 304), (f'"other", {tag}', 304), ("*", 304), ('"other"', 200),
        ):  # fmt: skip
            answer, _ = await call(r, "GET", resolve(told["ref"]), if_none_match=given)
            assert (answer.status, answer.headers["etag"]) == (status, tag)
        same = {"range": "bytes=0-1", "if_range": tag}
        assert (await call(r, "GET", resolve(told["ref"]), **same))[0].status == 206
        other = {"range": "bytes=0-1", "if_range": '"other"'}
        assert (await call(r, "GET", resolve(told["ref"]), **other))[0].status == 200


@virtually
async def test_an_expired_value_is_gone_with_410_until_it_is_put_again() -> None:
    async with rig() as r:
        run = await r.start(ONE_STEP)
        told = await put(r, run, name="x", data=1, ttl=60)
        assert await r.client.get_result(told["ref"]) == b"1"
        await asyncio.sleep(60)
        assert await codes(r, ("GET", resolve(told["ref"]))) == [(410, "expired")]
        key = told["ref"].removeprefix("noetl://")
        assert list(await r.store.results.found([key])) == [key]
        await put(r, run, name="x", data=1)
        assert await r.client.get_result(told["ref"]) == b"1"
        assert r.plane.metrics.result_store_resolve.value("expired") == 1


@virtually
async def test_refusals_have_their_codes() -> None:
    async with rig() as r:
        run = await r.start(ONE_STEP)
        path = f"/api/result/{run}"
        assert await codes(
            r,
            ("GET", "/api/result/resolve"), ("GET", resolve("x")),
            ("GET", resolve("noetl://execution/7/other/a/b")),
            ("GET", resolve(f"noetl://execution/{run}/result/a/b")),
            ("GET", resolve(f"noetl://default/shop/results/{run}/load/0/0/1")),
            ("GET", resolve("noetl://plugin/a@1")), ("GET", resolve("noetl://spool/a/1/m")),
            ("PUT", "/api/result/12", {"name": "x"}), ("PUT", "/api/result/x", {"name": "x"}),
            ("PUT", path, {}), ("PUT", path, {"name": ""}), ("PUT", path, {"name": "a//b"}),
            ("PUT", path, {"name": "x" * 300}), ("PUT", path, {"name": "x", "scope": "ever"}),
            ("PUT", path, {"name": "x", "ttl": 0}), ("PUT", path, {"name": "x", "ttl": -1}),
            ("PUT", path, {"name": "x", "colour": 1}), ("PUT", path, b"{"),
            ("PUT", path, {"name": "x", "content_type": "a\nb"}),
            ("PUT", f"{path}?name=x&scope=ever", b"1"), ("PUT", f"{path}?name=x&ttl=0", b"1"),
            ("PUT", f"{path}?name=x&ttl=soon", b"1"), ("PUT", f"{path}?colour=x", b"1"),
            ("PUT", f"{path}?name=x", b"no json"),
            ("GET", "/api/result/12/list"), ("GET", f"{path}/list?limit=0"),
            ("GET", f"{path}/list?cursor=x"), ("DELETE", "/api/result/12"),
            ("DELETE", f"{path}?ref=x"), ("DELETE", f"{path}?ref=noetl://execution/{run}/result/a/b"),
            ("DELETE", f"{path}?ref=noetl://execution/7/result/a/b"),
            ("DELETE", f"{path}?ref=x&name=y"),
        ) == [
            (400, "bad_ref"), (400, "bad_ref"), (400, "bad_ref"),
            (404, "result_gone"), (404, "result_gone"), (404, "result_gone"), (404, "result_gone"),
            (404, "unknown_execution"), (422, "invalid_id"),
            (422, "validation_failed"), (422, "validation_failed"), (422, "validation_failed"),
            (422, "validation_failed"), (422, "validation_failed"),
            (422, "validation_failed"), (422, "validation_failed"),
            (422, "unknown_field"), (400, "bad_json"), (415, "bad_media_type"),
            (422, "validation_failed"), (422, "validation_failed"),
            (422, "validation_failed"), (422, "unknown_parameter"), (400, "bad_json"),
            (404, "unknown_execution"), (422, "validation_failed"),
            (422, "bad_cursor"), (404, "unknown_execution"),
            (400, "bad_ref"), (404, "result_gone"),
            (404, "result_gone"), (422, "validation_failed"),
        ]  # fmt: skip


@virtually
async def test_more_than_64_mebibytes_are_refused_while_they_come() -> None:
    async with rig() as r:
        run = await r.start(ONE_STEP)
        body = bytes((64 << 20) + 1)
        for path in (f"/api/result/{run}?name=x", "/api/internal/objects/x"):
            answer, told = await call(r, "PUT", path, body, content_type="a/b")
            assert (answer.status, told["code"]) == (413, "body_too_large")
        assert (await r.client.results(run)).items == ()


class Rows(MemoryBlobs):
    """A store without objects."""

    @property
    def name(self) -> str:
        return "db"


@virtually
async def test_an_object_store_that_there_is_not_is_told() -> None:
    async with rig(blobs=Rows()) as r:
        run = await r.start(ONE_STEP)
        path = f"/api/result/{run}?name=x&store=object"
        answer, told = await call(r, "PUT", path, b"1", content_type="application/json")
        assert (answer.status, told["code"]) == (422, "no_object_store")
        assert "NOETL_OBJECT_STORE_URL" in str(told)
        for wrong in ("store=attic", "compression=lz4", "scope=all"):
            path = f"/api/result/{run}?name=x&{wrong}"
            answer, told = await call(r, "PUT", path, b"1", content_type="application/json")
            assert answer.status == 422
        path = f"/api/result/{run}?name=x&store=row&compression=zstd"
        answer, told = await call(r, "PUT", path, b"1", content_type="application/json")
        assert (answer.status, told["store"]) == (201, "kv")


@virtually
async def test_what_is_stored_of_a_run_is_listed_in_pages_and_deleted() -> None:
    async with rig(inline_bytes=1024) as r:
        run, other = await r.start(ONE_STEP), await r.start(ONE_STEP)
        for name in ("a", "a/b", "b"):
            await put(r, run, name=name, data=name)
        await put(r, other, name="a", data=1)
        kept = await r.plane.large.keep(run, "step", "x" * 5000)
        first = await r.client.results(run, limit=3)
        second = await r.client.results(run, limit=3, cursor=first.next_cursor)
        assert [item.name for item in first.items] == ["a", "a/b", "b"]
        (item,) = second.items
        assert (item.name, item.ref, item.size, second.next_cursor) == (
            "step",
            kept.ref,
            5002,
            None,
        )
        assert (await r.client.delete_results(run, ref=first.items[2].ref)).results_deleted == 1
        assert (await r.client.delete_results(run, name="a")).results_deleted == 1
        assert [one.name for one in (await r.client.results(run)).items] == ["a/b", "step"]
        deleted = await r.client.delete_results(run)
        assert (deleted.execution_id, deleted.results_deleted, deleted.status) == (
            run,
            2,
            "deleted",
        )
        assert (await r.client.results(run)).items == ()
        assert len((await r.client.results(other)).items) == 1


@virtually
async def test_a_reference_is_a_name_and_not_a_right() -> None:
    async with rig(is_open=False) as r:
        mine, other = await tenant(r, "acme"), await tenant(r, "globex")
        viewer, worker = await tenant(r, "acme", "viewer"), await tenant(r, "default", "worker")
        run = await started(mine)
        kept = await mine.keep_result(run, PutResult(name="x", data=[1]))
        (row,) = (await r.store.results.found([kept.ref.removeprefix("noetl://")])).values()
        assert row.tenant_id == "acme"
        for client in (mine, viewer, worker):
            assert await client.get_result(kept.ref) == b"[1]"
        found = []
        for asked in (
            other.get_result(kept.ref), other.results(run), other.delete_results(run),
            other.keep_result(run, PutResult(name="x", data=[1])),
            other.get_result(f"noetl://acme/shop/results/{run}/load/0/0/1"),
            other.get_result("noetl://nonsense"),
            viewer.keep_result(run, PutResult(name="x")), viewer.delete_results(run),
        ):  # fmt: skip
            with pytest.raises(Refused) as refused:
                await asked
            found.append((refused.value.problem.status, refused.value.code))
        assert found == [
            (404, "unknown_execution"), (404, "unknown_execution"), (404, "unknown_execution"),
            (404, "unknown_execution"), (404, "result_gone"), (400, "bad_ref"),
            (403, "forbidden"), (403, "forbidden"),
        ]  # fmt: skip
        assert await mine.get_result(kept.ref) == b"[1]"


@virtually
async def test_a_manifest_is_read_as_one_stream() -> None:
    async with rig() as r:
        run = await r.start(ONE_STEP)
        lists = [(await put(r, run, name="p", data=[n, n]))["ref"] for n in range(3)]
        maps = [(await put(r, run, name="p", data={"a": n, f"k{n}": n}))["ref"] for n in range(2)]

        async def made(strategy: str, parts: list[str]) -> bytes:
            data = {"strategy": strategy, "parts": parts}
            told = await put(r, run, name="all", data=data, content_type=MANIFEST)
            assert told["ref"].startswith(f"noetl://execution/{run}/manifest/all/")
            answer, _ = await call(r, "GET", resolve(told["ref"]), range="bytes=0-1")
            assert (answer.status, answer.headers["accept-ranges"]) == (200, "none")
            tag = answer.headers["etag"]
            again, _ = await call(r, "GET", resolve(told["ref"]), if_none_match=tag)
            assert (again.status, tag) == (304, f'"{told["sha256"]}"')
            return answer.body

        assert await made("append", lists) == b"[0,0,1,1,2,2]"
        assert await made("concat", lists) == b"[0,0][1,1][2,2]"
        assert await made("replace", lists) == b"[2,2]"
        assert msgspec.json.decode(await made("merge", maps)) == {"a": 1, "k0": 0, "k1": 1}
        whole = (await r.client.results(run)).items[0]
        path = f"/api/result/{run}"

        def manifest(**fields: object) -> tuple[str, str, dict[str, object]]:
            data = {"strategy": "append", "parts": lists} | fields
            return "PUT", path, {"name": "all", "data": data, "content_type": MANIFEST}

        gone = f"noetl://execution/{run}/result/p/00"
        assert whole.ref.split("/")[4] == "manifest"
        assert await codes(
            r, manifest(strategy="shuffle"), manifest(parts=[]), manifest(colour=1),
            manifest(parts=[whole.ref]), manifest(parts=["x"]), manifest(parts=[gone]),
        ) == [
            (422, "validation_failed"), (422, "validation_failed"), (422, "validation_failed"),
            (422, "validation_failed"), (400, "bad_ref"), (404, "result_gone"),
        ]  # fmt: skip
        await r.client.delete_results(run, name="p")
        assert await codes(r, ("GET", resolve(whole.ref))) == [(404, "result_gone")]


@virtually
async def test_a_part_of_a_manifest_is_asked_for_its_owner() -> None:
    async with rig(is_open=False) as r:
        mine, other = await tenant(r, "acme"), await tenant(r, "globex")
        theirs = (await mine.keep_result(await started(mine), PutResult(name="x", data=[1]))).ref
        run = await started(other)
        data = {"strategy": "append", "parts": [theirs]}
        with pytest.raises(Refused) as refused:
            await other.keep_result(run, PutResult(name="m", data=data, content_type=MANIFEST))
        assert refused.value.problem.status == 404
        # One that was put by somebody who may: it still opens nothing.
        worker = await tenant(r, "default", "worker")
        kept = await worker.keep_result(run, PutResult(name="m", data=data, content_type=MANIFEST))
        with pytest.raises(Refused) as refused:
            await other.get_result(kept.ref)
        assert refused.value.problem.status == 404


@virtually
async def test_objects_of_runs_that_never_began_are_collected() -> None:
    async with rig() as r:
        run = await r.start(ONE_STEP)
        await put(r, run, name="x", data=1)
        old, young = "7", r.ids.new()
        for lost in (old, young):
            await r.plane.large.keep(lost, "step", [lost])
        rehearsed = await r.client.collect_results(Collect(dry_run=True))
        assert (rehearsed.scanned, rehearsed.orphans, rehearsed.removed) == (3, 1, 0)
        done = await r.client.collect_results(Collect())
        assert (done.scanned, done.orphans, done.removed) == (3, 1, 1)
        await asyncio.sleep(10)
        done = await r.client.collect_results(Collect(grace_seconds=1, limit=1))
        assert (done.scanned, done.removed, done.dry_run) == (2, 1, False)
        assert len((await r.client.results(run)).items) == 1
        path = "/api/internal/result-tier/gc"
        unfit = ({"limit": 0}, {"grace_seconds": -1}, {"colour": 1})
        found = await codes(r, *(("POST", path, body) for body in unfit))
        assert [code for _, code in found] == ["validation_failed"] * 2 + ["unknown_field"]


@virtually
async def test_runs_with_unexported_data_are_marked_and_let_go() -> None:
    async with rig() as r:
        run = await r.start(ONE_STEP)
        told = await r.client.sink_state("mark", [run, "12"])
        assert (told.execution_ids, told.unexported) == ((run,), True)
        assert await r.store.exports.unexported([run]) == {run}
        assert (await r.client.sink_state("confirm", [run])).unexported is False
        assert await r.store.exports.unexported([run]) == frozenset()
        path = "/api/internal/sink-state"
        _, told = await call(r, "POST", f"{path}/mark", {"execution_id": int(run)})
        assert told["execution_ids"] == [run]
        assert (await r.client.sink_state("release", [run])).execution_ids == (run,)
        assert await codes(
            r, ("POST", f"{path}/mark", {}), ("POST", f"{path}/mark", {"execution_ids": ["x"]}),
            ("POST", f"{path}/forget", {"execution_id": run}),
        ) == [(422, "validation_failed"), (422, "invalid_id"), (404, "not_found")]  # fmt: skip
