"""Artifacts that lie with a broker, on a real one."""

from __future__ import annotations

import hashlib
from typing import TYPE_CHECKING, Any

import pytest

from noetl.blobs.memory import MemoryBlobs
from noetl.bus.address import Address
from noetl.ids import random_key
from noetl.sources.connecting import connect
from noetl.tools.artifact import ArtifactTool
from noetl.tools.base import ToolContext, run_tool
from noetl.tools.http.egress import Egress, Guard
from noetl.tools.nats import artifacts
from noetl.tools.nats.connections import Connections

if TYPE_CHECKING:
    from collections.abc import AsyncIterator

    from noetl.dsl.views import Outcome


async def as_it_is(host: str, _port: int) -> list[str]:
    return [host]


class Stage:
    """A bucket of each kind, and the tool that may reach them."""

    def __init__(self, url: str, name: str) -> None:
        self.keys, self.objects = f"nats-kv://{name}", f"nats-obj://{name}"
        self.blobs = MemoryBlobs()
        self.connections = Connections(Guard(egress=Egress(mode="open")))
        self._url = url
        self._tool = ArtifactTool((), self.connections)

    async def run(self, action: str, pool: str = "", **given: Any) -> Outcome:
        async def secrets(alias: str) -> dict[str, Any]:
            if alias != "broker":
                raise LookupError(alias)
            return {"type": "nats", "data": {"url": self._url}}

        ctx = ToolContext(
            execution_id="7", step="s", command_id="c", idempotency_key="k", input=given,
            blobs=self.blobs, secrets=secrets, pool=pool,
        )  # fmt: skip
        config = {"kind": "artifact", "action": action, "auth": "broker"}
        made = await run_tool(self._tool, config, ctx)
        assert not hasattr(made, "request")
        return made

    async def ok(self, action: str, uri: str, **given: Any) -> dict[str, Any]:
        made = await self.run(action, uri=uri, **given)
        assert made.error is None, made.error
        return made.data

    async def fault(self, action: str, uri: str, **given: Any) -> tuple[str, str]:
        made = await self.run(action, uri=uri, **given)
        assert made.error is not None, made
        return made.error["kind"], made.error["code"]


@pytest.fixture
async def at(nats_url: str) -> AsyncIterator[Stage]:
    client = await connect(Address.of(nats_url), as_it_is)
    js, name = client.jetstream(), f"A{random_key()[:12]}"
    await js.create_key_value(bucket=name)
    await js.create_object_store(name)
    stage = Stage(nats_url, name)
    yield stage
    await stage.connections.close()
    await js.delete_key_value(name)
    await js.delete_object_store(name)
    await client.close()


@pytest.mark.parametrize("data", [{"a": [1]}, "plain words", 7, "näh"])
@pytest.mark.parametrize("kind", ["keys", "objects"])
async def test_what_is_put_is_got_seen_listed_and_deleted(at: Stage, kind: str, data: Any) -> None:
    base = getattr(at, kind)
    uri = f"{base}/deep/one"
    assert await at.fault("get", uri) == ("not_found", "no_such_artifact")
    made = await at.ok("put", uri, data=data)
    got = await at.ok("get", uri)
    assert (got["data"], got["sha256"], got["uri"]) == (data, made["sha256"], uri)
    assert (await at.ok("head", uri))["size_bytes"] == made["size_bytes"] == got["size_bytes"]
    await at.ok("put", f"{base}/other", data=1)
    listed = await at.ok("list", f"{base}/deep")
    assert ([one["uri"] for one in listed["items"]], listed["count"]) == ([uri], 1)
    assert (await at.ok("delete", uri))["deleted"] is True
    assert (await at.ok("delete", uri))["deleted"] is False
    assert await at.fault("head", uri) == ("not_found", "no_such_artifact")
    assert [one["uri"] for one in (await at.ok("list", base))["items"]] == [f"{base}/other"]


async def test_stored_values_go_to_the_broker_and_come_back(
    at: Stage, monkeypatch: pytest.MonkeyPatch
) -> None:
    raw = bytes(range(256)) * 8192
    kept = (await at.run("put", data_b64="", content_type="x/y")).data["uri"]
    await at.blobs.put(kept.removeprefix("noetl://"), raw, media_type="x/y")
    uri = f"{at.objects}/large.bin"
    made = await at.ok("put", uri, result_ref=kept)
    assert (made["size_bytes"], made["content_type"]) == (len(raw), "x/y")
    monkeypatch.setattr(artifacts, "MOST_BYTES", 1 << 20)
    got = await at.ok("get", uri)
    assert (got["sha256"], "data" in got) == (hashlib.sha256(raw).hexdigest(), False)
    assert await at.blobs.get(got["ref"].removeprefix("noetl://")) == raw
    assert await at.fault("put", f"{at.keys}/k", result_ref=kept) == (
        "storage_quota", "value_too_large",
    )  # fmt: skip


@pytest.mark.parametrize("scheme", ["nats-kv", "nats-obj"])
async def test_buckets_of_the_platform_are_refused(at: Stage, scheme: str) -> None:
    for action in ("get", "put", "list", "delete", "head"):
        given: dict[str, Any] = {"data": 1} if action == "put" else {}
        for bucket in ("sessions", "NOETL_x"):
            told = await at.fault(action, f"{scheme}://{bucket}/k", **given)
            assert told == ("auth", "platform_resource")
    made = await at.run("get", uri=f"{scheme}://sessions/k", pool="system")
    assert made.error is not None  # whether a gateway of another test has made the bucket or not
    assert made.error["kind"] == "not_found"


async def test_addresses_that_name_nothing_are_told(at: Stage) -> None:
    assert await at.fault("get", "nats-kv://nobody-has-it/k") == ("not_found", "bucket_not_found")
    assert await at.fault("get", f"{at.keys}/a b") == ("config", "invalid_config")
    assert await at.fault("put", f"{at.objects}/", data=1) == ("config", "invalid_config")
    assert await at.fault("get", "nats-xx://b/k") == ("config", "unsupported_scheme")
