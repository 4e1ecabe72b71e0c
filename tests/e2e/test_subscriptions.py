"""Subscriptions through real processes: messages of NATS become executions, whatever happens."""

import asyncio
import json
import sys
from contextlib import asynccontextmanager

import nats
import pytest
from nats.js.api import AckPolicy, ConsumerConfig

from noetl.api.catalog import Register
from noetl.api.credentials import CredentialPut
from noetl.api.problems import Refused
from noetl.api.subscriptions import LettersWanted
from noetl.bus.address import Address
from noetl.ids import random_key
from tests.reliability.senders import Downstream
from tests.reliability.wire import Wire

LATE_S = 30.0
SUBSCRIPTION = """\
apiVersion: noetl.io/v1
kind: Subscription
metadata: {{name: {name}, path: {path}}}
spec:
  source: nats
  mode: pull
  auth: {alias}
  stream: {stream}
  consumer: c
  runtime: {{pool: shared, timeout_ms: 300, batch: 50}}
  dispatch: {{playbook: {path}/one{dispatch}}}
{more}
"""
PLAYBOOK = """\
apiVersion: noetl.io/v2
kind: Playbook
metadata: {{name: one, path: {path}}}
workload: {{n: 0, key: ""}}
workflow:
  - step: start
    tool: {tool}
result: {{n: "{{{{ workload.n }}}}"}}
"""
NOOP = "{kind: noop}"
DEDUP = "  dedup: {enabled: true, window_secs: 600}\n"
ROUTED = """\
  headers:
    directives:
      - {{header: x-route, controls: dispatch.playbook, allowed: [{path}/other]}}
    trace: {{propagate: w3c}}
"""


class Site:
    """A stream of its own, and everything that listens to it."""

    def __init__(self, stack, client, name):
        self.stack = stack
        self.client = client
        self.name = name
        self.path = f"sub/{name}"
        self.stream = f"S-{name}"
        self.processes = []
        self.subscription_id = ""

    async def open(self, *, more=DEDUP, dispatch="", tool=NOOP, ack_wait=5.0):
        address = Address.of(self.stack.nats_url)
        self.nats = await nats.connect(
            address.servers[0], user=address.user, password=address.password
        )
        self.source_url = self.stack.nats_url
        self.js = self.nats.jetstream()
        await self.js.add_stream(name=self.stream, subjects=[f"{self.name}.>"])
        config = ConsumerConfig(
            durable_name="c", ack_policy=AckPolicy.EXPLICIT, ack_wait=ack_wait, max_ack_pending=2000
        )
        await self.js.add_consumer(self.stream, config)
        await self.client.put_credential(
            CredentialPut(name=self.name, type="nats", data={"url": self.stack.nats_url})
        )
        for part in ("one", "other"):
            text = PLAYBOOK.format(path=f"{self.path}/{part}", tool=tool)
            await self.client.register(Register(content=text))
        await self.document(more=more, dispatch=dispatch)

    async def document(self, *, more=DEDUP, dispatch=""):
        text = SUBSCRIPTION.format(
            name=self.name, path=self.path, alias=self.name, stream=self.stream,
            more=more, dispatch=dispatch,
        )  # fmt: skip
        await self.client.register(Register(content=text))

    def listen(self, **more):
        # One that comes back under its name goes on at once with what it held.
        named = {"WORKER_ID": f"listener-{self.name}", "NOETL_SUBSCRIPTION_STATE_POLL_MS": "300"}
        process = self.stack.listen(self.path, **(named | more))
        self.processes.append(process)
        return process

    async def send(self, *numbers, headers=lambda _: {}, key=lambda n: n % 3):
        for n in numbers:
            body = json.dumps({"n": n, "key": f"k-{key(n)}"}).encode()
            subject = f"{self.name}.{key(n)}"
            await self.js.publish(subject, body, headers=headers(n) or None)

    async def subscription(self):
        if not self.subscription_id:
            known = await self.client.register_subscription(self.path)
            self.subscription_id = known.subscription_id
        return await self.client.subscription(self.subscription_id)

    async def executions(self):
        page = await self.client.executions(limit=200, label=f"subscription:{self.path}")
        return page.items

    async def until(self, is_so, what):
        """Wait until a coroutine says so; what it said."""
        deadline = asyncio.get_running_loop().time() + LATE_S
        while True:
            found = await is_so()
            if found:
                return found
            said = "".join("".join(one.lines[-40:]) for one in self.processes)
            assert asyncio.get_running_loop().time() < deadline, f"{what}: {said}"
            await asyncio.sleep(0.05)

    async def completed(self, count):
        async def so():
            runs = await self.executions()
            done = [run for run in runs if run.status == "COMPLETED"]
            return done if len(done) >= count else None

        return await self.until(so, f"{count} runs")

    async def settled(self):
        """Wait until nothing waits at the source."""

        async def so():
            info = await self.js.consumer_info(self.stream, "c")
            return not info.num_pending and not info.num_ack_pending

        await self.until(so, "all acknowledged")

    async def polled(self):
        """Wait until somebody asks the source for messages."""

        async def so():
            return (await self.js.consumer_info(self.stream, "c")).num_waiting

        await self.until(so, "somebody listens")

    async def events(self, *kinds):
        await self.subscription()
        page = await self.client.events(self.subscription_id, limit=1000)
        return [row for row in page.items if not kinds or row["event_type"] in kinds]

    async def state(self, wanted):
        async def so():
            found = await self.subscription()
            return found if found.state == wanted else None

        return await self.until(so, wanted)

    async def close(self):
        for process in self.processes:
            process.kill()
        await self.nats.close()


@pytest.fixture
def site(full_stack):
    """Opens sites on the stack of this process."""
    full_stack.serve("shared")

    @asynccontextmanager
    async def make(**more):
        async with full_stack.client() as client:
            made = Site(full_stack, client, f"t{random_key()[:10]}")
            try:
                await made.open(**more)
                yield made
            finally:
                await made.close()

    return make


def trace(n):
    return f"00-{n + 1:032x}-{n + 1:016x}-01"


async def test_six_messages_become_six_runs_and_two_take_an_allowed_route(site):
    async with site() as here:
        await here.document(more=DEDUP + ROUTED.format(path=here.path))

        def headers(n):
            more = {"x-route": f"{here.path}/other"} if n in {2, 5} else {"x-route": "system/x"}
            return {"traceparent": trace(n), **(more if n != 1 else {})}

        await here.send(*range(6), headers=headers)
        listener = here.listen()
        runs = await here.completed(6)

        assert len(runs) == 6
        assert (
            sorted(run.path for run in runs)
            == [f"{here.path}/one"] * 4 + [f"{here.path}/other"] * 2
        )
        starts = [(await here.client.events(run.execution_id, limit=1)).items[0] for run in runs]
        assert {row["trace"]["traceparent"] for row in starts} == {trace(n) for n in range(6)}
        assert {row["context"]["pool"] for row in starts} == {"shared"}
        await here.settled()
        assert listener.stop() == 0
        assert (await here.subscription()).state == "DEACTIVATED"


@asynccontextmanager
async def wire_to_server(here):
    """A way to the server that a test can cut; what a listener is told of it."""
    port = int(here.stack.url.rpartition(":")[2])
    async with Wire(port).open() as wire:
        yield wire, {"NOETL_SERVER_URL": f"http://127.0.0.1:{wire.port}"}


async def test_without_a_server_nothing_is_acked_and_afterwards_each_message_runs_once(site):
    async with site() as here, wire_to_server(here) as (wire, told):
        listener = here.listen(**told)
        await here.polled()
        wire.cut()
        await here.send(*range(5))

        async def tried():
            info = await here.js.consumer_info(here.stream, "c")
            return info.num_redelivered or info.num_ack_pending

        await here.until(tried, "a message is fetched")
        info = await here.js.consumer_info(here.stream, "c")
        assert info.ack_floor.stream_seq == 0
        wire.heal()

        await here.completed(5)
        await here.settled()
        assert len(await here.executions()) == 5
        assert listener.stop() == 0


@pytest.mark.parametrize("point", ["subscription.fetch", "subscription.ack", "subscription.acked"])
async def test_a_listener_killed_between_poll_and_ack_loses_nothing_and_starts_nothing_twice(
    site, point
):
    async with site(ack_wait=1.0) as here:
        await here.send(*range(6))
        first = here.listen(NOETL_FAILPOINTS=f"{point}=crash")
        assert await asyncio.to_thread(first.ended) == -9
        here.listen()

        await here.completed(6)
        await here.settled()
        assert len(await here.executions()) == 6


async def test_the_six_events_of_a_life_come_in_order_and_a_pause_loses_nothing(site):
    async with site() as here:
        listener = here.listen()
        await here.send(0, 1)
        await here.completed(2)
        known = await here.subscription()
        act = here.client.steer_subscription

        await act(known.subscription_id, "pause", "a test")
        await here.until(lambda: _is_idle(here), "the listener has heard of the pause")
        await here.send(2, 3)
        await asyncio.sleep(1.0)
        assert len(await here.executions()) == 2
        await act(known.subscription_id, "resume")
        await here.completed(4)
        await act(known.subscription_id, "drain")
        await here.state("DEACTIVATED")

        with pytest.raises(Refused) as refused:
            await act(known.subscription_id, "pause")
        assert (refused.value.code, refused.value.problem.status) == ("bad_transition", 422)
        lifecycle = [row["event_type"].partition(".")[2] for row in await here.events()]
        assert [word for word in lifecycle if "." not in word] == [
            "registered", "activated", "paused", "resumed", "draining", "deactivated",
        ]  # fmt: skip
        assert listener.stop() == 0
        assert (await here.subscription()).reason == "drained"


async def _is_idle(here):
    """Whether nothing asks the consumer for messages any more."""
    info = await here.js.consumer_info(here.stream, "c")
    return not info.num_waiting


async def test_a_person_s_word_counts_and_a_listener_that_stopped_by_itself_goes_on(site):
    async with site() as here:
        first = here.listen()
        active = await here.state("ACTIVE")
        assert first.stop() == 0
        stopped = await here.subscription()
        assert (stopped.state, stopped.reason) == ("DEACTIVATED", "runtime_stopped")

        again = here.listen()
        assert (await here.state("ACTIVE")).subscription_id == active.subscription_id
        await here.client.steer_subscription(active.subscription_id, "deactivate", "by hand")
        assert again.stop() == 0

        third = here.listen()
        await here.send(1)
        third.until("the listener listens")
        await asyncio.sleep(1.5)
        assert (await here.subscription()).state == "DEACTIVATED"
        assert await here.executions() == ()
        await here.client.steer_subscription(active.subscription_id, "activate")
        await here.completed(1)


BATCHED = """\
  headers:
    directives:
      - {{header: x-route, controls: dispatch.playbook, allowed: [{path}/none]}}
    trace: {{propagate: w3c}}
"""


async def test_twelve_waiting_messages_are_one_batch_and_a_bad_one_is_a_dead_letter(site):
    async with site(dispatch=", batch_dispatch: true") as here:
        more = DEDUP + BATCHED.format(path=here.path)
        await here.document(more=more, dispatch=", batch_dispatch: true")

        def headers(n):
            return {"traceparent": trace(n)} | ({"x-route": f"{here.path}/none"} if n == 7 else {})

        await here.send(*range(12), headers=headers)
        listener = here.listen()
        runs = await here.completed(11)
        await here.settled()

        assert len(await here.executions()) == 11
        starts = [(await here.client.events(run.execution_id, limit=1)).items[0] for run in runs]
        assert {row["trace"]["traceparent"] for row in starts} == {
            trace(n) for n in range(12) if n != 7
        }
        await here.subscription()
        letters = (await here.client.dead_letters(here.subscription_id)).items
        assert [(one.message_id, one.reason) for one in letters] == [
            (f"{here.stream}:8", "dispatch_rejected")
        ]
        assert listener.stop() == 0


SPOOLED = """\
  spool:
    mode: buffer_and_ack
    backend: local_disk
    path: {folder}
    ordering_key: message.data.key
    circuit:
      trip_after: 2
      probe_after_ms: 300
      probe_interval_ms: 100
      downstream: [{{name: store, probe: tcp, target: "127.0.0.1:{port}"}}]
"""


@pytest.fixture
async def downstream():
    made = Downstream()
    yield made
    await made.down()


async def outage(here, downstream, folder, **more):
    """A listener that finds its downstream away, and six messages in its spool."""
    await here.document(more=DEDUP + SPOOLED.format(folder=folder, port=downstream.port))
    listener = here.listen(**more)

    async def opened():
        return await here.events("subscription.circuit.opened")

    await here.until(opened, "the circuit is open")
    await here.send(*range(6))
    return listener


async def spooled(here, count):
    async def so():
        return len(await here.events("subscription.message.spooled")) >= count

    await here.until(so, f"{count} messages are spooled")
    await here.settled()


async def numbers_by_key(here):
    """The numbers of the messages of each key, in the order in which their runs began."""
    found = {}
    runs = sorted(await here.executions(), key=lambda run: int(run.execution_id))
    for run in runs:
        row = (await here.client.events(run.execution_id, limit=1)).items[0]
        workload = row["context"]["workload"]
        found.setdefault(workload["key"], []).append(workload["n"])
    return found


IN_ORDER = {"k-0": [0, 3], "k-1": [1, 4], "k-2": [2, 5]}


async def test_a_listener_killed_in_an_outage_replays_after_it_in_order(site, downstream, tmp_path):
    async with site() as here:
        first = await outage(here, downstream, tmp_path)
        await spooled(here, 6)
        assert await here.executions() == ()
        first.kill()
        await downstream.up()
        second = here.listen()

        await here.completed(6)
        assert await numbers_by_key(here) == IN_ORDER

        async def drained():
            return (await here.events("subscription.spool.drained")) and not list(
                tmp_path.rglob("spool/*.json")
            )

        await here.until(drained, "nothing waits any more")
        recovered = await here.events("subscription.spool.recovered")
        assert [row["context"]["pending"] for row in recovered] == [0, 6]
        assert (await here.subscription()).state == "ACTIVE"
        assert second.stop() == 0
        assert len(await here.executions()) == 6


@pytest.mark.parametrize(
    "point",
    ["subscription.put", "subscription.stored", "subscription.replay", "subscription.delete"],
)
async def test_a_listener_killed_at_the_spool_loses_nothing_and_keeps_the_order(
    site, downstream, tmp_path, point
):
    async with site(ack_wait=1.0) as here:
        first = await outage(here, downstream, tmp_path, NOETL_FAILPOINTS=f"{point}=crash@3")
        if point in {"subscription.replay", "subscription.delete"}:
            await spooled(here, 6)
            await downstream.up()
        assert await asyncio.to_thread(first.ended) == -9
        here.listen()
        if point in {"subscription.put", "subscription.stored"}:
            await spooled(here, 6)
            await downstream.up()

        await here.completed(6)
        await here.settled()
        assert len(await here.executions()) == 6
        assert await numbers_by_key(here) == IN_ORDER


async def test_what_happened_while_the_server_was_away_is_told_afterwards_once_and_in_order(
    site, downstream, tmp_path
):
    async with site() as here, wire_to_server(here) as (wire, told):
        await downstream.up()
        await here.document(more=DEDUP + SPOOLED.format(folder=tmp_path, port=downstream.port))
        listener = here.listen(**told)
        await here.polled()
        wire.cut()
        await downstream.down()
        await asyncio.sleep(0.6)
        await here.send(*range(4), key=lambda _: 0)  # order is promised for a key
        await here.settled()
        assert await here.events("subscription.message.spooled") == []
        wire.heal()

        async def heard():
            return len(await here.events("subscription.message.spooled")) >= 4

        await here.until(heard, "the server hears of it")
        rows = await here.events("subscription.circuit.opened", "subscription.message.spooled")
        assert rows[0]["event_type"] == "subscription.circuit.opened"
        messages = [row["context"]["message_id"] for row in rows if "message" in row["event_type"]]
        assert messages == [f"{here.stream}:{n}" for n in range(1, 5)]
        ids = [row["event_id"] for row in await here.events()]
        assert len(set(ids)) == len(ids)
        await downstream.up()
        await here.completed(4)
        assert listener.stop() == 0


async def test_a_message_is_acked_when_its_run_ends_and_comes_again_after_an_outage(
    site, downstream
):
    tool = f'{{kind: http, url: "http://127.0.0.1:{downstream.port}/", timeout: 5}}'
    async with site(dispatch=", ack_after: completed", tool=tool, ack_wait=2.0) as here:
        listener = here.listen()
        await here.send(1)

        async def failed():
            return [run for run in await here.executions() if run.status == "FAILED"]

        await here.until(failed, "the run fails for want of its downstream")
        info = await here.js.consumer_info(here.stream, "c")
        assert info.ack_floor.stream_seq == 0
        web = await asyncio.start_server(_answer_late, "127.0.0.1", downstream.port)
        try:
            await here.completed(1)
            await here.settled()
        finally:
            web.close()
            await web.wait_closed()
        done = [run for run in await here.executions() if run.status == "COMPLETED"]
        assert len(done) == 1
        assert listener.stop() == 0


async def _answer_late(reader, writer):
    """Longer than a message may be held, so that it has to be extended."""
    await reader.readuntil(b"\r\n\r\n")
    await asyncio.sleep(3.0)
    writer.write(b"HTTP/1.1 200 OK\r\nContent-Length: 2\r\nConnection: close\r\n\r\n{}")
    await writer.drain()
    writer.close()


async def test_a_missing_credential_ends_the_listener_with_78_and_is_named(site):
    async with site() as here:
        await here.client.delete_credential(here.name, force=True)
        listener = here.listen()
        assert await asyncio.to_thread(listener.ended) == 78
        assert any(f"there is no credential `{here.name}`" in line for line in listener.lines)


async def test_a_broker_that_was_away_costs_time_alone(site):
    async with site(ack_wait=1.0) as here:
        address = Address.of(here.stack.nats_url)
        port = int(address.servers[0].rpartition(":")[2])
        async with Wire(port).open() as wire:
            fields = {
                "url": f"nats://127.0.0.1:{wire.port}", "user": address.user,
                "password": address.password,
            }  # fmt: skip
            await here.client.put_credential(
                CredentialPut(name=here.name, type="nats", data=fields)
            )
            here.listen()
            await here.polled()
            await here.send(*range(3))
            await here.completed(3)
            wire.cut()
            await here.send(*range(3, 6))
            await asyncio.sleep(0.5)
            wire.heal()
            await here.completed(6)
            await here.settled()
            assert len(await here.executions()) == 6


async def test_a_person_s_listener_starts_runs_on_the_server_and_waits_for_their_ends(
    site, tmp_path
):
    async with site() as here:
        await here.send(*range(3))
        (tmp_path / "nats.json").write_text(
            json.dumps({"type": "nats", "url": here.stack.nats_url})
        )
        (tmp_path / "token").write_text(here.stack.token)
        (tmp_path / "sub.yaml").write_text((await here.subscription()).content)
        words = ["subscribe", "sub.yaml", "--dispatch", "server", "--once", "-o", "json",
                 "--server-url", here.stack.url, "--token-file", "token",
                 "--credential", f"{here.name}=nats.json"]  # fmt: skip
        process = await asyncio.create_subprocess_exec(
            sys.executable, "-m", "noetl.cli.app", *words, cwd=tmp_path,
            stdout=asyncio.subprocess.PIPE, stderr=asyncio.subprocess.PIPE,
        )  # fmt: skip
        async with asyncio.timeout(LATE_S):
            out, err = await process.communicate()

        assert (process.returncode, json.loads(out)["dispatched"]) == (0, 3), err
        told = next(tmp_path.glob("*.jsonl")).read_text()
        rows = [json.loads(line) for line in told.splitlines()]
        runs = [row for row in rows if row["event_type"].startswith("playbook.")]
        assert (
            sorted(row["event_type"] for row in runs)
            == ["playbook.completed"] * 3 + ["playbook.started"] * 3
        )
        found = {row["execution_id"] for row in runs}
        assert {(await here.client.status(one)).status for one in found} == {"COMPLETED"}
        await here.settled()


REDRIVEN = """\
  headers:
    directives:
      - {{header: x-route, controls: dispatch.playbook, allowed: [{path}/late]}}
"""


async def test_a_dead_letter_is_redriven_once_and_another_is_discarded(site, downstream, tmp_path):
    async with site() as here:
        await downstream.up()
        spool = SPOOLED.format(folder=tmp_path, port=downstream.port)
        await here.document(more=DEDUP + REDRIVEN.format(path=here.path) + spool)
        here.listen()
        await here.send(1, 2, headers=lambda _: {"x-route": f"{here.path}/late"})
        await here.subscription()

        async def dead():
            found = (await here.client.dead_letters(here.subscription_id)).items
            return found if len(found) == 2 else None

        first, second = await here.until(dead, "two dead letters")
        text = PLAYBOOK.format(path=f"{here.path}/late", tool=NOOP)
        await here.client.register(Register(content=text))
        wanted = LettersWanted(refs=(first.ref,))
        await here.client.redrive(here.subscription_id, wanted)
        await here.client.discard(here.subscription_id, LettersWanted(refs=(second.ref,)))

        (run,) = await here.completed(1)
        assert run.path == f"{here.path}/late"

        async def done():
            return not (await here.client.dead_letters(here.subscription_id)).items

        await here.until(done, "no dead letter is left")
        kinds = [row["event_type"] for row in await here.events()]
        assert kinds.count("subscription.message.redriven") == 1
        assert kinds.count("subscription.message.discarded") == 1
        assert (await here.subscription()).pending_actions == ()
        assert len(await here.executions()) == 1
