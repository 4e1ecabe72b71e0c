"""Bytes that the platform's own processes leave for each other."""

from __future__ import annotations

import asyncio
import hashlib

import pytest

from noetl.api.problems import Refused
from tests.unit.server.rig import rig, virtually
from tests.unit.server.values.calls import bearer, call, codes

OBJECTS, REQUESTS = "/api/internal/objects", "/api/internal/requests"
BIG = bytes(range(256)) * 3000


@virtually
async def test_an_object_is_kept_once() -> None:
    async with rig() as r:
        path, digest = f"{OBJECTS}/a/b.bin", hashlib.sha256(BIG).hexdigest()
        answer, told = await call(r, "PUT", path, BIG, content_type="text/x")
        assert (answer.status, answer.headers["etag"]) == (201, f'"{digest}"')
        assert told == {"key": "a/b.bin", "size": len(BIG), "sha256": digest}
        again, same = await call(r, "PUT", path, BIG)
        assert (again.status, same) == (200, told)
        assert await codes(r, ("PUT", path, b"other")) == [(409, "digest_mismatch")]
        answer, _ = await call(r, "GET", path)
        assert (answer.body, answer.headers["etag"]) == (BIG, f'"{digest}"')
        assert answer.headers["content-type"].startswith("text/x")
        assert (await call(r, "GET", path, if_none_match=f'"{digest}"'))[0].status == 304
        assert (await call(r, "GET", path, range="bytes=2-4"))[0].body == BIG[2:5]
        assert await r.client.get_object("a/b.bin") == BIG
        assert (await r.client.put_object("a/b.bin", BIG)).sha256 == digest
        empty = await r.client.put_object("empty", b"")
        assert (empty.size, await r.client.get_object("empty")) == (0, b"")


@virtually
async def test_one_of_many_objects_at_once_is_the_first() -> None:
    async with rig() as r:
        puts = [call(r, "PUT", f"{OBJECTS}/x", f"{n}".encode()) for n in range(8)]
        statuses = sorted([answer.status for answer, _ in await asyncio.gather(*puts)])
        assert statuses == [201] + [409] * 7


@virtually
async def test_keys_that_lead_elsewhere_are_refused() -> None:
    async with rig() as r:
        assert await codes(
            r,
            ("GET", f"{OBJECTS}/nothing"), ("GET", f"{OBJECTS}/a/../b"), ("PUT", f"{OBJECTS}/.x"),
            ("PUT", f"{OBJECTS}/a//b"), ("PUT", f"{OBJECTS}/" + "x" * 300), ("PUT", f"{OBJECTS}/"),
            ("GET", f"{OBJECTS}/x?colour=1"), ("GET", f"{REQUESTS}/nothing/result"),
            ("PUT", f"{REQUESTS}/-x/result", b"1"), ("PUT", f"{REQUESTS}/x/result?execution_id=y"),
        ) == [
            (404, "not_found"), (422, "validation_failed"), (422, "validation_failed"),
            (422, "validation_failed"), (422, "validation_failed"), (422, "validation_failed"),
            (422, "unknown_parameter"), (404, "not_found"),
            (422, "validation_failed"), (422, "invalid_id"),
        ]  # fmt: skip


@virtually
async def test_the_first_result_of_a_request_counts() -> None:
    async with rig() as r:
        told = await r.client.put_request_result("r-1", b'{"a":1}', execution_id="12")
        assert (told.status, told.size) == ("stored", 7)
        assert (await r.client.put_request_result("r-1", b'{"a":1}')).status == "duplicate"
        with pytest.raises(Refused) as refused:
            await r.client.put_request_result("r-1", b'{"a":2}')
        assert (refused.value.problem.status, refused.value.code) == (409, "digest_mismatch")
        assert await r.client.get_request_result("r-1") == b'{"a":1}'
        answer, _ = await call(r, "GET", f"{REQUESTS}/r-1/result")
        assert answer.headers["etag"] == f'"{told.sha256}"'
        assert await r.plane.parts.blobs.listed("requests/") == []  # it lies in its row


@virtually
async def test_a_large_result_of_a_request_lies_in_the_object_store() -> None:
    async with rig() as r:
        for number, size in enumerate((64 * 1024, 64 * 1024 + 1)):
            data = b'"' + b"x" * (size - 2) + b'"'
            told = await r.client.put_request_result(f"r-{number}", data)
            assert (await r.client.put_request_result(f"r-{number}", data)).status == "duplicate"
            with pytest.raises(Refused) as refused:
                await r.client.put_request_result(f"r-{number}", b"2")
            assert refused.value.code == "digest_mismatch"
            assert await r.client.get_request_result(f"r-{number}") == data
            part = {"range": "bytes=1-3"}
            answer, _ = await call(r, "GET", f"{REQUESTS}/r-{number}/result", **part)
            assert (answer.status, answer.body) == (206, b"xxx")
            is_apart = size > 64 * 1024
            found = await r.plane.parts.blobs.listed(f"requests/r-{number}/")
            assert found == ([f"requests/r-{number}/{told.sha256}"] if is_apart else [])


@virtually
async def test_only_the_platform_s_own_processes_come_in() -> None:
    calls = (
        ("GET", f"{OBJECTS}/x"), ("PUT", f"{OBJECTS}/x", b"1"), ("GET", f"{REQUESTS}/x/result"),
        ("PUT", f"{REQUESTS}/x/result", b"1"), ("POST", "/api/internal/result-tier/gc", {}),
        ("POST", "/api/internal/sink-state/mark", {}),
        ("POST", "/api/internal/sink-state/confirm", {}),
        ("POST", "/api/internal/sink-state/release", {}),
        ("POST", "/api/internal/container-callback/1/a", {}),
    )  # fmt: skip
    async with rig(is_open=False) as r:
        assert await codes(r, *calls) == [(503, "internal_token_unset")] * len(calls)
    async with rig(is_open=False, internal_tokens=("secret",)) as r:
        wrong = [(403, "internal_token_mismatch")] * len(calls)
        for given in ({}, {"authorization": "Basic secret"}, {"authorization": "Bearer no"}):
            assert await codes(r, *calls, **given) == wrong
        admin = await bearer(r, "admin")
        assert await codes(r, *calls, authorization=admin) == wrong
        answer, _ = await call(r, "PUT", f"{OBJECTS}/x", b"1", authorization="bearer secret")
        assert answer.status == 201
