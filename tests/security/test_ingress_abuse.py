"""Abuse of webhooks over real sockets: refused as specified, without a run, and told once.

Nothing of a request that is not verified is followed: rules for headers are counted, and so are
runs, before and after.
"""

from __future__ import annotations

import asyncio
import base64
import gzip
import hashlib
import hmac
import json
import re
from collections import Counter
from contextlib import asynccontextmanager, suppress

import pytest

from noetl.edge import http as edge_http
from noetl.edge.http import Sockets
from noetl.gateway.ingress import reading
from noetl.gateway.ingress.accounts import MOST_SHOWN, MOST_TOLD
from noetl.gateway.process import BOUNDS, MESSAGE_BYTES
from tests.fakes.issuer import Issuer
from tests.servers.push import HMAC, SECRET, signature, signed, virtually, yard
from tests.unit.gateway.desk import through
from tests.unit.gateway.ingress import senders as by
from tests.unit.gateway.served import served

WAIT_S = 20
GB = 1 << 30
BODY = '{"id": 1, "to": "café", "amount": 12.50}'.encode()
ROUTED = {
    "directives": [
        {"header": "x-route", "controls": "dispatch.playbook", "allowed": ["hooks/other"]},
        {"header": "x-key", "controls": "idempotency_key"},
    ]
}
STEER = [("X-Route", "hooks/other"), ("X-Key", "chosen-by-a-stranger")]
STAMPED = {
    **HMAC, "template": "{timestamp}.{body}",
    "timestamp": {"header": "x-time", "tolerance_secs": 300},
}  # fmt: skip


class Stage:
    """A gateway on a socket, and listeners of several schemes."""

    def __init__(self, y, url, issuer, subs, read):
        self.yard = y
        self.port = int(url.rpartition(":")[2])
        self.issuer = issuer
        self.subs = subs
        self.read = read
        """Calls of the rules for headers."""

    async def say(self, *parts):
        """What comes back until the connection ends."""
        reader, writer = await asyncio.open_connection("127.0.0.1", self.port)
        try:
            for part in parts:
                writer.write(part)
                await writer.drain()
            async with asyncio.timeout(WAIT_S):
                return await reader.read()
        finally:
            writer.close()

    async def post(self, to, body, headers=(), path="", method="POST"):
        """Status and code of the answer to a request that is exactly so."""
        lines = [
            f"{method} {path or '/ingress/' + to} HTTP/1.1", "Host: gate", "Connection: close",
            *(f"{name}: {value}" for name, value in headers), f"Content-Length: {len(body)}",
        ]  # fmt: skip
        return answered(await self.say("\r\n".join([*lines, "", ""]).encode() + body))

    async def runs(self):
        return (await self.yard.admin.executions(limit=200)).items

    async def told(self):
        """Listeners and reasons of all that was rejected: as rows of the log, and as events."""
        rows, events = Counter(), Counter()
        for name, sub in self.subs.items():
            page = await self.yard.admin.deliveries(sub, limit=200, outcome="rejected")
            rows.update((name, row.reason) for row in page.items)
            for event in await self.yard.events(sub, "message.rejected"):
                about = event["context"]
                assert (about["listener"], about["remote_ip"]) == (name, "127.0.0.1")
                events[name, about["reason"]] += 1
        return rows, events

    @asynccontextmanager
    async def nothing(self, to="orders", *, but=0, **reasons):
        """No run and no rule read inside of the block, and each rejection told once.

        It is a row and an event each, of one minute and reason as many as may be. The block may
        count more reasons in what it is given; `but` is how many good ones it sends.
        """
        runs, read = await self.runs(), len(self.read)
        (rows, _), more = await self.told(), Counter(reasons)
        yield more
        rows.update({(to, reason): count for reason, count in more.items()})
        assert max(rows.values(), default=0) <= MOST_SHOWN
        expected = rows, Counter({key: min(count, MOST_TOLD) for key, count in rows.items()})
        async with asyncio.timeout(WAIT_S):
            while not _are_reached(found := await self.told(), expected):  # noqa: ASYNC110 - nobody tells of it
                await asyncio.sleep(0.02)
        assert found == expected
        assert len(await self.runs()) == len(runs) + but
        assert len(self.read) == read + but


def _are_reached(found, expected):
    return all(one >= other for one, other in zip(found, expected, strict=True))


def answered(text):
    match = re.match(rb"HTTP/1\.1 (\d+)", text)
    assert match, text[:200]
    body = text.partition(b"\r\n\r\n")[2]
    try:
        told = json.loads(body)
    except ValueError:
        return int(match[1]), ""
    return int(match[1]), told.get("code") or told.get("status")


@pytest.fixture
async def stage(tmp_path, monkeypatch):
    issuer = Issuer(by.ISSUER, "RS256")
    async with yard(tmp_path, fetch=through(issuer.app)) as y:
        issuer.clock = y.clock
        await y.playbook("hooks/other")
        await y.secret("pem", issuer.key.as_pem(private=False).decode())
        jwt = {"type": "jwt", "issuer": by.ISSUER, "audience": by.AUDIENCE}
        verify = {
            "orders": HMAC, "stamped": STAMPED, "tokens": jwt,
            "pinned": {**jwt, "key": ["pem"], "algorithms": ["rs256"]},
        }  # fmt: skip
        subs = {
            name: await y.listen(name, verify=one, headers=ROUTED) for name, one in verify.items()
        }
        sockets = Sockets(most_bytes=MESSAGE_BYTES, ping_s=30.0)
        async with served(y.gate.gateway.asgi, bounds=BOUNDS, sockets=sockets) as url:
            yield Stage(y, url, issuer, subs, y.counted(monkeypatch))


# ---------------------------------------------------------------------------- bodies, signatures


def _bodies():
    """The body of somebody else, changed in every way that means the same or nearly so."""
    told = json.loads(BODY)
    return {
        "tampered": BODY.replace(b"12.50", b"92.50"),
        "truncated": BODY[:-1],
        "empty": b"",
        "longer": BODY + b"\n",
        "behind a mark": b"\xef\xbb\xbf" + BODY,
        "escaped": json.dumps(told).encode(),
        "compact": json.dumps(told, separators=(",", ":"), ensure_ascii=False).encode(),
        "re-ordered": json.dumps(dict(reversed(told.items())), ensure_ascii=False).encode(),
        "another number": BODY.replace(b"12.50", b"12.5"),
        "latin-1": BODY.decode().encode("latin-1"),
        "utf-16": BODY.decode().encode("utf-16"),
        "decomposed": BODY.replace("é".encode(), "e\u0301".encode()),
        "twice": BODY + BODY,
        "gzip": gzip.compress(BODY, mtime=0),
    }


async def test_a_body_that_is_not_the_one_that_was_signed_is_refused(stage):
    bodies = _bodies()
    async with stage.nothing(bad_signature=len(bodies)):
        for name, body in bodies.items():
            headers = [("X-Signature", signature(BODY)), *STEER]
            if name == "gzip":  # what is signed are the bytes as they come
                headers.append(("Content-Encoding", "gzip"))
            assert await stage.post("orders", body, headers) == (401, "bad_signature"), name


def _signatures():
    good = signature(BODY)
    raw = bytes.fromhex(good)
    return {
        "sha1": hmac.digest(SECRET.encode(), BODY, "sha1").hex(),
        "sha512": signature(BODY, algorithm="sha512"),
        "md5": hmac.digest(SECRET.encode(), BODY, "md5").hex(),
        "named sha1": f"sha1={good}",
        "named none": f"none={good}",
        "no key": hmac.digest(b"", BODY, "sha256").hex(),
        "plain hash": hashlib.sha256(BODY).hexdigest(),
        "secret before": hashlib.sha256(SECRET.encode() + BODY).hexdigest(),
        "base64": base64.b64encode(raw).decode(),
        "short": good[:-2],
        "long": good + "00",
        "zeros": "0" * 64,
        "many": f"{good},{good}",
        "listed": f"{'0' * 64}, {good}",
        "quoted": f'"{good}"',
        "in fullwidth": "".join(chr(ord(c) + 0xFEE0) for c in good)
        .encode()
        .decode("latin-1", "replace"),
        "percent": "%%%",
        "brace": "{{ secret }}",
    }


async def test_a_signature_of_another_kind_or_shape_is_refused(stage):
    found = _signatures()
    async with stage.nothing(bad_signature=len(found)):
        for name, text in found.items():
            reader = [("X-Signature", text.encode("latin-1", "replace").decode("latin-1")), *STEER]
            assert await stage.post("orders", BODY, reader) == (401, "bad_signature"), name
    async with stage.nothing(missing_signature=3):
        for headers in ([], [("X-Signature", "")], [("X-Signature-256", signature(BODY))]):
            assert (await stage.post("orders", BODY, [*headers, *STEER]))[0] == 401


async def test_a_header_that_comes_twice_proves_nothing(stage):
    good, bad = ("X-Signature", signature(BODY)), ("x-signature", "0" * 64)
    async with stage.nothing(ambiguous_signature=4):
        for pair in ([good, good], [good, bad], [bad, good], [good, bad, good]):
            told = await stage.post("orders", BODY, [*pair, *STEER])
            assert told == (401, "ambiguous_signature"), pair
    now = int(stage.yard.clock.now().timestamp())
    mark = ("X-Signature", signature(b"%d." % now + BODY))
    times = [("X-Time", str(now)), ("X-Time", str(now + 1))]
    async with stage.nothing("stamped", ambiguous_signature=2):
        for pair in (times, times[::-1]):
            assert (await stage.post("stamped", BODY, [mark, *pair, *STEER]))[0] == 401
    token = ("Authorization", f"Bearer {_token(stage)}")
    async with stage.nothing("tokens", ambiguous_signature=1):
        told = await stage.post("tokens", BODY, [token, token, *STEER])
        assert told == (401, "ambiguous_signature")


# ---------------------------------------------------------------------------- tokens


def _claims(stage, **more):
    now = int(stage.yard.clock.now().timestamp())
    told = {"iss": by.ISSUER, "aud": by.AUDIENCE, "iat": now, "exp": now + 60, **more}
    return {name: value for name, value in told.items() if value is not None}


def _token(stage, header=None, **claims):
    return stage.issuer.signed(_claims(stage, **claims), **(header or {}))


def _as_hs256(stage, secret):
    """A token under the public key of the issuer, as if that were a secret."""
    return by.hs256_token(_claims(stage), secret, kid=stage.issuer.key.kid)


def _tokens(stage):
    now = int(stage.yard.clock.now().timestamp())
    key = stage.issuer.key
    pem = key.as_pem(private=False)
    whole = _token(stage)
    head, body, mark = whole.split(".")
    stranger = Issuer("https://evil.example.org", "RS256")
    own = stranger.key.as_dict(private=False)
    return {
        "none": _token(stage, {"alg": "none"}),
        "None": _token(stage, {"alg": "none"}).replace(head, _b64({"alg": "NoNe", "kid": key.kid})),
        "no signature": f"{head}.{body}.",
        "confused with PEM": _as_hs256(stage, pem),
        "confused with stripped PEM": _as_hs256(stage, pem.strip()),
        "confused with JWK": _as_hs256(stage, json.dumps(key.as_dict(private=False)).encode()),
        "expired": _token(stage, exp=now - 61),
        "too early": _token(stage, nbf=now + 3600),
        "issued later": _token(stage, iat=now + 3600),
        "never ends": _token(stage, exp=None),
        "another audience": _token(stage, aud="https://other"),
        "another issuer": _token(stage, iss="https://evil.example.org"),
        "unknown key": _token(stage, {"kid": "../../etc/passwd"}),
        "key of its own": stranger.signed(_claims(stage), jwk=own, kid=key.kid),
        "key elsewhere": stranger.signed(
            _claims(stage), jku="https://evil.example.org/jwks", kid=key.kid
        ),
        "changed": f"{head}.{_b64(_claims(stage, sub='root'))}.{mark}",
        "four parts": f"{whole}.x",
        "two parts": f"{head}.{body}",
        "empty": "",
    }


def _b64(value):
    return base64.urlsafe_b64encode(json.dumps(value).encode()).rstrip(b"=").decode()


async def test_a_token_that_its_issuer_has_not_made_for_us_and_now_is_refused(stage):
    for to in ("tokens", "pinned"):
        found = _tokens(stage)
        if to == "pinned":  # there is one key, whatever its name
            del found["unknown key"]
        async with stage.nothing(to) as seen:
            for name, token in found.items():
                headers = [("Authorization", f"Bearer {token}"), *STEER]
                status, code = await stage.post(to, BODY, headers)
                assert status in {401, 403}, (to, name, status)
                assert (status == 403) == (code == "oidc_wrong_audience"), (name, code)
                seen[code] += 1
    good = [("Authorization", f"Bearer {_token(stage)}"), *STEER]
    assert await stage.post("tokens", BODY, good) == (202, "accepted")
    assert len(stage.read) == 1


async def test_keys_that_nobody_has_are_asked_for_once(stage):
    good = [("Authorization", f"Bearer {_token(stage)}")]
    assert (await stage.post("tokens", BODY, good))[0] == 202
    before = stage.issuer.seen["jwks"]
    async with stage.nothing("tokens", oidc_unknown_kid=60):
        for number in range(60):
            token = _token(stage, {"kid": f"k-{number}"})
            headers = [("Authorization", f"Bearer {token}"), *STEER]
            assert await stage.post("tokens", BODY, headers) == (401, "oidc_unknown_kid")
        assert stage.issuer.seen["jwks"] <= before + 1


# ---------------------------------------------------------------------------- replays


@virtually
async def test_what_was_captured_runs_no_second_time_in_any_second_nor_after_a_restart(tmp_path):
    async with yard(tmp_path) as y:
        await y.listen()
        await y.listen("stamped", verify=STAMPED)
        now = int(y.clock.now().timestamp())
        headers = {"x-time": str(now), "x-signature": signature(b"%d." % now + BODY)}
        plain = await y.send(BODY, signed(BODY))
        timed = await y.send(BODY, headers, to="stamped")
        assert (plain.code, timed.code) == ("accepted", "accepted")
        await asyncio.sleep(1)
        for told, first in (
            (await y.send(BODY, signed(BODY)), plain),
            (await y.send(BODY, headers, to="stamped"), timed),
        ):
            assert told.both == (202, "duplicate")
            assert told.json["execution_id"] == first.json["execution_id"]
        async with y.gateway("again") as other:
            for to, sent in (("orders", signed(BODY)), ("stamped", headers)):
                assert (await y.send(BODY, sent, to=to, at=other)).both == (202, "duplicate")
            await asyncio.sleep(300)
            assert (await y.send(BODY, headers, to="stamped", at=other)).both == (
                401, "stale_timestamp",
            )  # fmt: skip
            assert (await y.send(BODY, signed(BODY), at=other)).both == (202, "duplicate")
        later = {**headers, "x-time": str(now + 301)}
        assert (await y.send(BODY, later, to="stamped")).both == (401, "bad_signature")
        assert len(await y.runs()) + len(await y.runs("stamped")) == 2


# ---------------------------------------------------------------------------- paths, floods


PATHS = (
    "/ingress/ORDERS", "/ingress/orders/", "/ingress//orders", "//ingress/orders",
    "/ingress/./orders", "/ingress/x/../orders", "/ingress/orders%00", "/ingress/orders%2f",
    "/ingress/orders%2f..%2fstamped", "/ingress/..%2fingress%2forders", "/ingress/orders;x=1",
    "/ingress/orders%20", "/ingress/%6frders%0d%0aX:1", "/ingress/", "/ingress",
    "/ingress/orders*", "/ingress/*", "/ingress/orders.json", "/ingress/-orders",
    "/ingress/" + "a" * 64, "/INGRESS/orders", "/ingress/ordérs", "/ingress/..", "/ingress/%2e%2e",
)  # fmt: skip


async def test_another_spelling_of_a_path_leads_nowhere(stage):
    headers = [("X-Signature", signature(BODY)), *STEER]
    async with stage.nothing():
        for path in PATHS:
            status, _ = await stage.post("", BODY, headers, path=path)
            assert status in {400, 404, 405}, (path, status)
        for path in ("/api/internal/ingress/orders", "/api/internal/ingress/orders/again"):
            for method in ("GET", "POST"):
                status, _ = await stage.post("", b"{}", headers, path=path, method=method)
                assert status in {401, 403, 404, 405}, (path, method, status)


async def test_another_method_leads_nowhere(stage):
    headers = [("X-Signature", signature(BODY)), *STEER]
    async with stage.nothing(bad_method=2):  # GET and OPTIONS, with which some senders shake hands
        for method in ("GET", "OPTIONS", "PUT", "DELETE", "PATCH", "HEAD"):
            status, _ = await stage.post("orders", BODY, headers, method=method)
            assert status == 405, method


async def test_a_body_without_end_is_read_to_its_limit_and_no_further(stage):
    async with stage.nothing(body_too_large=2):
        await _endless(stage)
        said = {"X-Signature": "0", "Content-Length": str(GB)}
        head = "".join(f"{name}: {value}\r\n" for name, value in said.items())
        told = await stage.say(f"POST /ingress/orders HTTP/1.1\r\nHost: x\r\n{head}\r\n".encode())
        assert answered(told) == (413, "body_too_large")


async def _endless(stage):
    reader, writer = await asyncio.open_connection("127.0.0.1", stage.port)
    chunk = b"10000\r\n" + bytes(65_536) + b"\r\n"
    sent = 0
    try:
        writer.write(
            b"POST /ingress/orders HTTP/1.1\r\nHost: x\r\nX-Signature: 0\r\n"
            b"Transfer-Encoding: chunked\r\n\r\n"
        )
        async with asyncio.timeout(WAIT_S):
            answer = asyncio.create_task(reader.read(12))
            while sent < GB and not answer.done():
                try:
                    writer.write(chunk)
                    await writer.drain()
                except ConnectionError:
                    break
                sent += 65_536
                await asyncio.sleep(0)
            assert await answer == b"HTTP/1.1 413"
        assert sent < 16 << 20  # the limit, and what the kernel holds
    finally:
        writer.close()


async def test_heads_and_bodies_that_drip_keep_nobody_waiting(stage, monkeypatch):
    monkeypatch.setattr(edge_http, "HEAD_S", 0.5)
    monkeypatch.setattr(reading, "BODY_S", 0.5)
    head = b"POST /ingress/orders HTTP/1.1\r\nHost: x\r\nX-Signature: 0\r\n"
    # A head that has not come is nobody's: it says neither which listener nor which rules.
    starts = [head + b"X-A: ", head + b"Content-Length: 100\r\n\r\n{"] * 30
    async with stage.nothing(body_timeout=30, but=1):
        opened = [await asyncio.open_connection("127.0.0.1", stage.port) for _ in starts]
        try:
            for (_, writer), start in zip(opened, starts, strict=True):
                writer.write(start)
            told = await stage.post("orders", BODY, [("X-Signature", signature(BODY))])
            assert told == (202, "accepted")
            async with asyncio.timeout(WAIT_S):
                answers = await asyncio.gather(*(reader.read(12) for reader, _ in opened))
            assert set(answers) == {b"HTTP/1.1 408"}
        finally:
            for _, writer in opened:
                writer.close()


async def test_a_flood_of_one_address_is_read_slowly_and_nobody_else_is(stage):
    one = (
        b"POST /ingress/orders HTTP/1.1\r\nHost: x\r\nX-Signature: 0\r\nContent-Length: 2\r\n\r\n{}"
    )
    reader, writer = await asyncio.open_connection(
        "127.0.0.1", stage.port, local_addr=("127.0.0.9", 0)
    )
    try:
        writer.write(one * 1000)
        told = b""
        async with asyncio.timeout(WAIT_S):
            while b"HTTP/1.1 429" not in told:
                told += await reader.read(65_536)
        good = await stage.post("orders", BODY, [("X-Signature", signature(BODY))])
        assert good == (202, "accepted")
        with suppress(TimeoutError):
            async with asyncio.timeout(0.5):
                while data := await reader.read(65_536):
                    told += data
        assert told.count(b"HTTP/1.1 429") == 1
        assert told.count(b"HTTP/1.1 401") <= 150
    finally:
        writer.close()
