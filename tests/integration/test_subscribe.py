"""`noetl subscribe` as a process: a listener without a server, on a real broker."""

import asyncio
import json
import signal
import socket
import subprocess
import sys
from collections import Counter
from pathlib import Path

import nats
import pytest
from nats.js.api import AckPolicy, ConsumerConfig

from noetl.bus.address import Address
from noetl.ids import random_key

NOETL = Path(sys.executable).parent / "noetl"
LATE_S = 30
SPOOL = """\
  spool:
    mode: buffer_and_ack
    ordering_key: message.data.key
    circuit:
      trip_after: 1
      probe_after_ms: 200
      probe_interval_ms: 100
      downstream: [{{name: store, probe: tcp, target: "127.0.0.1:{port}"}}]
"""


class Desk:
    """A folder with a subscription, its playbook and its stream."""

    def __init__(self, folder, url):
        self.folder = folder
        self.url = url
        self.name = f"d{random_key()[:8]}"
        self.events = folder / "readings-events.jsonl"

    async def open(self, more="", playbook="desk/one", tool="{kind: noop}"):
        (self.folder / "nats.json").write_text(json.dumps({"type": "nats", "url": self.url}))
        (self.folder / "sub.yaml").write_text(
            "apiVersion: noetl.io/v1\nkind: Subscription\n"
            "metadata: {name: readings, path: desk/readings}\n"
            f"spec:\n  source: nats\n  mode: pull\n  auth: plant\n  stream: {self.name}\n"
            "  consumer: c\n  runtime: {timeout_ms: 200}\n"
            f"  dispatch: {{playbook: {playbook}}}\n{more}"
        )
        (self.folder / "one.yaml").write_text(
            "apiVersion: noetl.io/v2\nkind: Playbook\nmetadata: {name: one, path: desk/one}\n"
            f"workflow:\n  - step: start\n    tool: {tool}\n"
        )
        address = Address.of(self.url)
        self.nats = await nats.connect(
            address.servers[0], user=address.user, password=address.password
        )
        self.js = self.nats.jetstream()
        await self.js.add_stream(name=self.name, subjects=[f"{self.name}.>"])
        consumer = ConsumerConfig(durable_name="c", ack_policy=AckPolicy.EXPLICIT, ack_wait=2)
        await self.js.add_consumer(self.name, consumer)

    async def send(self, *numbers):
        for n in numbers:
            body = json.dumps({"n": n, "key": n % 2}).encode()
            await self.js.publish(f"{self.name}.{n % 2}", body)

    async def waiting(self):
        info = await self.js.consumer_info(self.name, "c")
        return info.num_pending + info.num_ack_pending

    def start(self, *words):
        return subprocess.Popen(
            [NOETL, "subscribe", "sub.yaml", "--credential", "plant=nats.json", *words],
            cwd=self.folder, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True,
            env={"PATH": f"{NOETL.parent}:/usr/bin:/bin", "LANG": "C.UTF-8"},
        )  # fmt: skip

    async def run(self, *words):
        process = self.start(*words)
        try:
            out, err = await asyncio.to_thread(process.communicate, timeout=LATE_S)
        finally:
            process.kill()
            process.wait()
        return process.returncode, out, err

    def counts(self):
        rows = [json.loads(line) for line in self.events.read_text().splitlines()]
        return Counter(row["event_type"] for row in rows)

    async def until(self, is_so):
        try:
            async with asyncio.timeout(LATE_S):
                while not is_so():  # noqa: ASYNC110 - a file that another process writes
                    await asyncio.sleep(0.05)
        except TimeoutError:
            told = self.events.read_text() if self.events.exists() else "nothing"
            pytest.fail(f"it is not so; the events: {told[-4000:]}")

    async def close(self):
        await self.js.delete_stream(self.name)
        await self.nats.close()


@pytest.fixture
async def desk(tmp_path, nats_url):
    made = Desk(tmp_path, nats_url)
    yield made
    await made.close()


async def test_five_messages_leave_four_five_five_and_five_lines_and_a_second_run_appends(desk):
    await desk.open()
    await desk.send(*range(5))

    code, out, err = await desk.run("--once", "-o", "json")

    assert (code, err) == (0, "")
    assert json.loads(out) == {
        "received": 5, "dispatched": 5, "spooled": 0, "replayed": 0, "failed": 0,
        "dead_lettered": 0, "pending_spooled": 0,
    }  # fmt: skip
    assert desk.counts() == {
        "subscription.registered": 1, "subscription.activated": 1, "subscription.draining": 1,
        "subscription.deactivated": 1, "subscription.message.received": 5, "playbook.started": 5,
        "playbook.completed": 5,
    }  # fmt: skip
    assert await desk.waiting() == 0

    await desk.send(5, 6)
    code, _, err = await desk.run("--max-messages", "2")
    assert (code, err.split()[:4]) == (0, ["received", "2", "dispatched", "2"])
    counts = desk.counts()
    assert (counts["playbook.completed"], counts["subscription.registered"]) == (7, 1)
    rows = [json.loads(line) for line in desk.events.read_text().splitlines()]
    own = [row for row in rows if row["node_type"] == "subscription"]
    assert [row["seq"] for row in own] == list(range(1, len(own) + 1))
    assert len({row["execution_id"] for row in own}) == 1


async def test_an_outage_spools_six_and_replays_six_even_after_a_kill(desk):
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        port = probe.getsockname()[1]
    await desk.open(SPOOL.format(port=port))
    first = desk.start("--spool-dir", "waiting")
    try:
        await desk.until(
            lambda: desk.events.exists() and desk.counts()["subscription.circuit.opened"]
        )
        await desk.send(*range(6))
        await desk.until(lambda: desk.counts()["subscription.message.spooled"] == 6)
        code, _, err = await desk.run("--spool-dir", "waiting", "--once")
        assert (code, "spool_locked" in err) == (6, True)
        first.send_signal(signal.SIGKILL)
    finally:
        first.kill()
        first.communicate()
    assert desk.counts()["playbook.started"] == 0
    up = await asyncio.start_server(lambda _, writer: writer.close(), "127.0.0.1", port)
    again = desk.start("--spool-dir", "waiting", "-o", "json")
    try:
        await desk.until(lambda: desk.counts()["playbook.completed"] == 6)
        again.send_signal(signal.SIGTERM)
        out, err = await asyncio.to_thread(again.communicate, timeout=LATE_S)
    finally:
        again.kill()
        again.wait()
        up.close()
        await up.wait_closed()

    told = json.loads(out)
    assert (again.returncode, err) == (0, "")
    assert (told["received"], told["replayed"], told["pending_spooled"]) == (0, 6, 0)
    counts = desk.counts()
    assert (counts["playbook.started"], counts["subscription.message.replayed"]) == (6, 6)
    rows = [json.loads(line) for line in desk.events.read_text().splitlines()]
    workloads = [
        row["context"]["workload"] for row in rows if row["event_type"] == "playbook.started"
    ]
    assert [one["n"] for one in workloads if one["key"] == 0] == [0, 2, 4]
    assert [one["n"] for one in workloads if one["key"] == 1] == [1, 3, 5]


async def test_a_message_whose_playbook_is_missing_is_a_dead_letter_and_the_exit_code_1(desk):
    await desk.open(playbook="desk/none")
    await desk.send(1)
    code, out, _ = await desk.run("--once", "-o", "json")
    assert (code, json.loads(out)["dead_lettered"]) == (1, 1)
    assert await desk.waiting() == 0


async def test_a_run_that_fails_is_told_and_the_exit_code_1(desk):
    await desk.open(tool="{kind: python, code: 'raise ValueError(1)'}")
    await desk.send(1)
    code, out, _ = await desk.run("--once", "-o", "json", "--events", "told.jsonl")
    assert (code, json.loads(out)["failed"]) == (1, 1)
    assert not desk.events.exists()
    assert "playbook.failed" in (desk.folder / "told.jsonl").read_text()


async def test_what_cannot_be_listened_for_here_ends_with_2(desk):
    await desk.open()
    text = (desk.folder / "sub.yaml").read_text()
    for more, word in (
        ("  spool: {mode: buffer_and_ack, backend: s3, bucket: b}\n", "local_disk"),
        ("  spol: {}\n", "cannot be used"),
    ):
        (desk.folder / "sub.yaml").write_text(text + more)
        code, _, err = await desk.run("--once")
        assert (code, word in err) == (2, True), err
    (desk.folder / "sub.yaml").write_text(text.replace("auth: plant", "auth: other"))
    code, _, err = await desk.run("--once")
    assert (code, "there is no credential `other`" in err) == (2, True)
    (desk.folder / "sub.yaml").write_text(text.replace("consumer: c", "consumer: none"))
    code, _, err = await desk.run("--once")
    assert (code, "there is no consumer none" in err) == (2, True)


async def test_a_source_that_is_away_ends_it_with_10_when_it_is_to_run_once(desk):
    await desk.open()
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        port = probe.getsockname()[1]
    gone = {"type": "nats", "url": f"nats://127.0.0.1:{port}"}
    (desk.folder / "nats.json").write_text(json.dumps(gone))
    code, _, err = await desk.run("--once")
    assert (code, "unreachable" in err) == (10, True), err
