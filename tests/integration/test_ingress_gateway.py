"""Deliveries to a gateway before a server, both real and in this process: who is believed.

The numbers in names are those of the acceptance in gateway.md B9.
"""

from __future__ import annotations

import asyncio
import base64
import json
from dataclasses import fields, is_dataclass

import pytest

from noetl.api.catalog import Register
from noetl.api.problems import Refused
from tests.servers.push import (
    HMAC,
    NOW,
    OLD,
    SECRET,
    body_of,
    keys_of,
    listening,
    pushed,
    signature,
    signed,
    virtually,
    yard,
)
from tests.unit.gateway.ingress import senders as by

ROUTED = {
    "directives": [
        {"header": "x-route", "controls": "dispatch.playbook", "allowed": ["hooks/other"]},
        {"header": "x-key", "controls": "idempotency_key"},
    ],
    "trace": {"propagate": "w3c", "baggage_allowlist": ["tenant"]},
}
STAMPED = {
    "type": "hmac_sha256", "secret": ["new"], "template": "{timestamp}.{body}",
    "timestamp": {"header": "x-time", "tolerance_secs": 300},
}  # fmt: skip


def stamped(at, body=b"{}"):
    """The headers of a delivery that says when it was sent."""
    return {"x-time": str(at), "x-signature": signature(b"%d." % at + body)}


# ---------------------------------------------------------------------------- one run, or none


@virtually
async def test_b01_a_signed_delivery_is_one_run_of_its_subscription(tmp_path):
    async with yard(tmp_path) as y:
        sub = await y.listen()
        told = await y.send(b'{"n": 7}')
        assert told.both == (202, "accepted"), told.body
        await y.work()

        [run] = await y.runs()
        found = await y.admin.execution(run.execution_id)
        assert told.json["execution_id"] == run.execution_id
        assert (found.status, found.pool, found.parent_execution_id) == ("COMPLETED", "shared", sub)
        assert (found.workload["n"], found.workload["subscription"]) == (7, "hooks/orders")
        about = found.workload["message"]["metadata"]
        assert (about["source"], about["mode"], about["listener"]) == ("webhook", "push", "orders")
        assert about["delivery_id"] == told.json["delivery_id"]
        kinds = [row["event_type"] for row in (await y.admin.events(run.execution_id)).items]
        assert kinds.count("subscription.message.accepted") == 1
        [row] = await y.log(sub)
        assert (row.delivery_id, row.outcome, row.status, row.execution_id) == (
            told.json["delivery_id"], "accepted", 202, run.execution_id,
        )  # fmt: skip


def _forged(body):
    """Requests that are not what they say, and why each is refused."""
    good = signature(body)
    flipped = good[:31] + ("0" if good[31] != "0" else "1") + good[32:]
    return {
        "tampered": (body[:-1] + b" }", [("x-signature", good)], "bad_signature"),
        "signature": (body, [("x-signature", flipped)], "bad_signature"),
        "missing": (body, [], "missing_signature"),
        "twice": (body, [("x-signature", good)] * 2, "ambiguous_signature"),
        "in two ways": (
            body, [("X-Signature", good), ("x-signature", flipped)], "ambiguous_signature",
        ),
    }  # fmt: skip


@virtually
async def test_b02_b03_what_is_not_verified_runs_nothing_and_no_directive_of_it_is_read(
    tmp_path, monkeypatch
):
    async with yard(tmp_path) as y:
        read = y.counted(monkeypatch)
        await y.playbook("hooks/other")
        sub = await y.listen(headers=ROUTED)
        forged = _forged(b'{"n": 1}')
        for body, pairs, reason in forged.values():
            headers = [*pairs, ("x-route", "hooks/other"), ("x-key", "k")]
            told = await y.send(body, headers)
            assert told.both == (401, reason), told.body
        assert read == []
        assert await y.runs() == []
        events = await y.told(sub, "message.rejected", count=len(forged))
        assert [row["context"]["reason"] for row in events] == [one[2] for one in forged.values()]
        assert {row["context"]["listener"] for row in events} == {"orders"}
        assert all(row["context"]["sha256"] and row["context"]["remote_ip"] for row in events)
        rows = await y.log(sub, len(forged), outcome="rejected")
        assert {row.status for row in rows} == {401}

        body = b'{"n": 1}'
        assert (await y.send(body, signed(body, x_route="hooks/other"))).status == 202
        assert len(read) == 1


@virtually
async def test_b04_a_listed_route_is_followed_and_another_is_refused_and_told(tmp_path):
    async with yard(tmp_path) as y:
        await y.playbook("hooks/other")
        sub = await y.listen(headers=ROUTED)
        for number, route in enumerate(("hooks/other", "hooks/secret", "system/x")):
            body = body_of(number)
            told = await y.send(body, signed(body, x_route=route))
            assert told.both == (202, "accepted"), told.body
        runs = await y.runs()
        assert [run.path for run in runs] == ["hooks/other", "hooks/one", "hooks/one"]
        rows = await y.log(sub, 3)
        assert [row.directives["refused"] != [] for row in reversed(rows)] == [False, True, True]
        assert [one["header"] for row in rows[:2] for one in row.directives["refused"]] == [
            "x-route", "x-route",
        ]  # fmt: skip
        log = (await y.admin.events(runs[0].execution_id)).items
        kind = "subscription.message.directives_applied"
        [row] = [row for row in log if row["event_type"] == kind]
        assert row["context"]["route_override"]["playbook"] == "hooks/other"


@pytest.mark.parametrize("name", list(by.senders()))
def test_b05_every_scheme_verifies_and_with_one_byte_changed_fails(tmp_path, name):
    sender = by.senders()[name]
    verify = _document(sender.config)
    issuer = by.issuer(_alg(sender))

    @virtually
    async def run():
        async with yard(tmp_path, fetch=keys_of(issuer)) as y:
            for alias, fields in by.SECRETS.items():
                if any(fields.values()):
                    kind = "basic" if "username" in fields else "secret"
                    await y.secret(alias, kind=kind, **fields)
            await y.listen(verify=verify)
            pairs = [(key.decode(), value.decode()) for key, value in sender.raw.headers]
            told = await y.send(sender.raw.body, pairs, query=sender.raw.query)
            assert told.both == (202, "accepted"), told.body
            changed = sender.raw.body[:-1] + b" "
            value = dict(pairs)[sender.header]
            spoilt = [(k, _spoilt(v) if k == sender.header else v) for k, v in pairs]
            tries = [(sender.raw.body, spoilt)]
            if sender.covers_body:
                tries.append((changed, pairs))
            for body, headers in tries:
                told = await y.send(body, headers)
                assert told.status == 401, (value, told.body)
            assert len(await y.runs()) == 1

    run()


def _alg(sender):
    token = (sender.raw.one("authorization") or b"").removeprefix(b"Bearer ").split(b".")[0]
    try:
        alg = json.loads(base64.urlsafe_b64decode(token + b"=="))["alg"]
    except ValueError:
        return "ES256"
    return alg if alg in {"RS256", "EdDSA"} else "ES256"


def _document(value):
    """A model as somebody writes it."""
    if not is_dataclass(value):
        return list(value) if isinstance(value, tuple) else value
    found = {one.name: getattr(value, one.name) for one in fields(value)}
    kept = {name: one for name, one in found.items() if one not in (None, (), {})}
    return {
        name.rstrip("_"): _document(one)
        for name, one in kept.items()
        if name not in {"place", "extra"}
    }


def _spoilt(text):
    """Another text of the same length, with one character changed in the last third."""
    place = len(text) - 4
    return text[:place] + ("A" if text[place] != "A" else "B") + text[place + 1 :]


@virtually
async def test_b06_both_secrets_count_in_a_rotation_and_the_old_one_no_longer(tmp_path):
    async with yard(tmp_path, gateways=2) as y:
        await y.secret("old", OLD)
        sub = await y.listen(verify={**HMAC, "secret": ["new", "old"]})
        for number, secret in enumerate((SECRET, OLD)):
            for place, gate in enumerate(y.gates):
                body = body_of([number, place])
                assert (await y.send(body, signed(body, secret), at=gate)).status == 202
        await y.listen(verify=HMAC)
        for place, gate in enumerate(y.gates):
            body = body_of(["after", place])
            assert (await y.send(body, signed(body, OLD), at=gate)).both == (401, "bad_signature")
            assert (await y.send(body, signed(body), at=gate)).status == 202
        await y.secret("new", "canary-hook-third-0123456789abcdef")
        for place, gate in enumerate(y.gates):
            body = body_of(["last", place])
            assert (await y.send(body, signed(body), at=gate)).status == 401
        assert (await y.admin.subscription(sub)).state == "ACTIVE"


@virtually
async def test_b07_a_time_that_is_too_old_too_early_or_missing_is_refused(tmp_path):
    async with yard(tmp_path) as y:
        await y.listen(verify=STAMPED)
        for number, (off, expected) in enumerate(
            [(-301, 401), (301, 401), (-298, 202), (299, 202), (0, 202)]
        ):
            body = body_of(number)
            now = int(y.clock.now().timestamp())
            told = await y.send(body, stamped(now + off, body))
            assert told.status == expected, (off, told.body)
            assert expected == 202 or told.code == "stale_timestamp"
        headers = stamped(int(y.clock.now().timestamp()))
        del headers["x-time"]
        assert (await y.send(b"{}", headers)).both == (401, "missing_timestamp")
        assert len(await y.runs()) == 3


@virtually
async def test_b08_a_captured_body_runs_no_second_time_whatever_its_headers_and_whenever(tmp_path):
    async with yard(tmp_path) as y:
        await y.playbook("hooks/other")
        await y.listen(verify={**HMAC, "id": {"header": "x-id"}}, headers=ROUTED)
        body = b'{"pay": 1}'
        first = await y.send(body, signed(body, x_id="d-1"))
        assert first.both == (202, "accepted")
        for seconds in (1, 300, 3600, 86_400):
            y.leap(seconds)
            more = {"x_id": f"d-{seconds}", "x_key": f"k-{seconds}", "x_route": "hooks/other"}
            again = await y.send(body, signed(body, **more))
            assert again.both == (202, "duplicate"), again.body
            assert again.json["execution_id"] == first.json["execution_id"]
        assert len(await y.runs()) == 1


@virtually
async def test_b09_a_sender_that_missed_its_answer_is_told_the_first_run(tmp_path):
    async with yard(tmp_path) as y:
        sub = await y.listen(verify={**HMAC, "id": {"header": "x-id"}})
        body = b'{"n": 1}'
        first = await y.send(body, signed(body, x_id="1"))
        again = await y.send(body, signed(body, x_id="1"))
        assert again.both == (202, "duplicate")
        assert again.json["execution_id"] == first.json["execution_id"]
        assert len(await y.told(sub, "message.deduplicated")) == 1

        y.behind.loses = 1  # the server has started it, and the gateway does not hear so
        body = b'{"n": 2}'
        lost = await y.send(body, signed(body, x_id="2"))
        assert lost.status == 202, lost.body
        more = await y.send(body, signed(body, x_id="2"))
        runs = await y.runs()
        assert len(runs) == 2
        assert {lost.json["execution_id"], more.json["execution_id"]} == {runs[1].execution_id}


# ---------------------------------------------------------------------------- tokens of issuers


WRONG = [
    ({"aud": "https://other"}, {}, (403, "oidc_wrong_audience")),
    ({"email": "other@project.iam.gserviceaccount.com"}, {}, (403, "oidc_wrong_sa")),
    ({"email_verified": False}, {}, (403, "oidc_unverified_email")),
    ({"iss": "https://evil.example.org"}, {}, (401, "oidc_bad_issuer")),
    ({"exp": NOW - 61}, {}, (401, "oidc_expired")),
    ({"nbf": NOW + 3600}, {}, (401, "oidc_invalid")),
    ({"iat": NOW + 3600}, {}, (401, "oidc_invalid")),
    ({}, {"kid": "unknown"}, (401, "oidc_unknown_kid")),
    ({}, {"alg": "HS256"}, (401, "oidc_malformed")),
    ({}, {"alg": "none"}, (401, "oidc_malformed")),
]


@virtually
async def test_b10_a_push_with_another_token_is_refused_for_its_reason(tmp_path):
    async with pushed(tmp_path) as (y, _, _, push):
        assert (await push(1)).status == 202
        for claims, header, expected in WRONG:
            told = await push(2, header=header, **claims)
            assert told.status == expected[0], (claims, header, told.body)
            assert told.code == expected[1] or header.get("alg"), (claims, told.body)
        assert len(await y.runs()) == 1


@virtually
async def test_b11_new_keys_count_after_one_refresh_and_strangers_cost_one_question_a_minute(
    tmp_path,
):
    async with pushed(tmp_path) as (y, _, issuer, push):
        assert (await push(1)).status == 202
        assert issuer.seen["jwks"] == 1
        issuer.rotate()
        assert (await push(2)).status == 202
        assert issuer.seen["jwks"] == 2
        before = y.clock.monotonic()
        for number in range(200):
            told = await push(3, header={"kid": f"k{number}"})
            assert told.both in {(401, "oidc_unknown_kid"), (429, "rate_limited")}
            await asyncio.sleep(0.1)
        minutes = (y.clock.monotonic() - before) / 60
        assert issuer.seen["jwks"] <= 2 + 1 + minutes
        issuer.is_down = True
        y.leap(7200)
        assert (await push(4)).status == 202  # what is known serves on
        assert len(await y.runs()) == 3


# ---------------------------------------------------------------------------- registration


@virtually
async def test_b12_a_listener_that_would_believe_anybody_is_refused_and_the_field_is_named(
    tmp_path,
):
    async with yard(tmp_path) as y:
        bad = {
            "verify": {"verify": {"type": "none"}},
            "secret": {"verify": {**HMAC, "secret": ["not an alias, a secret!"]}},
            "allowed": {
                "headers": {
                    "directives": [
                        {"header": "x-r", "controls": "dispatch.playbook", "allowed": []}
                    ]
                }
            },
            "activation": {"activation": "continuous"},
        }
        for field, document in bad.items():
            with pytest.raises(Refused) as refused:
                await y.admin.register(Register(content=listening("bad", **document)))
            assert refused.value.problem.status == 422
            assert field in json.dumps(refused.value.problem.errors, default=str), field
        await y.listen("orders")
        taken = listening("orders").replace('"hooks/orders"', '"hooks/second"')
        with pytest.raises(Refused) as refused:
            await _known(y, taken, "hooks/second")
        assert (refused.value.problem.status, refused.value.code) == (409, "listener_taken")


async def _known(y, content, path):
    await y.admin.register(Register(content=content))
    await y.admin.register_subscription(path)
