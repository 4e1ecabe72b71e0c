"""Push ingress through real processes: what was acknowledged runs once, whoever is killed.

The numbers in names are those of the acceptance in gateway.md B9.
"""

from __future__ import annotations

import asyncio
import json
import socket
import sys
from collections import Counter
from contextlib import ExitStack, asynccontextmanager
from pathlib import Path

import httpx
import pytest

from noetl.api.catalog import Register
from noetl.api.credentials import CredentialPut
from tests.servers import ENCRYPTION_KEY
from tests.servers.nats import NatsServer
from tests.servers.push import HMAC, SECRET, body_of, listening, signature, signed
from tests.servers.stack import INTERNAL, FullStack, Process

LATE_S = 45.0
AT_ONCE = 20
KEYS = 5
NOOP = """\
apiVersion: noetl.io/v2
kind: Playbook
metadata: {name: one, path: hooks/one}
workload: {n: 0, key: ""}
workflow:
  - step: start
    tool: {kind: noop}
result: {n: "{{ workload.n }}"}
"""
CIRCUIT = {"trip_after": 5, "probe_after_ms": 500, "probe_interval_ms": 200}
OPEN = {"rate": {"per_sec": 1000, "burst": 2000}}


def free_port():
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        return probe.getsockname()[1]


class Site(FullStack):
    """A stack whose server, worker and gateways can be killed and started again."""

    def __init__(self, *given, **more):
        super().__init__(*given, **more)
        self.gateways = {}

    def gateway(self, name):
        """Start a gateway; it has a folder and an address of its own, whenever it is started."""
        known = self.gateways.get(name)
        port = known[0] if known else free_port()
        environ = {
            "PATH": f"{Path(sys.executable).parent}:/usr/bin:/bin", "LANG": "C.UTF-8",
            "NOETL_HOME": str(self.folder / name), "NOETL_NATS_URL": self.nats_url,
            "NOETL_SERVER_URL": self.url, "NOETL_INTERNAL_API_TOKEN": INTERNAL,
            "GATEWAY_BIND": "127.0.0.1", "ROUTER_PORT": str(port),
            "GATEWAY_METRICS_BIND": f"127.0.0.1:{known[2] if known else free_port()}",
        }  # fmt: skip
        watched = int(environ["GATEWAY_METRICS_BIND"].rpartition(":")[2])
        process = Process(["noetl.cli.app", "gateway"], environ)
        self.gateways[name] = (port, process, watched)
        process.until("the gateway listens")

    def kill_server(self):
        self._server.kill()

    def start_server(self):
        self._server = Process(
            ["tests.servers.staged_server"],
            self._environ(
                NOETL_DATABASE_URL=self.database_url, NOETL_PORT=self.url.rpartition(":")[2],
                NOETL_METRICS_PORT="off", NOETL_INTERNAL_API_TOKEN=INTERNAL,
                NOETL_ENCRYPTION_KEY=ENCRYPTION_KEY, NOETL_OBJECT_STORE_URL=self.objects.as_uri(),
            ),
        )  # fmt: skip
        self._server.until("the server listens")

    def kill_workers(self):
        for pool in list(self._workers):
            self._workers.pop(pool).kill()

    def kill(self, name):
        self.gateways[name][1].kill()

    def stop(self):
        with ExitStack() as ending:
            ending.callback(super().stop)
            for _, process, _ in self.gateways.values():
                ending.callback(process.kill)

    def url_of(self, name):
        return f"http://127.0.0.1:{self.gateways[name][0]}"

    def watched(self, name):
        return f"http://127.0.0.1:{self.gateways[name][2]}/metrics"

    def said_by(self, name):
        return "".join(self.gateways[name][1].lines)


@pytest.fixture(scope="module")
def site(postgres_server, tmp_path_factory):
    folder = tmp_path_factory.mktemp("ingress")
    nats = NatsServer(folder / "nats")
    name = postgres_server.make()
    with ExitStack() as ending:
        ending.callback(postgres_server.drop, name)
        ending.callback(nats.stop)
        nats.start()
        made = Site(postgres_server.url_of(name), nats.url, folder)
        ending.callback(made.stop)
        made.gateway("a")
        made.serve()
        yield made


@asynccontextmanager
async def here(site):
    """A client of the server, and one of gateways."""
    limits = httpx.Limits(max_connections=AT_ONCE)
    async with site.client() as client, httpx.AsyncClient(timeout=30, limits=limits) as http:
        yield client, http


async def listen(client, name, verify=HMAC, ingress=OPEN, **document):
    """A listener that is active, with its secret; the id of its subscription."""
    await client.put_credential(CredentialPut(name="new", type="secret", data={"value": SECRET}))
    await client.register(Register(content=NOOP))
    await client.register(
        Register(content=listening(name, verify=verify, ingress=ingress, **document))
    )
    known = await client.register_subscription(f"hooks/{name}")
    await client.steer_subscription(known.subscription_id, "activate")
    return known.subscription_id


async def until(is_so, what, site=None):
    """Wait until a coroutine function says so; what it said."""
    deadline = asyncio.get_running_loop().time() + LATE_S
    while not (found := await is_so()):
        said = [site.said_by(name)[-3000:] for name in site.gateways] if site else ""
        assert asyncio.get_running_loop().time() < deadline, (what, said)
        await asyncio.sleep(0.05)
    return found


async def first_sent(http, url, body):
    """The answer to the first delivery: that a listener is active is known within two seconds."""
    async with asyncio.timeout(2.0):
        while True:
            told = await http.post(url, content=body, headers=signed(body))
            if told.json().get("code") != "not_active":
                return told
            await asyncio.sleep(0.02)


async def until_accepted(http, url):
    """The numbers of what was sent: all but the last waited, since the gateway learns it later.

    Each one that waits is to be drained, too, before the next is accepted.
    """
    sent = []
    async with asyncio.timeout(20.0):
        while True:
            sent.append(-1 - len(sent))
            body = body_of({"n": sent[-1], "key": "captured"})
            told = (await http.post(url, content=body, headers=signed(body))).json()
            if told["status"] == "accepted":
                return sent
            assert told["status"] == "spooled", told
            await asyncio.sleep(0.05)  # a listener has a rate


def numbered(number):
    return body_of({"n": number, "key": f"k-{number % KEYS}"})


async def runs_of(client, name):
    """The runs of a listener, oldest first."""
    page = await client.executions(limit=200, label=f"subscription:hooks/{name}")
    return sorted(page.items, key=lambda run: int(run.execution_id))


async def completed(client, name, count, site):
    async def so():
        done = [run for run in await runs_of(client, name) if run.status == "COMPLETED"]
        return done if len(done) >= count else None

    return await until(so, f"{count} runs of {name}", site)


async def in_order(client, runs):
    """The numbers of deliveries by key, in the order of their runs."""
    found = {}
    for run in runs:
        workload = (await client.execution(run.execution_id)).workload
        found.setdefault(workload["key"], []).append(workload["n"])
    return found


async def test_b01_a_signed_delivery_runs_and_a_changed_byte_does_not(site):
    async with here(site) as (client, http):
        sub = await listen(client, "plain")
        url = f"{site.url_of('a')}/ingress/plain"
        body = numbered(1)
        told = await first_sent(http, url, body)
        assert told.status_code == 202, told.text
        [run] = await completed(client, "plain", 1, site)
        assert told.json()["execution_id"] == run.execution_id
        assert (run.pool, run.parent_execution_id) == ("shared", sub)
        bad = await http.post(url, content=body + b" ", headers=signed(body))
        assert (bad.status_code, bad.json()["code"]) == (401, "bad_signature")

        async def logged():
            found = (await client.deliveries(sub, limit=10)).items
            rows = [row for row in found if row.reason != "not_active"]  # see `first_sent`
            return rows if len(rows) == 2 else None

        rows = await until(logged, "both are in the log")
        assert Counter(row.outcome for row in rows) == {"accepted": 1, "rejected": 1}
        assert len(await runs_of(client, "plain")) == 1
        assert SECRET not in site.said_by("a")


@pytest.mark.timeout(150)
async def test_b08_b17_without_a_server_all_is_kept_and_after_a_kill_of_all_it_runs_once(site):
    spool = {
        "mode": "buffer_and_ack", "backend": "local_disk", "path": "spool",
        "ordering_key": "message.data.key", "circuit": CIRCUIT,
    }  # fmt: skip
    async with here(site) as (client, http):
        sub = await listen(client, "kept", spool=spool)
        url = f"{site.url_of('a')}/ingress/kept"
        sent = await until_accepted(http, url)
        captured = body_of({"n": sent[-1], "key": "captured"})
        await completed(client, "kept", len(sent), site)

        site.kill_server()
        # Of each key one after the other, keys beside each other.
        told = [_in_turn(http, url, range(key, 100, KEYS)) for key in range(KEYS)]
        answers = [one for many in await asyncio.gather(*told) for one in many]
        assert Counter(one.json().get("status") for one in answers) == {"spooled": 100}
        assert {one.status_code for one in answers} == {202}
        refs = sorted(one.json()["spool_ref"] for one in answers)
        site.kill("a")
        site.kill_workers()

    site.start_server()
    site.gateway("a")
    site.serve()
    async with here(site) as (client, http):
        runs = await completed(client, "kept", 100 + len(sent), site)
        assert len(runs) == 100 + len(sent)
        found = await in_order(client, await runs_of(client, "kept"))
        assert found == {
            "captured": sent, **{f"k-{key}": list(range(key, 100, KEYS)) for key in range(KEYS)}
        }  # fmt: skip
        for body in (captured, numbered(7)):
            again = await http.post(url, content=body, headers=signed(body, x_id="another"))
            assert again.json()["status"] == "duplicate", again.text
        assert len(await runs_of(client, "kept")) == 100 + len(sent)

        async def told():
            rows = (await client.events(sub, limit=1000)).items
            kind = "subscription.message.spooled"
            found = sorted(one["context"]["spool_ref"] for one in rows if one["event_type"] == kind)
            return found if len(found) >= len(refs) else None

        assert await until(told, "each is told of", site) == refs


async def _in_turn(http, url, numbers):
    found = []
    for number in numbers:
        body = numbered(number)
        found.append(await http.post(url, content=body, headers=signed(body)))
    return found


@pytest.mark.timeout(150)
async def test_b20_one_replica_drains_and_another_goes_on_when_it_is_killed(site):
    site.gateway("b")
    spool = {
        "mode": "buffer_and_ack", "backend": "nats_object", "bucket": "spool-shared",
        "ordering_key": "message.data.key", "circuit": CIRCUIT, "drain": {"rate_per_sec": 20},
    }  # fmt: skip
    count = 60
    async with here(site) as (client, http):
        sub = await listen(client, "shared", spool=spool)
        await client.steer_subscription(sub, "pause")
        urls = [f"{site.url_of(name)}/ingress/shared" for name in ("a", "b")]
        for number in range(count):
            body = numbered(number)
            told = await http.post(urls[number % 2], content=body, headers=signed(body))
            assert told.json().get("status") == "spooled", told.text
        await client.steer_subscription(sub, "resume")

        async def draining():
            sent = {name: await _replayed(http, site, name) for name in ("a", "b")}
            return sent if max(sent.values()) >= 5 else None

        sent = await until(draining, "somebody drains", site)
        assert min(sent.values()) == 0  # never two at once
        drainer, other = sorted(sent, key=sent.get, reverse=True)
        site.kill(drainer)
        killed_at = asyncio.get_running_loop().time()

        async def moved():
            return await _replayed(http, site, other)

        await until(moved, "the other one drains", site)
        # The lease moves within 20 s; then the spool is looked through, and a first one is sent.
        assert asyncio.get_running_loop().time() - killed_at <= 24
        await completed(client, "shared", count, site)
        runs = await runs_of(client, "shared")
        assert len(runs) == count
        assert await in_order(client, runs) == {
            f"k-{key}": list(range(key, count, KEYS)) for key in range(KEYS)
        }
    site.gateway(drainer)


async def _replayed(http, site, name):
    """How many deliveries a gateway has sent out of the shared spool."""
    text = (await http.get(site.watched(name))).text
    head = 'noetl_subscription_replayed_total{subscription="hooks/shared"} '
    return sum(
        float(line.removeprefix(head)) for line in text.splitlines() if line.startswith(head)
    )


async def test_b13_memory_stays_flat_under_bodies_without_end(site):
    async with here(site) as (client, http):
        await listen(client, "large")
        url = f"{site.url_of('a')}/ingress/large"
        await first_sent(http, url, b"{}")
        before = _rss_mib(site, "a")
        bad = {"x-signature": "0" * 64}
        taken = [http.post(url, content=_endless(), headers=bad) for _ in range(40)]
        answers = await asyncio.gather(*taken, return_exceptions=True)
        codes = Counter(
            one.status_code if isinstance(one, httpx.Response) else "reset" for one in answers
        )
        assert set(codes) <= {413, 503, 429, "reset"}, codes
        assert _rss_mib(site, "a") - before <= 50
        assert (await http.post(url, content=b"[]", headers=signed(b"[]"))).status_code == 202
        assert len(await runs_of(client, "large")) == 2


async def _endless():
    for _ in range(16 * 1024):
        yield bytes(65_536)


def _rss_mib(site, name):
    pid = site.gateways[name][1].pid
    text = Path(f"/proc/{pid}/status").read_text()
    return int(text.split("VmRSS:")[1].split()[0]) / 1024


async def test_a_test_delivery_goes_the_real_way(site):
    from noetl.api.ingress import TestDelivery  # noqa: PLC0415 - pytest would look into it

    async with here(site) as (client, _):
        sub = await listen(client, "tried")

        async def tried():
            told = await client.test_delivery(sub, TestDelivery(body=json.dumps({"n": 1})))
            return told if told.code != "not_active" else None

        told = await until(tried, "the gateway knows that the listener is active")
        assert (told.status, told.outcome) == (202, "accepted"), told
        [run] = await completed(client, "tried", 1, site)
        assert told.execution_id == run.execution_id


async def test_b29_a_rejected_delivery_that_is_kept_is_judged_again_but_for_its_time(site):
    verify = {
        **HMAC, "template": "{timestamp}.{body}",
        "timestamp": {"header": "x-time", "tolerance_secs": 300},
    }  # fmt: skip
    async with here(site) as (client, http):
        sub = await listen(client, "stale", verify=verify, ingress={**OPEN, "keep_rejected": True})
        url = f"{site.url_of('a')}/ingress/stale"
        body = numbered(1)
        late = {"x-time": "1700000000", "x-signature": signature(b"1700000000." + body)}
        forged = {"x-time": "1700000000", "x-signature": "0" * 64}
        for headers, code in ((late, "stale_timestamp"), (forged, None)):
            told = await http.post(url, content=body, headers=headers)
            assert told.status_code == 401
            assert code is None or told.json()["code"] == code

        async def logged():
            rows = (await client.deliveries(sub, limit=10, outcome="rejected")).items
            return rows if len(rows) == 2 else None

        newest, oldest = await until(logged, "both are in the log")
        again = await client.replay_delivery(sub, oldest.delivery_id, reason="its clock was wrong")
        assert again.status == "started", again
        [run] = await completed(client, "stale", 1, site)
        assert again.execution_id == run.execution_id
        events = await client.events(run.execution_id)
        assert events.items[0]["meta"]["replay_of"] == oldest.delivery_id
        refused = await client.replay_delivery(sub, newest.delivery_id)
        assert refused.status != "started", refused
        assert len(await runs_of(client, "stale")) == 1
