"""The http tool against a real server on a local socket."""

from __future__ import annotations

import asyncio
import gzip
import hashlib
import json
import shutil
import ssl
import subprocess
import sys
import zlib
from datetime import timedelta

import pytest

from noetl.dsl.scope import Names, Scope
from noetl.tools.http.egress import Egress
from noetl.tools.http.tool import HttpTool
from tests.servers.http_stage import JSON, NOW, Blobs, FakeClock, fixed, reply, routes, stage

# ---------------------------------------------------------------------------- answers


async def test_an_answer_is_data_with_status_headers_and_body():
    async with stage(fixed({"a": 1}, 200, ("X-Twice", "1"), ("X-Twice", "2"))) as at:
        outcome = await at.http("/things?a=1")
    headers = {
        "transfer-encoding": "chunked", "content-type": "application/json", "x-twice": "1, 2",
    }  # fmt: skip
    assert outcome.data == {
        "status_code": 200, "headers": headers, "body": {"a": 1}, "data": {"a": 1},
        "url": f"{at.base}/things?a=1", "elapsed_ms": 0,
    }  # fmt: skip
    assert outcome.http == {"status": 200, "headers": headers}
    assert (outcome.status, outcome.error, outcome.ref) == ("ok", None, None)


@pytest.mark.parametrize(
    ("media", "raw", "how", "value"),
    [
        ("application/json", b'{"a": [1]}', "auto", {"a": [1]}),
        ("application/problem+json; charset=utf-8", b"[1]", "auto", [1]),
        ("application/json", b"", "auto", None),
        ("application/json", b'{"a": 1}', "text", '{"a": 1}'),
        ("text/plain", b"[1]", "auto", "[1]"),
        ("text/plain", b"[1]", "json", [1]),
        ("text/plain; charset=latin-1", b"\xe9", "auto", "é"),
        ("text/plain; charset=odd", "é".encode(), "auto", "é"),
        ("text/html", b"\xff", "auto", "\ufffd"),
        ("application/octet-stream", b"\xff\x00", "auto", "/wA="),
        ("application/octet-stream", b"abc", "auto", "abc"),
        ("image/png", b"abc", "binary", "YWJj"),
    ],
)
async def test_the_body_is_read_as_asked(media, raw, how, value):
    async with stage(lambda _: (200, [("Content-Type", media)], raw)) as at:
        assert (await at.http(response_type=how)).data["body"] == value


@pytest.mark.parametrize(
    ("name", "packed"),
    [
        ("gzip", gzip.compress(b"hello" * 1000, mtime=0)),
        ("deflate", zlib.compress(b"hello" * 1000)),
        ("deflate", zlib.compressobj(wbits=-15).compress(b"") or b""),
    ],
    ids=["gzip", "deflate", "raw deflate"],
)
async def test_a_compressed_body_is_unpacked(name, packed):
    if not packed:
        raw = zlib.compressobj(wbits=-15)
        packed = raw.compress(b"hello" * 1000) + raw.flush()
    parts = [packed[:7], packed[7:]]
    async with stage(lambda _: (200, [("Content-Encoding", name)], parts)) as at:
        assert (await at.http(response_type="text")).data["body"] == "hello" * 1000


@pytest.mark.parametrize(
    ("name", "raw", "code"),
    [("br", b"x", "unsupported_encoding"), ("gzip", b"no gzip", "invalid_encoding")],
)
async def test_an_encoding_that_cannot_be_read_is_a_parse_error(name, raw, code):
    async with stage(lambda _: (200, [("Content-Encoding", name)], raw)) as at:
        outcome = await at.http()
    assert (outcome.error["kind"], outcome.error["code"]) == ("parse", code)


async def test_json_that_is_none_is_a_parse_error_with_the_text():
    async with stage(lambda _: (200, JSON, b"{oops")) as at:
        outcome = await at.http()
    assert (outcome.error["kind"], outcome.error["code"]) == ("parse", "invalid_json")
    assert outcome.error["details"] == {"body": "{oops"}
    assert outcome.http["status"] == 200


@pytest.mark.parametrize(
    ("status", "kind", "retryable"),
    [
        (400, "client_error", False), (401, "auth", False), (403, "auth", False),
        (404, "not_found", False), (409, "client_error", False), (422, "client_error", False),
        (429, "rate_limit", True), (500, "server_error", True), (503, "server_error", True),
    ],
)  # fmt: skip
async def test_a_status_that_is_not_ok_has_a_kind_and_keeps_its_body(status, kind, retryable):
    async with stage(fixed({"why": "no"}, status)) as at:
        outcome = await at.http()
    error = outcome.error
    assert (error["kind"], error["code"], error["retryable"], error["status_code"]) == (
        kind, f"http_{status}", retryable, status,
    )  # fmt: skip
    assert (error["details"], outcome.data["body"]) == ({"body": {"why": "no"}}, {"why": "no"})
    assert outcome.http["status"] == status


async def test_the_author_says_which_status_is_ok():
    async with stage(fixed({"gone": True}, 404)) as at:
        assert (await at.http(ok_status=[200, 404])).data["body"] == {"gone": True}
    async with stage(fixed({}, 200)) as at:
        assert (await at.http(ok_status=[201])).error["kind"] == "client_error"


@pytest.mark.parametrize(
    ("text", "seconds"),
    [
        ("30", 30.0),
        ((NOW + timedelta(seconds=90)).strftime("%a, %d %b %Y %H:%M:%S GMT"), 90.0),
        ((NOW - timedelta(seconds=90)).strftime("%a, %d %b %Y %H:%M:%S GMT"), 0.0),
        ("soon", None),
        ("-5", None),
    ],
)
@pytest.mark.parametrize("status", [429, 503])
async def test_the_server_says_when_to_come_again(status, text, seconds):
    async with stage(fixed({}, status, ("Retry-After", text))) as at:
        assert (await at.http()).error["retry_after_s"] == seconds


async def test_an_unchanged_answer_has_no_body():
    async with stage(lambda _: (304, [], b"")) as at:
        outcome = await at.http()
    assert (outcome.error["code"], outcome.data["body"]) == ("http_304", "")


async def test_a_large_body_of_an_error_is_cut():
    async with stage(lambda _: (500, JSON, [b'{"a":"', b"x" * 200_000, b'"}'])) as at:
        error = (await at.http()).error
    assert len(error["details"]["body"]) == 65_536


async def test_a_head_request_has_no_body():
    async with stage(fixed({})) as at:
        outcome = await at.http(method="HEAD")
    assert (outcome.data["status_code"], outcome.data["body"]) == (200, None)


# ---------------------------------------------------------------------------- size


async def test_an_answer_over_the_limit_is_refused_without_blobs():
    async with stage(lambda _: (200, [], [b"x" * 1000] * 3)) as at:
        error = (await at.http(max_bytes=2000)).error
    assert (error["kind"], error["code"]) == ("limit", "output_limit")


@pytest.mark.parametrize("config", [{"max_bytes": 2000}, {"response_type": "blob"}])
async def test_a_large_answer_goes_to_the_blobs(config):
    blobs = Blobs()
    media = [("Content-Type", "application/x-tar")]
    async with stage(lambda _: (200, media, [b"x" * 1000] * 3)) as at:
        outcome = await at.http(blobs=blobs, **config)
    digest = hashlib.sha256(b"x" * 3000).hexdigest()
    ref = f"noetl://execution/7/result/s/{digest[:32]}"
    stored = {"ref": ref, "bytes": 3000, "sha256": digest, "content_type": "application/x-tar"}
    assert (outcome.data["body"], outcome.data["data"], outcome.ref) == (stored, stored, ref)
    assert list(blobs.kept.values()) == [(b"x" * 3000, "application/x-tar")]


async def test_a_blob_needs_a_store():
    async with stage(fixed({})) as at:
        assert (await at.http(response_type="blob")).error["code"] == "no_blobs"


async def test_a_bomb_is_counted_as_it_unfolds():
    bomb = gzip.compress(b"\0" * (64 << 20))
    async with stage(lambda _: (200, [("Content-Encoding", "gzip")], bomb)) as at:
        error = (await at.http(max_bytes=1 << 20)).error
    assert error["code"] == "output_limit"


async def test_a_blob_passes_in_small_pieces():
    blobs = Blobs()
    async with stage(lambda _: (200, [], [b"y" * 100_000] * 200)) as at:
        outcome = await at.http(blobs=blobs, response_type="blob", within=30)
    assert (outcome.data["body"]["bytes"], blobs.largest <= 1 << 20) == (20_000_000, True)


# ---------------------------------------------------------------------------- requests


async def test_a_request_carries_method_headers_params_and_our_name():
    async with stage(fixed({})) as at:
        params = {"q": "a b&c", "n": 3, "on": True, "none": None, "l": [1, 2]}
        await at.http("/x?own=1", method="get", headers={"X-A": 5, "X-None": None}, params=params)
    seen = at.seen[0]
    assert (seen.method, seen.path) == ("GET", "/x")
    assert seen.query == [
        ("own", "1"), ("q", "a b&c"), ("n", "3"), ("on", "true"), ("l", "1"), ("l", "2"),
    ]  # fmt: skip
    assert (seen.headers["x-a"], "x-none" in seen.headers) == ("5", False)
    assert seen.headers["user-agent"].startswith("noetl/")
    assert seen.headers["host"] == at.base.removeprefix("http://")


@pytest.mark.parametrize(
    ("params", "query"),
    [("a=1&b=2", [("a", "1"), ("b", "2")]), ([["a", 1], ["a", 2]], [("a", "1"), ("a", "2")])],
)
async def test_params_may_be_text_or_pairs(params, query):
    async with stage(fixed({})) as at:
        await at.http(params=params)
    assert at.seen[0].query == query


@pytest.mark.parametrize(
    ("config", "media", "body"),
    [
        ({"json": {"a": 1}}, "application/json", b'{"a":1}'),
        ({"data": {"a": 1}}, "application/json", b'{"a":1}'),
        ({"payload": [1]}, "application/json", b"[1]"),
        ({"data": "raw é"}, None, "raw é".encode()),
        ({"body": "raw"}, None, b"raw"),
        ({"body": {"a": 1}}, "application/json", b'{"a":1}'),
        ({"form": {"a": "1 2", "b": [3, 4]}}, "application/x-www-form-urlencoded",
         b"a=1+2&b=3&b=4"),
        ({"json": {}, "headers": {"Content-Type": "application/vnd.x+json"}},
         "application/vnd.x+json", b"{}"),
    ],
)  # fmt: skip
async def test_the_body_is_sent_in_its_form(config, media, body):
    async with stage(fixed({})) as at:
        await at.http(method="POST", **config)
    seen = at.seen[0]
    assert (seen.headers.get("content-type"), seen.body) == (media, body)


async def test_files_are_sent_as_parts():
    blobs = Blobs()
    blobs.kept["execution/7/result/s/abc"] = (b"from a blob", "text/plain")
    files = {
        "a": {"filename": "a.txt", "content": "text", "content_type": "text/plain"},
        "b": {"content_b64": "AP8="},
        "c": "plain",
        "d": {"value": 3},
    }
    async with stage(fixed({})) as at:
        await at.http(method="POST", files=files)
        await at.http(method="POST", files=[{"name": "x", "content": "1"}])
        odd = [await at.http(method="POST", files=bad) for bad in ([{"content": 1}], 3)]
        odd += [await at.http(method="POST", files={"a": {"content_b64": "%"}})]
    body = at.seen[0].body
    assert at.seen[0].headers["content-type"].startswith("multipart/form-data; boundary=")
    assert b'name="a"; filename="a.txt"\r\nContent-Type: text/plain\r\n\r\ntext\r\n' in body
    assert b'name="b"; filename="b"' in body
    assert b"\r\n\x00\xff\r\n" in body
    assert b'name="c"; filename="c"' in body
    assert b'name="d"\r\n\r\n3\r\n' in body
    assert b'name="x"; filename="x"' in at.seen[1].body
    assert [outcome.error["code"] for outcome in odd] == ["invalid_config"] * 3


@pytest.mark.parametrize("method", ["POST", "PATCH"])
async def test_a_write_has_an_idempotency_key(method):
    async with stage(fixed({})) as at:
        await at.http(method=method)
        await at.http(method=method, headers={"idempotency-key": "mine"})
    assert [seen.headers["idempotency-key"] for seen in at.seen] == ["7/s/-/1", "mine"]


@pytest.mark.parametrize("method", ["GET", "PUT", "DELETE", "OPTIONS"])
async def test_other_methods_have_none(method):
    async with stage(fixed({})) as at:
        await at.http(method=method)
    assert "idempotency-key" not in at.seen[0].headers


@pytest.mark.parametrize(
    ("config", "place"),
    [
        ({"headers": {"X-A": "a\r\nX-B: b"}}, "/headers/x-a"),
        ({"headers": {"X-A": "a\x01b"}}, "/headers/x-a"),
        ({"headers": {"X A": "a"}}, "/headers"),
        ({"headers": {"X-é": "a"}}, "/headers"),
        ({"headers": {"Content-Length": "3"}}, "/headers/content-length"),
        ({"headers": {"Transfer-Encoding": "chunked"}}, "/headers/transfer-encoding"),
        ({"headers": {"Authorization": "x"}, "auth": {"type": "bearer", "token": "t0k3nt0k3n"}},
         "/headers"),
        ({"params": [1]}, "/params"),
        ({"auth": {"type": "odd"}}, "/auth"),
        ({"auth": {"type": "gcp_adc"}}, "/auth"),
    ],
)  # fmt: skip
async def test_what_cannot_be_sent_is_a_configuration_error(config, place):
    async with stage(fixed({})) as at:
        error = (await at.http(**config)).error
    assert (error["kind"], error["code"]) == ("config", "invalid_config")
    assert error["message"].startswith(place)
    assert at.seen == []


@pytest.mark.parametrize("url", ["example.com/a", "http://", "http://[::1", "http://a\\@b/",
                                 "http://a:99999/", "http://exa mple.com"])  # fmt: skip
async def test_what_is_no_address_is_never_sent(url):
    async with stage(fixed({})) as at:
        outcome = await at.http("", url=url)
    assert outcome.error["kind"] in {"config", "egress"}
    assert at.seen == []


async def test_blanks_around_a_header_are_not_sent():
    async with stage(fixed({})) as at:
        await at.http(headers={"X-A": " a\tb "})
    assert at.seen[0].headers["x-a"] == "a\tb"


async def test_one_connection_serves_many_requests():
    async with stage(fixed({})) as at:
        for _ in range(3):
            await at.http()
    assert (len(at.seen), at.server.connections) == (3, 1)


async def test_cookies_of_one_task_are_not_sent_by_another():
    async with stage(fixed({}, 200, ("Set-Cookie", "session=1"))) as at:
        await at.http()
        await at.http()
    assert "cookie" not in at.seen[1].headers


# ---------------------------------------------------------------------------- auth


@pytest.mark.parametrize(
    ("auth", "header", "value"),
    [
        ({"type": "bearer", "token": "t0k3nt0k3n"}, "authorization", "Bearer t0k3nt0k3n"),
        ({"token": "t0k3nt0k3n"}, "authorization", "Bearer t0k3nt0k3n"),
        ({"type": "basic", "username": "u", "password": "p:w"}, "authorization",
         "Basic dTpwOnc="),
        ({"type": "api_key", "key": "k3yk3yk3y"}, "x-api-key", "k3yk3yk3y"),
        ({"type": "api_key", "header": "X-Mine", "token": "k3yk3yk3y"}, "x-mine", "k3yk3yk3y"),
        ({"type": "bearer", "credential": "b"}, "authorization", "Bearer st0r3dst0r3d"),
        ("b", "authorization", "Bearer st0r3dst0r3d"),
        ("whole", "authorization", "Basic dTpodW50ZXIyMg=="),
        ("k", "x-k", "k3yk3yk3y"),
        ("s", "authorization", "Bearer s3cr3ts3cr3t"),
        ("o", "authorization", "Bearer acc3ssacc3ss"),
    ],
)  # fmt: skip
async def test_a_credential_becomes_a_header(auth, header, value):
    known = {
        "b": {"token": "st0r3dst0r3d"},
        "whole": {"type": "basic", "data": {"username": "u", "password": "hunter22"}},
        "k": {"type": "api_key", "header": "X-K", "key": "k3yk3yk3y"},
        "s": {"type": "secret", "value": "s3cr3ts3cr3t"},
        "o": {"type": "oauth2", "access_token": "acc3ssacc3ss"},
    }

    async def secrets(alias):
        return known[alias]

    async with stage(fixed({})) as at:
        outcome = await at.http(auth=auth, secrets=secrets)
    assert outcome.status == "ok"
    assert at.seen[0].headers[header] == value


async def test_none_means_no_proof():
    async with stage(fixed({})) as at:
        await at.http(auth={"type": "none"})
    assert "authorization" not in at.seen[0].headers


@pytest.mark.parametrize("has_store", [True, False])
async def test_an_unknown_credential_fails_before_anything_is_sent(has_store):
    async def secrets(alias):
        raise KeyError(alias)

    async with stage(fixed({})) as at:
        error = (await at.http(auth="missing", secrets=secrets if has_store else None)).error
    assert (error["kind"], error["code"]) == ("auth", "credential_not_found")
    assert at.seen == []


async def test_a_credential_without_its_field_is_named():
    async with stage(fixed({})) as at:
        error = (await at.http(auth={"type": "basic", "username": "u"})).error
    assert (error["kind"], error["code"], error["message"]) == (
        "auth", "auth_required", "/auth/password: is needed",
    )  # fmt: skip


async def test_a_server_that_echoes_a_secret_gives_none_away():
    def echo(seen):
        return reply({"said": seen.headers["authorization"]})

    async with stage(echo) as at:
        bearer = await at.http(auth={"type": "bearer", "token": "hunter22hunter"})
        basic = await at.http(auth={"username": "u", "password": "opensesame"})
    assert bearer.data["body"]["said"] in {"***", "Bearer ***"}
    assert "opensesame" not in str(basic.data)
    assert "dTpvcGVuc2VzYW1l" not in str(basic.data)


# ---------------------------------------------------------------------------- redirects


async def test_redirects_are_followed_to_the_end():
    table = {
        "/a": (302, [("Location", "/b?x=1")], b"moved"),
        "/b": (301, [("Location", "c")], b""),
    }
    async with stage(routes(table)) as at:
        outcome = await at.http("/a", auth={"token": "t0k3nt0k3n"})
    assert (outcome.data["body"], outcome.data["url"]) == ({"at": "/c"}, f"{at.base}/c")
    assert [seen.headers["authorization"] for seen in at.seen] == ["Bearer t0k3nt0k3n"] * 3


@pytest.mark.parametrize(
    ("status", "method", "becomes", "body"),
    [
        (301, "POST", "GET", b""), (302, "POST", "GET", b""), (303, "POST", "GET", b""),
        (303, "PUT", "GET", b""),
        (307, "POST", "POST", b'{"a":1}'), (308, "PUT", "PUT", b'{"a":1}'),
        (302, "PUT", "PUT", b'{"a":1}'),
    ],
)  # fmt: skip
async def test_a_redirect_keeps_or_changes_the_method(status, method, becomes, body):
    async with stage(routes({"/a": (status, [("Location", "/b")], b"")})) as at:
        await at.http("/a", method=method, json={"a": 1})
    last = at.seen[-1]
    assert (last.method, last.path, last.body) == (becomes, "/b", body)
    assert ("content-type" in last.headers) is bool(body)


async def test_six_redirects_are_too_many():
    async with stage(lambda _: (302, [("Location", "/again")], b"")) as at:
        error = (await at.http()).error
    assert (error["kind"], error["code"]) == ("client_error", "too_many_redirects")
    assert len(at.seen) == 6


async def test_five_redirects_are_not():
    def answer(seen):
        number = int(seen.path.strip("/") or 0)
        return reply({"n": 5}) if number == 5 else (302, [("Location", f"/{number + 1}")], b"")

    async with stage(answer) as at:
        assert (await at.http("/0")).data["body"] == {"n": 5}


async def test_a_redirect_that_is_not_followed_is_an_answer():
    async with stage(routes({"/a": (302, [("Location", "/b")], b"")})) as at:
        outcome = await at.http("/a", follow_redirects=False, ok_status=[302])
    assert outcome.data["headers"]["location"] == "/b"


async def test_secrets_stay_with_their_origin():
    async with stage(fixed({})) as other:
        move = {"/a": (307, [("Location", other.base + "/b")], b"")}
        async with stage(routes(move)) as at:
            await at.http("/a", auth={"token": "t0k3nt0k3n"}, headers={"Cookie": "c", "X-A": "1"})
            await at.http("/a", auth={"type": "api_key", "header": "X-Key", "key": "k3yk3yk3y"})
        first, second = other.seen
    assert "authorization" not in first.headers
    assert "cookie" not in first.headers
    assert first.headers["x-a"] == "1"
    assert "x-key" not in second.headers


# ---------------------------------------------------------------------------- the guard


async def test_the_guard_is_on_unless_it_is_opened():
    async with stage(fixed({}), egress=Egress()) as at:
        error = (await at.http()).error
    assert (error["kind"], error["code"], error["details"]["reason"]) == (
        "egress", "egress_denied", "loopback",
    )  # fmt: skip
    assert at.server.connections == 0


@pytest.mark.parametrize(
    "url",
    ["http://169.254.169.254/latest/meta-data/", "http://2852039166/", "http://[fd00:ec2::254]/",
     "http://metadata.google.internal/", "http://[::ffff:169.254.169.254]/",
     "http://alias.example/"],
)  # fmt: skip
async def test_open_reaches_no_metadata(url):
    async def alias(_host, _port):
        return ["169.254.169.254"]

    async with stage(fixed({}), resolver=alias) as at:
        error = (await at.http("", url=url)).error
    assert (error["kind"], error["details"]["reason"]) == ("egress", "metadata")


async def test_a_name_is_resolved_once_and_its_host_is_kept():
    asked = []

    async def resolver(host, _port):
        asked.append(host)
        return ["127.0.0.1"] if len(asked) == 1 else ["10.255.255.1"]

    async with stage(fixed({}), resolver=resolver) as at:
        port = at.base.rsplit(":", 1)[1]
        outcome = await at.http("", url=f"http://once.example:{port}/")
    assert (outcome.status, asked) == ("ok", ["once.example"])
    assert at.seen[0].headers["host"] == f"once.example:{port}"


async def test_the_next_address_is_tried_when_the_first_is_closed():
    async def resolver(_host, _port):
        return ["127.0.0.2", "127.0.0.1"]

    async with stage(fixed({"ok": 1}), resolver=resolver) as at:
        port = at.base.rsplit(":", 1)[1]
        assert (await at.http("", url=f"http://two.example:{port}/")).data["body"] == {"ok": 1}


# ---------------------------------------------------------------------------- connections


async def closed_port():
    server = await asyncio.start_server(lambda *_: None, "127.0.0.1", 0)
    port = server.sockets[0].getsockname()[1]
    server.close()
    await server.wait_closed()
    return port


async def test_a_closed_port_is_a_refused_connection():
    port = await closed_port()
    async with stage(fixed({})) as at:
        error = (await at.http("", url=f"http://127.0.0.1:{port}/")).error
    assert (error["kind"], error["code"], error["retryable"]) == (
        "connection", "CONN_REFUSED", True,
    )  # fmt: skip


async def test_a_dropped_connection_is_a_reset():
    async with stage(lambda _: "drop") as at:
        error = (await at.http()).error
    assert (error["kind"], error["code"]) == ("connection", "CONN_RESET")


async def test_an_unknown_name_is_a_dns_error():
    async with stage(fixed({})) as at:
        error = (await at.http("", url="http://no-such-host.invalid/")).error
    assert (error["kind"], error["code"], error["retryable"]) == ("connection", "DNS_ERROR", True)


async def test_a_silent_server_is_a_timeout():
    async with stage(lambda _: "hang") as at:
        error = (await at.http(timeout={"read": 0.1})).error
    assert (error["kind"], error["code"], error["retryable"]) == ("timeout", "tool_timeout", True)


async def test_a_slow_resolver_is_a_timeout_of_the_connection():
    async def slow(_host, _port):
        await asyncio.Event().wait()

    async with stage(fixed({}), resolver=slow) as at:
        error = (await at.http("", url="http://slow.example/", timeout={"connect": 0.05})).error
    assert (error["kind"], error["code"]) == ("timeout", "CONN_TIMEOUT")


async def test_the_deadline_of_the_task_closes_the_connection():
    async with stage(lambda _: "hang") as at:
        error = (await at.http(within=0.2)).error
        await at.server.closed.wait()
    assert (error["kind"], error["code"]) == ("timeout", "tool_timeout")


async def test_cancelling_the_task_closes_the_connection():
    async with stage(lambda _: "hang") as at:
        task = asyncio.ensure_future(at.http())
        await at.server.hangs.wait()
        task.cancel()
        with pytest.raises(asyncio.CancelledError):
            await task
        await at.server.closed.wait()


async def test_plain_text_on_a_tls_port_is_a_tls_error():
    async def plain(_reader, writer):
        writer.write(b"HTTP/1.1 400 Bad Request\r\n\r\n")
        writer.close()

    listening = await asyncio.start_server(plain, "127.0.0.1", 0)
    port = listening.sockets[0].getsockname()[1]
    async with stage(fixed({})) as at:
        error = (await at.http("", url=f"https://127.0.0.1:{port}/")).error
    listening.close()
    await listening.wait_closed()
    assert (error["kind"], error["code"], error["retryable"]) == ("connection", "TLS_ERROR", False)


@pytest.fixture(scope="module")
def certificate(tmp_path_factory):
    program = shutil.which("openssl")
    if program is None:
        pytest.skip("openssl makes the certificate")
    folder = tmp_path_factory.mktemp("tls")
    key, cert = folder / "key.pem", folder / "cert.pem"
    subprocess.run(
        [program, "req", "-x509", "-newkey", "rsa:2048", "-nodes", "-days", "2", "-subj",
         "/CN=localhost", "-keyout", str(key), "-out", str(cert)],
        check=True, capture_output=True,
    )  # fmt: skip
    context = ssl.create_default_context(ssl.Purpose.CLIENT_AUTH)
    context.load_cert_chain(cert, key)
    return context


async def test_a_certificate_is_checked_unless_the_author_says_otherwise(certificate):
    async with stage(fixed({"ok": 1}), tls=certificate) as at:
        checked = await at.http()
        open_eyed = await at.http(verify=False)
        again = await at.http()
    assert (checked.error["code"], again.error["code"]) == ("TLS_ERROR", "TLS_ERROR")
    assert open_eyed.data["body"] == {"ok": 1}


def test_nothing_of_the_client_is_imported_before_the_first_request():
    code = (
        "import sys\n"
        "from noetl.clock import SystemClock\n"
        "from noetl.tools.http.egress import Egress\n"
        "from noetl.tools.http.tool import HttpTool\n"
        "HttpTool(Egress(), SystemClock())\n"
        "print([name for name in ('httpx', 'httpcore', 'anyio') if name in sys.modules])\n"
    )
    done = subprocess.run([sys.executable, "-c", code], check=True, capture_output=True, text=True)
    assert done.stdout == "[]\n"


# ---------------------------------------------------------------------------- pages


def three_pages(seen):
    number = int(dict(seen.query).get("page", 1))
    if seen.body:
        number = json.loads(seen.body).get("page", 1)
    page = {"items": [number * 10, number * 10 + 1], "n": number}
    if number < 3:
        page |= {"next": f"{seen.path}?page={number + 1}", "cursor": number + 1}
    return reply(page)


@pytest.mark.parametrize(
    ("paginate", "config"),
    [
        ({"next": "{{ page.body.next }}"}, {}),
        ({"next": "{{ page.data.cursor }}", "into": "params", "param": "page"}, {}),
        ({"next": "{{ {'page': page.body.n + 1} if page.body.n < 3 else none }}",
          "into": "params"}, {}),
        ({"next": "{{ page.body.cursor }}", "into": "json", "param": "page"},
         {"method": "POST", "json": {"size": 2}}),
        ({"next": "{{ page.number + 1 }}", "into": "params", "param": "page",
          "until": "page.body.n >= last"}, {}),
        ({"next": "{{ page.number + 1 }}", "into": "params", "param": "page",
          "until": "{{ page.number == 3 }}"}, {}),
    ],
)  # fmt: skip
async def test_all_pages_in_their_order(paginate, config):
    scope = Scope(Names(workload={"last": 3}))
    async with stage(three_pages) as at:
        outcome = await at.http("/p", paginate={"items": "$.items", **paginate}, scope=scope,
                                **config)  # fmt: skip
    data = outcome.data
    assert (data["items"], data["pages"]) == ([10, 11, 20, 21, 30, 31], 3)
    assert data["last"]["body"]["n"] == 3
    assert [message for _, message in at.steps] == [
        "page 1, 2 items", "page 2, 4 items", "page 3, 6 items",
    ]  # fmt: skip


async def test_each_page_of_a_write_has_a_key_of_its_own():
    async with stage(three_pages) as at:
        paginate = {"next": "{{ page.body.cursor }}", "into": "json", "param": "page"}
        await at.http(method="POST", json={"size": 2}, paginate=paginate)
    keys = [seen.headers["idempotency-key"] for seen in at.seen]
    assert keys == ["7/s/-/1", "7/s/-/1/2", "7/s/-/1/3"]
    assert json.loads(at.seen[1].body) == {"size": 2, "page": 2}


async def test_a_failed_page_is_where_the_next_try_begins():
    failing = {2}

    def answer(seen):
        number = int(dict(seen.query).get("page", 1))
        if number in failing:
            failing.clear()
            return reply({"slow": "down"}, 429, ("Retry-After", "3"))
        return three_pages(seen)

    paginate = {"next": "{{ page.body.next }}", "items": "$.items"}
    async with stage(answer) as at:
        first = await at.http("/p", paginate=paginate)
        second = await at.http("/p", paginate=paginate, resume=at.kept[-1])
    assert (first.error["kind"], first.error["retry_after_s"]) == ("rate_limit", 3.0)
    assert at.kept[0] == {"items": [10, 11], "pages": 1, "next": "/p?page=2"}
    assert second.data["items"] == [10, 11, 20, 21, 30, 31]
    assert [dict(seen.query).get("page", "1") for seen in at.seen] == ["1", "2", "2", "3"]


async def test_a_state_with_a_secret_is_not_kept():
    def answer(seen):
        if seen.query:
            return reply({}, 500)
        return reply({"items": [1], "next": "/p?token=hunter22&page=2"})

    async with stage(answer) as at:
        at.redactor.add("hunter22")
        outcome = await at.http("/p", paginate={"next": "{{ page.body.next }}", "items": "$.items"})
    assert (outcome.error["code"], at.kept) == ("http_500", [])


async def test_where_a_task_is_that_runs_long_is_kept_now_and_then():
    class Slow(FakeClock):
        at = 0.0

        def monotonic(self):
            self.at += 1
            return self.at

    def answer(seen):
        number = int(dict(seen.query).get("page", 1))
        return reply({"items": [number], "next": f"/p?page={number + 1}" if number < 20 else None})

    async with stage(answer) as at:
        at.tool = HttpTool(Egress(mode="open"), Slow())
        outcome = await at.http("/p", paginate={"next": "{{ page.body.next }}", "items": "$.items"})
        await at.tool.close()
    assert outcome.data["items"] == list(range(1, 21))
    assert 2 <= len(at.kept) < 19
    assert at.kept[-1]["items"] == list(range(1, at.kept[-1]["pages"] + 1))


async def test_a_task_that_ran_out_of_time_goes_on_at_its_page():
    async with stage(lambda seen: "hang" if seen.query else three_pages(seen)) as at:
        paginate = {"next": "{{ page.body.next }}", "items": "$.items"}
        outcome = await at.http("/p", paginate=paginate, within=1)
    assert outcome.error["kind"] == "timeout"
    assert at.kept == [{"items": [10, 11], "pages": 1, "next": "/p?page=2"}]


@pytest.mark.parametrize(
    ("limits", "items", "pages"),
    [({"max_pages": 2}, [10, 11, 20, 21], 2), ({"max_items": 3}, [10, 11, 20], 2)],
)
async def test_pages_and_items_are_bounded_and_the_log_says_so(limits, items, pages):
    async with stage(three_pages) as at:
        paginate = {"next": "{{ page.body.next }}", "items": "$.items", **limits}
        outcome = await at.http("/p", paginate=paginate)
    assert (outcome.data["items"], outcome.data["pages"]) == (items, pages)
    assert [level for _, level, _ in at.lines] == ["warning"]


@pytest.mark.parametrize(
    ("paginate", "kind", "code"),
    [
        ({"next": "{{ nothing }}"}, "template", "template_undefined"),
        ({"next": "{{ page.body.n }}", "into": "params"}, "config", "invalid_config"),
        ({"next": "", "items": "$.rows"}, "schema", "no_items"),
        ({"next": "", "items": "$.n"}, "schema", "no_items"),
        ({"next": "", "items": "$..n"}, "schema", "no_items"),
    ],
)
async def test_pages_that_cannot_be_read_are_an_error(paginate, kind, code):
    async with stage(three_pages) as at:
        error = (await at.http("/p", paginate=paginate)).error
    assert (error["kind"], error["code"]) == (kind, code)


async def test_without_a_path_the_bodies_are_the_items():
    async with stage(lambda seen: reply([len(seen.query)])) as at:
        outcome = await at.http("/p", paginate={
            "next": "{{ '/p?x' if page.number == 1 else '' }}"})  # fmt: skip
    assert outcome.data["items"] == [0, 1]


async def test_a_page_must_fit_in_memory():
    paginate = {"next": "{{ page.body.next }}"}
    async with stage(three_pages) as at:
        error = (await at.http("/p", paginate=paginate, max_bytes=10, blobs=Blobs())).error
    assert (error["kind"], error["code"]) == ("limit", "output_limit")


async def test_the_next_page_gets_no_secret_of_another_origin():
    async with stage(fixed({"items": [2]})) as other:
        first = {"items": [1], "next": other.base + "/p"}
        async with stage(fixed(first)) as at:
            paginate = {"next": "{{ page.body.next }}", "items": "$.items"}
            outcome = await at.http("/p", auth={"token": "t0k3nt0k3n"}, paginate=paginate)
    assert outcome.data["items"] == [1, 2]
    assert "authorization" not in other.seen[0].headers
