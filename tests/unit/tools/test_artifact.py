"""Stored objects: by reference and as files."""

from __future__ import annotations

import asyncio
import base64
import hashlib

import pytest

from noetl.blobs.memory import MemoryBlobs
from noetl.blobs.refs import key_of, ref_of
from noetl.telemetry.redact import Redactor
from noetl.tools.artifact import ArtifactTool, ResultFetchTool
from noetl.tools.base import ToolContext, run_tool

OWN = ref_of("7", "s", "mine")
OTHER = ref_of("8", "s", "theirs")


class Stage:
    def __init__(self, root, blobs):
        self.root = root
        self.blobs = blobs
        self.secrets = ()

    def artifact(self, action, **given):
        return self._run(ArtifactTool((self.root,)), given, action=action)

    def fetch(self, ref, **config):
        return self._run(ResultFetchTool(), {}, ref=ref, **config)

    def put(self, ref, data, media_type="application/json"):
        asyncio.run(self.blobs.put(key_of(ref), data, media_type=media_type))

    def _run(self, tool, given, **config):
        ctx = ToolContext(
            execution_id="7", step="s", command_id="c", idempotency_key="k", input=given,
            blobs=self.blobs, redactor=Redactor(self.secrets),
        )  # fmt: skip
        return asyncio.run(run_tool(tool, {"kind": tool.kind, **config}, ctx))


@pytest.fixture
def at(tmp_path):
    return Stage(tmp_path, MemoryBlobs())


def sha(data):
    return hashlib.sha256(data).hexdigest()


# ---------------------------------------------------------------------------- by reference


@pytest.mark.parametrize(
    ("given", "raw", "media", "shown"),
    [
        ({"data": {"a": 1}}, b'{"a":1}', "application/json", {"a": 1}),
        ({"data": "text"}, b"text", "text/plain; charset=utf-8", "text"),
        ({"data_b64": "AP8="}, b"\x00\xff", "application/octet-stream", "AP8="),
        ({"data": "a,b", "content_type": "text/csv"}, b"a,b", "text/csv", "a,b"),
    ],
)
def test_what_is_put_comes_back(at, given, raw, media, shown):
    put = at.artifact("put", **given).data
    ref = ref_of("7", "s", sha(raw)[:32])
    about = {"uri": ref, "size_bytes": len(raw), "sha256": sha(raw), "content_type": media}
    assert put == {"action": "put", **about}
    assert at.artifact("get", result_ref=ref).data == {"action": "get", **about, "data": shown}
    assert at.artifact("head", uri=ref).data == {"action": "head", **about}
    assert at.artifact("put", **given).data == put


def test_a_reference_may_be_the_map_of_a_result(at):
    at.put(OWN, b"1")
    for given in ({"ref": OWN}, {"_ref": OWN}):
        assert at.artifact("get", result_ref=given).data["data"] == 1


def test_an_object_is_listed_and_deleted(at):
    at.artifact("put", uri=OWN, data=1)
    assert at.artifact("list").data == {
        "action": "list", "uri": "", "items": [{"uri": OWN}], "count": 1, "truncated": False,
    }  # fmt: skip
    assert at.artifact("list", uri="noetl://execution/7/result/other").data["count"] == 0
    assert at.artifact("delete", uri=OWN).data == {
        "action": "delete", "uri": OWN, "deleted": True,
    }  # fmt: skip
    assert at.artifact("delete", uri=OWN).data["deleted"] is False


def test_objects_of_another_run_are_read_and_not_changed(at):
    at.put(OTHER, b"[2]")
    assert at.artifact("get", uri=OTHER).data["data"] == [2]
    for action in ("put", "delete", "list"):
        error = at.artifact(action, uri=OTHER, data=1).error
        assert (error["kind"], error["code"]) == ("storage_access", "foreign_artifact")


@pytest.mark.parametrize("action", ["get", "head"])
def test_what_is_missing_is_not_found(at, action):
    error = at.artifact(action, uri=OWN).error
    assert (error["kind"], error["code"]) == ("not_found", "no_such_artifact")


@pytest.mark.parametrize(
    ("action", "given", "code"),
    [
        ("get", {"uri": "s3://bucket/key"}, "auth_required"),
        ("get", {"uri": "nats-kv://bucket/key"}, "unsupported_scheme"),
        ("get", {"uri": "odd://x"}, "unsupported_scheme"),
        ("get", {"uri": "noetl://odd"}, "invalid_config"),
        ("get", {}, "invalid_config"),
        ("put", {}, "invalid_config"),
        ("put", {"data_b64": "%"}, "invalid_config"),
        ("steal", {}, "invalid_config"),
    ],
)
def test_what_names_no_object_is_a_configuration_error(at, action, given, code):
    assert at.artifact(action, **given).error["code"] == code


def test_json_that_is_none_is_a_parse_error(at):
    at.put(OWN, b"{oops")
    assert at.artifact("get", uri=OWN).error["kind"] == "parse"


def test_without_a_store_there_are_no_objects(at):
    at.blobs = None
    assert at.artifact("get", uri=OWN).error["code"] == "no_blobs"


# ---------------------------------------------------------------------------- files


def test_a_file_is_put_read_listed_and_deleted(at):
    uri = (at.root / "deep" / "a.json").as_uri()
    raw = b'{"a":1}'
    about = {"uri": uri, "size_bytes": 7, "sha256": sha(raw), "content_type": "application/json"}
    assert at.artifact("put", uri=uri, data={"a": 1}).data == {"action": "put", **about}
    assert at.artifact("get", uri=uri).data == {"action": "get", **about, "data": {"a": 1}}
    assert at.artifact("head", uri=uri).data == {"action": "head", **about}
    listed = at.artifact("list", uri=at.root.as_uri()).data
    assert (listed["items"], listed["count"]) == ([{"uri": uri, "size_bytes": 7}], 1)
    assert at.artifact("delete", uri=uri).data["deleted"] is True
    assert at.artifact("delete", uri=uri).data["deleted"] is False
    assert [at.artifact(action, uri=uri).error["kind"] for action in ("get", "head", "list")] == [
        "not_found", "not_found", "not_found",
    ]  # fmt: skip


def test_a_file_may_be_relative_to_the_first_root(at):
    at.artifact("put", uri="file://x/a b.bin", data_b64=base64.b64encode(b"\xff").decode())
    assert (at.root / "x" / "a b.bin").read_bytes() == b"\xff"
    assert at.artifact("get", uri="file://x/a%20b.bin").data["data"] == "/w=="


@pytest.mark.parametrize(
    "uri", ["file:///etc/passwd", "file://../x", "file:///%2e%2e/etc/passwd", "file://a%00b"]
)
@pytest.mark.parametrize("action", ["get", "put", "head", "list", "delete"])
def test_a_file_outside_the_roots_is_refused(at, action, uri):
    error = at.artifact(action, uri=uri, data="x").error
    assert (error["kind"], error["code"]) == ("storage_access", "outside_data_roots")


def test_a_link_out_of_the_roots_is_refused(at):
    (at.root / "link").symlink_to("/etc/passwd")
    assert at.artifact("get", uri="file://link").error["code"] == "outside_data_roots"


# ---------------------------------------------------------------------------- results


ROWS = b'{"rows": [{"a": 1}, {"a": 2}, {"a": 3}], "columns": ["a"], "more": {"x": [5, 6]}}'


@pytest.mark.parametrize(
    ("config", "value"),
    [
        ({"path": "$.more.x[1]"}, 6),
        ({"path": "more['x']"}, [5, 6]),
        ({"path": "$.rows[-1].a"}, 3),
        ({"rows": {"offset": 1, "limit": 1}},
         {"rows": [{"a": 2}], "columns": ["a"], "row_count": 3}),
        ({"rows": {"offset": 2}}, {"rows": [{"a": 3}], "columns": ["a"], "row_count": 3}),
        ({"rows": {"limit": 0}}, {"rows": [], "columns": ["a"], "row_count": 3}),
        ({"path": "$.rows", "rows": {"limit": 1}},
         {"rows": [{"a": 1}], "columns": ["a"], "row_count": 3}),
        ({"path": "more.x", "rows": {}}, {"rows": [5, 6], "columns": [], "row_count": 2}),
    ],
)  # fmt: skip
def test_a_part_of_a_result_is_fetched(at, config, value):
    at.put(OTHER, ROWS)
    assert at.fetch(OTHER, **config).data == value


def test_a_whole_result_is_fetched(at):
    at.put(OWN, b"[1, 2]")
    assert at.fetch(OWN).data == [1, 2]


@pytest.mark.parametrize(
    ("config", "kind", "code"),
    [
        ({"path": "$.nothing"}, "not_found", "no_such_path"),
        ({"path": "$.rows[9]"}, "not_found", "no_such_path"),
        ({"path": "$.rows.a"}, "not_found", "no_such_path"),
        ({"path": "$.more", "rows": {}}, "schema", "no_rows"),
        ({"rows": {"offset": -1}}, "config", "invalid_config"),
        ({"rows": {"limit": "x"}}, "config", "invalid_config"),
        ({"rows": {"odd": 1}}, "config", "invalid_config"),
    ],
)
def test_a_part_that_is_not_there_is_told(at, config, kind, code):
    at.put(OTHER, ROWS)
    error = at.fetch(OTHER, **config).error
    assert (error["kind"], error["code"]) == (kind, code)


def test_a_result_that_is_gone_or_no_json_is_told(at):
    assert at.fetch(OWN).error["kind"] == "not_found"
    at.put(OWN, b"PAR1", "application/vnd.apache.parquet")
    assert at.fetch(OWN).error["kind"] == "parse"
    assert at.fetch("odd").error["code"] == "invalid_config"


@pytest.mark.parametrize("uri", [{}, {"uri": OWN}])
def test_a_value_of_a_run_holds_no_secret(at, uri):
    at.secrets = ("artifact-Canary-5510",)
    told = at.artifact("put", data={"said": "artifact-Canary-5510"}, **uri).data
    found = asyncio.run(at.blobs.get(key_of(told["uri"])))
    assert found == b'{"said":"***"}'
    assert (told["size_bytes"], told["sha256"]) == (len(found), sha(found))


def test_a_file_is_written_as_it_is(at):
    at.secrets = ("artifact-Canary-5510",)
    at.artifact("put", uri=(at.root / "f.txt").as_uri(), data="artifact-Canary-5510")
    assert (at.root / "f.txt").read_text() == "artifact-Canary-5510"
