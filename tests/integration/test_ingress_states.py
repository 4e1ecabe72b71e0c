"""Deliveries to a gateway before a server, both in this process: limits, outages, and the spool.

The numbers in names are those of the acceptance in gateway.md B9.
"""

from __future__ import annotations

import asyncio
import gzip
from collections import Counter
from itertools import pairwise

import pytest

from noetl.api.ingress import DeliveryFilter, ReplayDeliveries
from noetl.api.problems import Refused
from noetl.gateway.person import Person
from tests.servers.push import HMAC, NOW, body_of, signed, virtually, yard

MIB = 1 << 20
THROWN_AWAY = 4 * MIB
"""So much of a body may be read in vain, so that who sends it sees the answer."""
DISK = {
    "mode": "buffer_and_ack", "backend": "local_disk", "path": "spool",
    "ordering_key": "message.data.key",
}  # fmt: skip
SHARED = {
    "mode": "buffer_and_ack", "backend": "nats_object", "bucket": "spool-shared",
    "ordering_key": "message.data.key",
}  # fmt: skip
QUICK = {"circuit": {"trip_after": 5, "probe_after_ms": 1000, "probe_interval_ms": 500}}
DEVELOPER = Person(user_id="7", subject="dev", roles=("developer",))
VIEWER = Person(user_id="8", subject="vic", roles=("viewer",))


def numbered(number, keys=3):
    """The body of one of several deliveries, of a key in turn."""
    return body_of({"n": number, "key": f"k-{number % keys}"})


async def numbers(y, name="orders"):
    """The numbers of the deliveries that became runs, by key, in the order of their runs."""
    found = {}
    for run in await y.runs(name):
        workload = (await y.admin.execution(run.execution_id)).workload
        found.setdefault(workload["key"], []).append(workload["n"])
    return found


def in_order(count, keys=3):
    return {f"k-{key}": list(range(key, count, keys)) for key in range(min(keys, count))}


# ---------------------------------------------------------------------------- bodies


async def _endless(size, taken):
    while True:
        taken.append(size)
        yield bytes(size)


async def _drop_by_drop():
    while True:
        await asyncio.sleep(1)
        yield b"x"


@virtually
async def test_b13_a_body_is_read_no_further_than_it_may_go(tmp_path):
    async with yard(tmp_path) as y:
        sub = await y.listen()
        large, taken = bytes(2 * MIB), []
        assert (await y.send(large)).both == (413, "body_too_large")
        liar = {"x-signature": "0" * 64, "content-length": str(2 * MIB)}
        told = await y.send(b"", liar, parts=_endless(65_536, taken))
        assert told.both == (413, "body_too_large")
        assert sum(taken) <= THROWN_AWAY + 65_536
        taken.clear()
        told = await y.send(b"", {"x-signature": "0" * 64}, parts=_endless(65_536, taken))
        assert told.both == (413, "body_too_large")
        assert sum(taken) <= MIB + THROWN_AWAY + 2 * 65_536
        huge = {"x-signature": "0" * 64, "content-length": str(11 * MIB)}
        taken.clear()
        told = await y.send(b"", huge, to="nobody-knows", parts=_endless(65_536, taken))
        assert (told.status, taken) == (413, [])
        bomb = gzip.compress(bytes(64 * MIB))
        packed = {**signed(bomb), "content-encoding": "gzip"}
        assert (await y.send(bomb, packed)).status == 413
        fits = gzip.compress(body_of({"n": list(range(400))}))
        packed = {**signed(fits), "content-encoding": "gzip"}
        assert (await y.send(fits, packed)).both == (202, "accepted")
        for encoding in ("br", "gzip, gzip", "deflate"):
            told = await y.send(b"{}", {**signed(b"{}"), "content-encoding": encoding})
            assert told.status == 415, encoding

        before = y.clock.monotonic()
        told = await y.send(b"", {"x-signature": "0" * 64}, parts=_drop_by_drop())
        assert told.both == (408, "body_timeout")
        assert 9 <= y.clock.monotonic() - before <= 12
        assert len(await y.runs()) == 1
        assert len(await y.log(sub, 2, outcome="rejected")) >= 2


@virtually
async def test_b14_names_that_nobody_has_cost_one_label_and_one_question_each(tmp_path):
    async with yard(tmp_path) as y:
        names = [f"name-{number}" for number in range(10_000)]
        for name in names:
            told = await y.send(to=name)
            assert told.both == (404, "unknown_listener"), told.body
        for name in names[-50:]:
            assert (await y.send(to=name)).status == 404
        asked = [y.behind.seen[f"/api/internal/ingress/{name}"] for name in names]
        assert max(asked) == 1
        lines = await y.metrics()
        assert "name-" not in "".join(lines)
        assert any('subscription="unknown"' in line for line in lines)
        await asyncio.sleep(11)
        assert (await y.send(to="name-1")).status == 404
        assert y.behind.seen["/api/internal/ingress/name-1"] == 2


@virtually
async def test_b15_a_flood_is_held_back_where_it_comes_from_and_nobody_else_is(tmp_path):
    async with yard(tmp_path) as y:
        await y.listen()
        await y.listen("other", verify=HMAC)
        bad = {"x-signature": "0" * 64}
        flood = [await y.send(b"{}", bad, peer="198.51.100.1") for _ in range(300)]
        found = Counter(told.both for told in flood)
        assert set(found) == {(401, "bad_signature"), (429, "rate_limited")}
        assert found[401, "bad_signature"] <= 110
        assert all(int(told.headers["retry-after"]) >= 1 for told in flood if told.status == 429)
        body = b'{"n": 1}'
        assert (await y.send(body, peer="198.51.100.1")).status == 429
        assert (await y.send(body, peer="198.51.100.2")).status == 202
        assert (await y.send(body, peer="198.51.100.1", to="other")).status == 202


# ---------------------------------------------------------------------------- states


@virtually
async def test_b16_a_paused_listener_keeps_or_refuses_and_a_deactivated_one_is_gone(tmp_path):
    async with yard(tmp_path) as y:
        off = await y.listen("off", verify=HMAC)
        sub = await y.listen(spool=DISK)
        for one in (off, sub):
            await y.admin.steer_subscription(one, "pause")
        told = await y.send(to="off")
        assert told.both == (503, "not_active")
        assert told.headers["retry-after"] == "30"
        for number in range(9):
            told = await y.send(numbered(number))
            assert told.both == (202, "spooled"), told.body
            assert told.json["spool_ref"].startswith("noetl://spool/")
        assert await y.runs() == []
        await y.admin.steer_subscription(sub, "resume")
        async with y.worked():
            await y.until(y.runs, 9)
            await y.told(sub, "spool.drained")  # until then what comes is kept behind it
        assert await numbers(y) == in_order(9)
        assert len(await y.events(sub, "message.spooled")) == 9
        again = await y.send(numbered(4))
        assert again.both == (202, "duplicate")
        for one, name in ((off, "off"), (sub, "orders")):
            await y.admin.steer_subscription(one, "deactivate")
            assert (await y.send(to=name)).both == (410, "deactivated")


@virtually
async def test_a_registered_listener_that_nobody_has_activated_keeps_what_comes(tmp_path):
    async with yard(tmp_path) as y:
        sub = await y.listen(spool=DISK, is_active=False)
        assert (await y.send()).both == (202, "spooled")
        assert await y.runs() == []
        await y.admin.steer_subscription(sub, "activate")
        assert len(await y.until(y.runs)) == 1


@virtually
async def test_b18_a_spool_that_cannot_keep_is_never_told_as_kept(tmp_path):
    async with yard(tmp_path) as y:
        sub = await y.listen(spool=DISK)
        await y.admin.steer_subscription(sub, "pause")
        assert (await y.send(numbered(0))).status == 202
        folder = tmp_path / "g0" / "spool"
        aside = folder.rename(folder.with_name("aside"))
        folder.write_text("a file in the place of the folder")
        for number in (1, 2):
            told = await y.send(numbered(number))
            assert told.status == 503, told.body
            assert int(told.headers["retry-after"]) >= 1
        folder.unlink()
        aside.rename(folder)
        assert (await y.send(numbered(1))).both == (202, "spooled")
        await y.admin.steer_subscription(sub, "resume")
        async with y.worked():
            await y.until(y.runs, 2)
        found = await numbers(y)
        assert sorted(n for listed in found.values() for n in listed) == [0, 1]


@virtually
async def test_b19_five_outages_over_two_replicas_open_one_circuit_and_one_probe_closes_it(
    tmp_path,
):
    async with yard(tmp_path, gateways=2) as y:
        sub = await y.listen(spool={**SHARED, **QUICK})
        for number, gate in enumerate(y.gates):  # both know of it
            assert (await y.send(numbered(number), at=gate)).status == 202
        y.behind.status = 503
        for number in range(2, 8):
            told = await y.send(numbered(number), at=y.gates[number % 2])
            assert told.both == (202, "spooled"), told.body
        opened = await y.told(sub, "circuit.opened")
        assert len(opened) == 1
        before = y.behind.asked("/api/execute")
        for number in range(8, 12):
            assert (await y.send(numbered(number), at=y.gates[number % 2])).status == 202
        await asyncio.sleep(0.4)
        assert y.behind.asked("/api/execute") - before <= 2  # only somebody who probes
        y.behind.status = 0
        async with y.worked():
            await y.until(y.runs, 12)
        closed = await y.told(sub, "circuit.closed")
        assert len(closed) == 1
        kinds = [row["event_type"].partition(".")[2] for row in await y.events(sub)]
        assert kinds.count("message.spooled") == 10
        assert kinds.index("circuit.opened") < kinds.index("circuit.closed")
        assert "spool.draining" in kinds
        assert sorted(n for listed in (await numbers(y)).values() for n in listed) == [*range(12)]


@virtually
async def test_replicas_with_a_volume_each_both_send_out_what_they_have_kept(tmp_path):
    async with yard(tmp_path, gateways=2) as y:
        sub = await y.listen(spool=DISK)
        await y.admin.steer_subscription(sub, "pause")
        for number in range(6):
            told = await y.send(numbered(number), at=y.gates[number % 2])
            assert told.both == (202, "spooled"), told.body
        await y.admin.steer_subscription(sub, "resume")
        async with y.worked():
            await y.until(y.runs, 6)
        assert sorted(n for listed in (await numbers(y)).values() for n in listed) == [*range(6)]


@virtually
async def test_b26_a_playbook_that_is_missing_is_the_operators_fault(tmp_path):
    async with yard(tmp_path) as y:
        off = await y.listen("off", verify=HMAC, dispatch="hooks/missing")
        sub = await y.listen(spool=DISK, dispatch="hooks/missing")
        body = b'{"canary": "canary-of-the-body"}'
        told = await y.send(body, to="off")
        assert told.both == (502, "dispatch_failed")
        assert b"canary" not in told.body
        assert b"hooks/missing" not in told.body
        told = await y.send(body)
        assert told.status == 202, told.body
        assert b"canary" not in told.body
        assert len(await y.told(sub, "message.dead_lettered")) == 1
        [letter] = (await y.admin.dead_letters(sub)).items
        assert letter.reason
        assert await y.runs() == []
        assert len(await y.log(off)) == 1


# ---------------------------------------------------------------------------- what is known


@virtually
async def test_b27_a_deactivation_counts_everywhere_at_once_and_without_hints_in_half_a_minute(
    tmp_path,
):
    async with yard(tmp_path, gateways=2) as y:
        for name in ("hinted", "silent"):
            await y.listen(name, verify=HMAC)
        for gate in y.gates:
            for name in ("hinted", "silent"):
                assert (await y.send(to=name, at=gate)).status == 202
        await _deactivate(y, "hinted")
        await asyncio.sleep(2)
        for gate in y.gates:
            assert (await y.send(to="hinted", at=gate)).status == 410

        publish, y.server.bus.publish = y.server.bus.publish, _nothing
        await _deactivate(y, "silent")
        y.server.bus.publish = publish
        await asyncio.sleep(31)
        for gate in y.gates:
            assert (await y.send(to="silent", at=gate)).status == 410


async def _deactivate(y, name):
    known = await y.admin.register_subscription(f"hooks/{name}")
    await y.admin.steer_subscription(known.subscription_id, "deactivate")


async def _nothing(*_, **__):
    """Nobody is told."""


@virtually
async def test_b28_without_a_server_who_is_known_is_kept_and_who_is_not_is_sent_away(tmp_path):
    async with yard(tmp_path) as y:
        await y.listen(spool=DISK)
        await y.listen("unseen", verify=HMAC)
        async with y.gateway("late") as late:  # it was told of nobody
            assert (await y.send(numbered(0))).both == (202, "accepted")
            y.behind.is_away = True
            for number in range(1, 11):
                y.leap(60)
                told = await y.send(numbered(number))
                assert told.both == (202, "spooled"), (number, told.body)
                bad = await y.send(numbered(number), {"x-signature": "0" * 64})
                assert bad.status == 401
            told = await y.send(to="unseen", at=late)
            assert told.both == (503, "config_unavailable")
            assert int(told.headers["retry-after"]) >= 1
            y.leap(3600)
            told = await y.send(numbered(11))
            assert told.both == (503, "config_unavailable")
        y.behind.is_away = False
        async with y.worked():
            await y.until(y.runs, 11, within_s=600)
        assert await numbers(y) == in_order(11)
        assert (await y.send(numbered(11))).status == 202


# ---------------------------------------------------------------------------- replays and figures


@virtually
async def test_b29_replays_work_for_a_developer_are_audited_and_refused_to_a_viewer(tmp_path):
    async with yard(tmp_path) as y:
        sub = await y.listen(ingress={"keep_rejected": True})
        first = None
        for number in range(51):
            told = await y.send(numbered(number), peer=f"192.0.2.{number}")
            assert told.status == 202, told.body
            first = first or told.json
        await y.log(sub, 51)
        developer, viewer = y.direct.acting_for(DEVELOPER), y.direct.acting_for(VIEWER)
        with pytest.raises(Refused) as refused:
            await viewer.replay_delivery(sub, first["delivery_id"])
        assert refused.value.problem.status == 403
        with pytest.raises(Refused):
            await viewer.replay_deliveries(sub, ReplayDeliveries(filter=DeliveryFilter()))

        one = await developer.replay_delivery(sub, first["delivery_id"], reason="a test")
        assert one.status == "started", one
        assert one.execution_id != first["execution_id"]
        [start] = (await y.admin.events(one.execution_id, limit=1)).items
        assert start["meta"]["replay_of"] == first["delivery_id"]
        many = ReplayDeliveries(filter=DeliveryFilter(outcome="accepted"), limit=50)
        told = await developer.replay_deliveries(sub, many)
        assert Counter(item.status for item in told.items) == {"started": 50}
        assert len(await y.runs()) == 51 + 1 + 50
        audits = [row for row in await y.server.store.audit.read() if row.actor == "dev"]
        assert len(audits) >= 2


@virtually
async def test_b30_rejections_are_told_ten_times_a_minute_and_then_counted(tmp_path):
    async with yard(tmp_path) as y:
        sub = await y.listen()
        for number in range(10_000):
            bad = {"x-signature": f"{number:064x}"} if number % 2 else {}
            told = await y.send(b"{}", bad, peer=f"10.0.{number % 250}.1")
            assert told.status == 401
            await asyncio.sleep(0.005)
        await asyncio.sleep(61)

        async def summarised():
            rows = await y.events(sub, "message.rejected")
            return [row for row in rows if row["context"].get("count")]

        summaries = await y.until(summarised, 2)
        rows = await y.events(sub, "message.rejected")
        singles = Counter(
            row["context"]["reason"] for row in rows if not row["context"].get("count")
        )
        assert set(singles) == {"bad_signature", "missing_signature"}
        assert max(singles.values()) <= 10
        summed = Counter()
        for row in summaries:
            summed[row["context"]["reason"]] += row["context"]["count"]
        assert singles + summed == {"bad_signature": 5000, "missing_signature": 5000}
        for reason in singles:
            [line] = [
                line
                for line in await y.metrics()
                if line.startswith("noetl_ingress_rejected_total{") and f'"{reason}"' in line
            ]
            assert line.rpartition(" ")[2] in {"5000", "5000.0"}


@virtually
async def test_b30_good_deliveries_at_once_are_neither_lost_nor_doubled(tmp_path):
    async with yard(tmp_path) as y:
        await y.listen(ingress={"rate": {"per_sec": 1000, "burst": 1000}})
        told = await asyncio.gather(
            *(y.send(numbered(number), peer=f"10.1.{number % 50}.1") for number in range(250)),
            *(y.send(numbered(number), peer=f"10.2.{number % 50}.1") for number in range(250)),
        )
        assert {one.status for one in told} == {202}, Counter(one.both for one in told)
        assert Counter(one.code for one in told) == {"accepted": 250, "duplicate": 250}
        runs = await y.runs()
        assert len(runs) == 250
        assert {one.json["execution_id"] for one in told} == {run.execution_id for run in runs}


@virtually
async def test_the_rate_of_a_listener_spools_or_refuses_what_is_too_much(tmp_path):
    slow = {"rate": {"per_sec": 1, "burst": 2}}
    async with yard(tmp_path) as y:
        await y.listen("off", verify=HMAC, ingress=slow)
        sub = await y.listen(spool=DISK, ingress=slow)
        found = [await y.send(numbered(number), to="off") for number in range(4)]
        assert [one.status for one in found] == [202, 202, 429, 429]
        assert found[-1].code == "rate_limited"
        assert int(found[-1].headers["retry-after"]) >= 1
        kept = [(await y.send(numbered(number))).code for number in range(4)]
        assert kept == ["accepted", "accepted", "spooled", "spooled"]
        async with y.worked():
            await y.until(y.runs, 4)
        assert await numbers(y) == in_order(4)
        times = [run.started_at for run in await y.runs()]
        assert all(one <= two for one, two in pairwise(times))
        assert await y.told(sub, "rate_limited")


@virtually
async def test_addresses_that_may_not_send_are_refused_before_anything_is_read(tmp_path):
    async with yard(tmp_path) as y:
        await y.listen(ingress={"allow_ips": ["203.0.113.0/24"]})
        taken = []
        told = await y.send(b"", {}, peer="192.0.2.1", parts=_endless(65_536, taken))
        assert (told.both, taken) == ((403, "ip_not_allowed"), [])
        assert (await y.send(peer="203.0.113.9")).status == 202


@virtually
async def test_a_new_version_counts_at_once_and_what_it_says_of_time_is_kept(tmp_path):
    async with yard(tmp_path) as y:
        await y.listen()
        assert (await y.send(b'{"n": 1}')).status == 202
        await y.playbook("hooks/other")
        await y.listen(dispatch="hooks/other")
        assert (await y.send(b'{"n": 2}')).status == 202
        assert [run.path for run in await y.runs()] == ["hooks/one", "hooks/other"]
        assert y.clock.now().timestamp() >= NOW


@virtually
async def test_ten_idle_minutes_of_a_listener_are_one_row_of_the_audit(tmp_path):
    async with yard(tmp_path, gateways=0) as y:
        await y.listen(spool={"mode": "buffer_and_ack", "backend": "local_disk", "path": "spool"})
        async with y.gateway("g"):
            await asyncio.sleep(600)
            assert (await y.send(b"{}")).both == (202, "accepted")
            rows = await y.server.store.audit.read()
            told = [row for row in rows if (row.action, row.outcome) == ("secret.seal", "ok")]
            assert [(row.resource, row.details["kind"]) for row in told] == [("orders", "ingress")]
            assert y.behind.seen["/api/internal/ingress/orders"] > 20
