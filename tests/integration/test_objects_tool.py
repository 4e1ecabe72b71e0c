"""The kinds `s3` and `gcs`, artifacts of buckets and fetched scripts, on a real S3 server."""

from __future__ import annotations

import asyncio
import hashlib
from typing import TYPE_CHECKING, Any
from urllib.request import urlopen

import pytest

from noetl.blobs.memory import MemoryBlobs
from noetl.blobs.refs import key_of
from noetl.dsl.tasks.shared import Script, ScriptSource
from noetl.tools.artifact import ArtifactTool
from noetl.tools.base import ToolContext, ToolError, run_tool
from noetl.tools.http.egress import Egress
from noetl.tools.objects.store import Stores
from noetl.tools.objects.tool import GcsTool, S3Tool
from noetl.tools.sources import Scripts
from tests.fakes.objects import RefusingStore

if TYPE_CHECKING:
    from collections.abc import Iterator
    from pathlib import Path

    from noetl.dsl.views import Outcome
    from tests.servers.gcs import GcsServer
    from tests.servers.objects import S3Server

MIB = 1 << 20


class Stage:
    """A bucket, and tools that may reach it."""

    def __init__(self, server: S3Server, root: Path, mode: str = "open", **egress: Any) -> None:
        self.bucket = server.bucket()
        self.fields: dict[str, Any] = server.fields
        self.type = "s3"
        self.root = root
        self.blobs = MemoryBlobs()
        self.egress = Egress(mode=mode, **egress)
        self.stores = Stores(self.egress)

    def context(self, **given: Any) -> ToolContext:
        async def secrets(alias: str) -> dict[str, Any]:
            if alias != "own":
                raise LookupError(alias)
            return {"type": self.type, "data": dict(self.fields)}

        return ToolContext(
            execution_id="7", step="s", command_id="c", idempotency_key="k", input=given,
            blobs=self.blobs, stores=self.stores, secrets=secrets,
        )  # fmt: skip

    async def s3(self, operation: str, tool: type = S3Tool, **config: Any) -> Outcome:
        asked = {"kind": tool.kind, "operation": operation, "bucket": self.bucket, "auth": "own"}
        made = await run_tool(tool((self.root,)), {**asked, **config}, self.context())
        assert not hasattr(made, "request")
        return made

    async def ok(self, operation: str, **config: Any) -> dict[str, Any]:
        made = await self.s3(operation, **config)
        assert made.error is None, made.error
        return made.data

    async def fault(self, operation: str, **config: Any) -> tuple[str, str]:
        made = await self.s3(operation, **config)
        assert made.error is not None
        assert self.fields["secret_access_key"] not in str(made)
        return made.error["kind"], made.error["code"]

    async def artifact(self, action: str, **given: Any) -> Outcome:
        tool = ArtifactTool((self.root,))
        config = {"kind": "artifact", "action": action, "auth": "own"}
        return await run_tool(tool, config, self.context(**given))


@pytest.fixture
def at(s3_server: S3Server, tmp_path: Path) -> Stage:
    return Stage(s3_server, tmp_path)


async def test_an_object_is_put_seen_read_listed_copied_and_deleted(at: Stage) -> None:
    put = await at.ok("put", key="a/b.json", data={"n": 1}, metadata={"owner": "me"})
    assert put["uri"] == f"s3://{at.bucket}/a/b.json"
    assert (put["status"], put["size"], put["content_type"]) == ("ok", 7, "application/json")
    assert put["etag"]
    head = await at.ok("head", key="a/b.json")
    assert (head["size"], head["content_type"]) == (7, "application/json")
    assert head["metadata"]["owner"] == "me"
    got = await at.ok("get", key="a/b.json")
    assert (got["data"], got["size"]) == ({"n": 1}, 7)
    part = await at.ok("get", key="a/b.json", range={"offset": 1, "length": 3})
    assert part["data"] == '"n"'
    await at.ok("copy", key="a/c.json", source="a/b.json")
    listed = await at.ok("list", prefix="a/")
    assert [one["key"] for one in listed["items"]] == ["a/b.json", "a/c.json"]
    assert (listed["count"], listed["next"]) == (2, None)
    assert (await at.ok("list", prefix="a/", key="a/b.json"))["count"] == 1
    assert (await at.ok("list", prefix="a/c"))["count"] == 1
    assert (await at.ok("delete", key="a/b.json"))["deleted"] is True
    assert (await at.ok("delete", key="a/b.json"))["deleted"] is False


async def test_what_is_large_comes_as_a_reference_and_goes_in_parts(at: Stage) -> None:
    data = bytes(range(256)) * (9 * MIB // 256)
    (at.root / "big.bin").write_bytes(data)
    put = await at.ok("put", key="big", path="big.bin", multipart_mb=5, content_type="x/y")
    assert (put["size"], put["content_type"]) == (len(data), "x/y")
    got = await at.ok("get", key="big")
    assert "data" not in got
    assert got["sha256"] == hashlib.sha256(data).hexdigest()
    assert await at.blobs.get(key_of(got["ref"])) == data
    again = await at.ok("put", key="again", ref=got["ref"], multipart_mb=5)
    assert (again["size"], again["content_type"]) == (len(data), "x/y")
    signed = await at.ok("sign", key="again", expires=60)
    assert await asyncio.to_thread(_read, signed["url"]) == data


def _read(url: str) -> bytes:
    with urlopen(url, timeout=10) as answer:  # noqa: S310 - of our own server
        return bytes(answer.read())


async def test_copy_between_buckets(at: Stage, s3_server: S3Server) -> None:
    target, at.bucket = at.bucket, s3_server.bucket()
    await at.ok("put", key="k", data="text")
    source, at.bucket = at.bucket, target
    copied = await at.ok("copy", key="l", source={"bucket": source, "key": "k"})
    assert (copied["source"], copied["size"]) == (f"s3://{source}/k", 4)
    assert (await at.ok("get", key="l"))["data"] == "text"


async def test_if_none_match_makes_an_object_once(at: Stage) -> None:
    await at.ok("put", key="once", data="1", if_none_match="*")
    assert await at.fault("put", key="once", data="2", if_none_match="*") == (
        "client_error", "already_exists",
    )  # fmt: skip
    assert (await at.ok("get", key="once"))["data"] == "1"


@pytest.mark.parametrize(
    "config",
    [{"key": "/a"}, {"key": "a/../b"}, {"key": "a\0b"}, {"key": None}, {"key": "a//b"},
     {"key": "a", "bucket": "../x"}],
)  # fmt: skip
async def test_keys_that_lead_elsewhere_are_refused(at: Stage, config: dict[str, Any]) -> None:
    assert await at.fault("get", **config) == ("config", "invalid_config")


async def test_put_takes_one_source(at: Stage) -> None:
    assert await at.fault("put", key="a") == ("config", "invalid_config")
    assert await at.fault("put", key="a", data=1, path="x") == ("config", "invalid_config")
    assert await at.fault("put", key="a", path="nothing") == ("not_found", "no_such_file")
    kind, _ = await at.fault("put", key="a", path="/etc/passwd")
    assert kind == "storage_access"


async def test_what_is_not_there_is_told(at: Stage) -> None:
    assert await at.fault("get", key="none") == ("not_found", "no_such_object")
    assert await at.fault("head", key="none") == ("not_found", "no_such_object")
    none = "no-such-bucket-here"
    for operation in ("get", "list"):
        told = await at.fault(operation, key="k", bucket=none)
        assert told == ("not_found", "no_such_bucket")
    assert await at.fault("put", key="k", data=1, bucket=none) == ("not_found", "no_such_bucket")


async def test_an_identity_is_asked_for_and_never_borrowed(
    at: Stage, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("AWS_ACCESS_KEY_ID", "worker")
    monkeypatch.setenv("AWS_SECRET_ACCESS_KEY", "own-secret-of-the-worker")
    assert await at.fault("get", key="k", auth=None) == ("auth", "auth_required")
    assert await at.fault("get", key="k", auth="other") == ("auth", "credential_not_found")
    at.fields.clear()
    at.fields |= {"endpoint": "http://127.0.0.1:1", "secret_access_key": ""}
    made = await at.s3("get", key="k")
    assert made.error is not None
    assert (made.error["kind"], made.error["code"]) == ("auth", "auth_required")


async def test_a_wrong_type_of_credential_is_refused(at: Stage) -> None:
    made = await at.s3("get", GcsTool, key="k")
    assert made.error is not None
    assert made.error["code"] == "credential_type"


async def test_an_endpoint_that_is_away_is_worth_another_try(at: Stage) -> None:
    at.fields["endpoint"] = "http://127.0.0.1:1"
    made = await at.s3("get", key="k")
    assert made.error is not None
    assert (made.error["kind"], made.error["retryable"]) == ("connection", True)


@pytest.fixture(scope="module")
def refusing() -> Iterator[RefusingStore]:
    store = RefusingStore()
    yield store
    store.stop()


REFUSALS = [
    ((403, "AccessDenied"), ("storage_access", "access_denied")),
    ((403, "SignatureDoesNotMatch"), ("auth", "auth_failed")),
    ((403, "InvalidAccessKeyId"), ("auth", "auth_failed")),
    ((403, "RequestTimeTooSkewed"), ("auth", "auth_failed")),
    ((400, "ExpiredToken"), ("auth", "auth_failed")),
    ((401, "Unauthorized"), ("auth", "auth_failed")),
    ((404, "NoSuchBucket"), ("not_found", "no_such_bucket")),
    ((404, "NoSuchKey"), ("not_found", "no_such_object")),
    ((400, "EntityTooLarge"), ("storage_quota", "store_full")),
    ((400, "MalformedXML"), ("client_error", "http_400")),
    ((412, "PreconditionFailed"), ("client_error", "already_exists")),
]
PRESSED = [
    ((503, "SlowDown"), ("rate_limit", "slow_down")),
    ((429, "TooManyRequests"), ("rate_limit", "slow_down")),
    ((500, "InternalError"), ("server_error", "http_500")),
]


@pytest.mark.parametrize(("answer", "told"), REFUSALS)
@pytest.mark.parametrize("operation", ["get", "put"])
async def test_a_refusal_of_the_store_has_a_kind_and_names_the_remedy(
    at: Stage,
    refusing: RefusingStore,
    operation: str,
    answer: tuple[int, str],
    told: tuple[str, str],
) -> None:
    at.fields["endpoint"] = refusing.url
    refusing.refuse_with(*answer, f"the key is {at.fields['secret_access_key']}")
    given = {"data": "x"} if operation == "put" else {}
    made = await at.s3(operation, key="k", **given)
    assert made.error is not None
    assert (made.error["kind"], made.error["code"]) == told
    assert made.error["retryable"] is False
    for hidden in (at.fields["secret_access_key"], refusing.url, "<Error>"):
        assert hidden not in str(made)
    assert len(refusing.asked) == 1


@pytest.mark.parametrize(("answer", "told"), PRESSED)
async def test_a_store_under_pressure_is_worth_another_try(
    at: Stage, refusing: RefusingStore, answer: tuple[int, str], told: tuple[str, str]
) -> None:
    at.fields["endpoint"] = refusing.url
    refusing.refuse_with(*answer)
    made = await at.s3("get", key="k")
    assert made.error is not None
    assert (made.error["kind"], made.error["code"]) == told
    assert made.error["retryable"] is True
    assert len(refusing.asked) > 1


@pytest.mark.parametrize(
    ("endpoint", "reason"),
    [
        ("http://127.0.0.1:9", "loopback"),
        ("http://2130706433", "loopback"),
        ("http://[::ffff:10.0.0.1]", "mapped"),
        ("http://169.254.169.254", "metadata"),
        ("http://user:word@example.com", "userinfo"),
        ("ftp://example.com", "scheme"),
    ],
)
async def test_a_guarded_worker_reaches_no_inner_endpoint(
    s3_server: S3Server, tmp_path: Path, endpoint: str, reason: str
) -> None:
    at = Stage(s3_server, tmp_path, "guarded")
    made = await at.s3("get", key="k", endpoint=endpoint)
    assert made.error is not None
    assert (made.error["kind"], made.error["details"]["reason"]) == ("egress", reason)


async def test_a_listed_endpoint_is_reached(s3_server: S3Server, tmp_path: Path) -> None:
    at = Stage(s3_server, tmp_path, "guarded", allow=("127.0.0.1",))
    await at.ok("put", key="k", data="1")


async def test_gcs_does_the_same(gcs_server: GcsServer, tmp_path: Path) -> None:
    at = Stage(gcs_server, tmp_path)  # type: ignore[arg-type]  # a server of the same shape
    at.type = "gcs"
    data = "x" * (6 * MIB)

    async def ok(operation: str, **config: Any) -> dict[str, Any]:
        made = await at.s3(operation, GcsTool, **config)
        assert made.error is None, made.error
        return made.data

    assert (await ok("put", key="a/b", data={"n": 1}))["uri"] == f"gs://{at.bucket}/a/b"
    assert (await ok("get", key="a/b"))["data"] == {"n": 1}
    assert (await ok("put", key="a/large", data=data, multipart_mb=5))["size"] == len(data)
    assert (await ok("get", key="a/large"))["sha256"] == hashlib.sha256(data.encode()).hexdigest()
    await ok("copy", key="a/c", source="a/b")
    assert (await ok("list", prefix="a/"))["count"] == 3
    assert (await ok("head", key="a/c"))["content_type"] == "application/json"
    assert [(await ok("delete", key="a/c"))["deleted"] for _ in range(2)] == [True, False]
    gone = await at.s3("get", GcsTool, key="a/c")
    assert gone.error is not None
    assert (gone.error["kind"], gone.error["code"]) == ("not_found", "no_such_object")


async def test_an_endpoint_inside_a_service_account_is_guarded_too(
    gcs_server: GcsServer, tmp_path: Path
) -> None:
    at = Stage(gcs_server, tmp_path, "guarded")  # type: ignore[arg-type]  # of the same shape
    at.type = "gcs"
    made = await at.s3("get", GcsTool, key="k")
    assert made.error is not None
    assert made.error["kind"] == "egress"


async def test_the_worker_s_own_identity_is_not_shown_to_an_endpoint_of_the_author(
    gcs_server: GcsServer, tmp_path: Path
) -> None:
    at = Stage(gcs_server, tmp_path)  # type: ignore[arg-type]  # of the same shape
    at.type = "gcs"
    auth = {"type": "gcs", "endpoint": gcs_server.url}
    made = await at.s3("get", GcsTool, key="k", auth=auth)
    assert made.error is not None
    assert (made.error["kind"], made.error["code"]) == ("auth", "auth_required")
    assert made.error["message"] == (
        "/auth: an `endpoint` needs a `service_account`; that of the worker is not shown"
    )


async def test_artifacts_of_buckets(at: Stage) -> None:
    uri = f"s3://{at.bucket}/x/y.txt"
    made = await at.artifact("put", uri=uri, data="hello")
    assert made.error is None
    assert made.data["size_bytes"] == 5
    assert (await at.artifact("get", uri=uri)).data["data"] == "hello"
    assert (await at.artifact("head", uri=uri)).data["size_bytes"] == 5
    listed = (await at.artifact("list", uri=f"s3://{at.bucket}/x/")).data
    assert [one["uri"] for one in listed["items"]] == [uri]
    kept = (await at.artifact("put", data="from the run")).data["uri"]
    await at.artifact("put", uri=uri, result_ref=kept)
    assert (await at.artifact("get", uri=uri)).data["data"] == "from the run"
    assert (await at.artifact("delete", uri=uri)).data["deleted"] is True
    gone = await at.artifact("get", uri=uri)
    assert gone.error is not None
    assert gone.error["kind"] == "not_found"


# ---------------------------------------------------------------------------- scripts


async def test_a_script_comes_from_a_bucket_and_is_kept_by_its_digest(at: Stage) -> None:
    code = "result = 40 + 2\n"
    await at.ok("put", key="code/a.py", data=code)
    scripts = Scripts(at.egress, (at.root,), at.stores)
    source = ScriptSource(type="s3", auth="own")
    digest = hashlib.sha256(code.encode()).hexdigest()
    script = Script(uri=f"s3://{at.bucket}/code/a.py", source=source, sha256=digest)
    assert await scripts.load(script, at.context()) == code
    await at.ok("delete", key="code/a.py")
    assert await scripts.load(script, at.context()) == code
    in_parts = Script(uri="code/b.py", source=ScriptSource(type="s3", auth="own", bucket=at.bucket))
    await at.ok("put", key="code/b.py", data="x" * (MIB + 1))
    with pytest.raises(ToolError) as large:
        await scripts.load(in_parts, at.context())
    assert (large.value.kind, large.value.code) == ("limit", "script_too_large")
    await at.ok("put", key="code/b.py", data="other")
    changed = Script(uri=in_parts.uri, source=in_parts.source, sha256=digest[::-1])
    with pytest.raises(ToolError) as other:
        await scripts.load(changed, at.context())
    assert other.value.code == "digest_mismatch"
    await scripts.close()


async def test_a_script_comes_from_a_file_below_the_roots(at: Stage) -> None:
    (at.root / "own.py").write_text("result = 1")
    scripts = Scripts(at.egress, (at.root,), at.stores)
    for uri in ("own.py", (at.root / "own.py").as_uri()):
        assert await scripts.load(Script(uri=uri), at.context()) == "result = 1"
    for uri, kind in (
        ("none.py", "not_found"), ("/etc/passwd", "storage_access"), ("odd://x", "config"),
    ):  # fmt: skip
        with pytest.raises(ToolError) as refused:
            await scripts.load(Script(uri=uri), at.context())
        assert refused.value.kind == kind


async def test_a_script_comes_from_a_web_server(at: Stage) -> None:
    await at.ok("put", key="web.py", data="result = 2")
    url = (await at.ok("sign", key="web.py"))["url"]
    scripts = Scripts(at.egress, (at.root,), at.stores)
    assert await scripts.load(Script(uri=url), at.context()) == "result = 2"
    with pytest.raises(ToolError) as missing:
        await scripts.load(Script(uri=url.replace("web.py", "none.py")), at.context())
    assert missing.value.kind == "not_found"
    await scripts.close()
    guarded = Scripts(Egress(), (at.root,), at.stores)
    with pytest.raises(ToolError) as refused:
        await guarded.load(Script(uri=url), at.context())
    assert refused.value.kind == "egress"
    await guarded.close()
