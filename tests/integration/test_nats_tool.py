"""The nats tool against a real server."""

from __future__ import annotations

import asyncio
import itertools
import socket

import pytest
from nats.js.api import ConsumerConfig

from noetl.blobs.memory import MemoryBlobs
from noetl.bus.address import Address
from noetl.clock import SystemClock
from noetl.sources.connecting import connect
from noetl.tools.base import ToolContext, run_tool
from noetl.tools.http.egress import Egress, Guard
from noetl.tools.nats.connections import Connections
from noetl.tools.nats.tool import NatsTool
from tests.servers.nats import PASSWORD, NatsServer

NUMBERS = itertools.count()


async def as_it_is(host, _port):
    return [host]


@pytest.fixture
async def client(nats_url):
    made = await connect(Address.of(nats_url), as_it_is)
    yield made
    await made.close()


@pytest.fixture
def connections():
    return Connections(Guard(egress=Egress(mode="open")))


@pytest.fixture
async def tool(connections):
    made = NatsTool(connections, SystemClock())
    yield made
    await made.close()


@pytest.fixture
def name():
    return f"T{next(NUMBERS)}"


@pytest.fixture
async def bucket(client, name):
    js = client.jetstream()
    await js.create_key_value(bucket=name)
    yield name
    await js.delete_key_value(name)


@pytest.fixture
async def store(client, name):
    js = client.jetstream()
    await js.create_object_store(name)
    yield name
    await js.delete_object_store(name)


@pytest.fixture
async def stream(client, name):
    js = client.jetstream()
    await js.add_stream(name=name, subjects=[f"{name}.>"])
    yield name
    await js.delete_stream(name)


class Does:
    """Runs operations of one tool on one server."""

    def __init__(self, tool, url):
        self.tool, self.url = tool, url
        self.afterwards = []
        self.blobs = MemoryBlobs()

    async def outcome(self, operation, *, pool="", visit="1/s/-/1", **config):
        where = {} if "auth" in config or "url" in config else {"url": self.url}
        ctx = ToolContext(
            execution_id="1", step="s", command_id="c", idempotency_key=visit, pool=pool,
            blobs=self.blobs, on_afterwards=self.afterwards.append,
            secrets=config.pop("secrets", None),
        )  # fmt: skip
        made = {"kind": "nats", "operation": operation, **where, **config}
        return await run_tool(self.tool, made, ctx)

    async def __call__(self, operation, **config):
        outcome = await self.outcome(operation, **config)
        assert outcome.error is None, outcome.error
        return outcome.data

    async def error(self, operation, **config):
        outcome = await self.outcome(operation, **config)
        assert outcome.error is not None, outcome.data
        return outcome.error


@pytest.fixture
def do(tool, nats_url):
    return Does(tool, nats_url)


def told(error):
    return error["kind"], error["code"]


# ---------------------------------------------------------------------------- keys


async def test_a_key_is_written_read_and_listed(do, bucket):
    put = await do("kv_put", bucket=bucket, key="d-1", value={"seen": True})
    assert put == {"status": "success", "bucket": bucket, "key": "d-1", "revision": 1}
    got = await do("kv_get", bucket=bucket, key="d-1")
    assert (got["status"], got["value"], got["revision"]) == ("success", {"seen": True}, 1)
    await do("kv_put", bucket=bucket, key="d-2.x", value="plain")
    assert (await do("kv_get", bucket=bucket, key="d-2.x"))["value"] == "plain"
    await do("kv_put", bucket=bucket, key="e-3", value=[1])
    assert (await do("kv_keys", bucket=bucket))["keys"] == ["d-1", "d-2.x", "e-3"]
    assert (await do("kv_keys", bucket=bucket, pattern="d-*"))["keys"] == ["d-1"]
    assert (await do("kv_keys", bucket=bucket, pattern="d-2.>"))["keys"] == ["d-2.x"]


async def test_a_missing_key_is_no_failure_and_a_missing_bucket_is(do, bucket):
    got = await do("kv_get", bucket=bucket, key="none")
    assert (got["status"], got["value"]) == ("not_found", None)
    assert (await do("kv_keys", bucket=bucket))["keys"] == []
    error = await do.error("kv_get", bucket="nowhere", key="k")
    assert told(error) == ("not_found", "bucket_not_found")
    assert "nowhere" in error["message"]


async def test_create_and_update_compare_before_they_write(do, bucket):
    made = await do("kv_create", bucket=bucket, key="lock", value="1")
    assert told(await do.error("kv_create", bucket=bucket, key="lock", value="1")) == (
        "client_error", "key_exists",
    )  # fmt: skip
    await do("kv_update", bucket=bucket, key="lock", value="2", revision=made["revision"])
    again = await do.error("kv_update", bucket=bucket, key="lock", value="3", revision=1)
    assert told(again) == ("client_error", "revision_conflict")
    assert (await do("kv_get", bucket=bucket, key="lock"))["value"] == 2


async def test_a_deleted_or_purged_key_is_gone(do, bucket):
    for operation in ("kv_delete", "kv_purge"):
        await do("kv_put", bucket=bucket, key="k", value="1")
        await do(operation, bucket=bucket, key="k")
        assert (await do("kv_get", bucket=bucket, key="k"))["status"] == "not_found"


async def test_a_key_with_a_ttl_expires(do, bucket):
    await do("kv_put", bucket=bucket, key="short", value="1", ttl=1)
    await do("kv_create", bucket=bucket, key="new", value="1", ttl="1s")
    assert (await do("kv_get", bucket=bucket, key="short"))["value"] == 1
    async with asyncio.timeout(20):
        for key in ("short", "new"):
            while (await do("kv_get", bucket=bucket, key=key))["status"] == "success":  # noqa: ASYNC110 - the broker tells nobody
                await asyncio.sleep(0.1)
    assert told(await do.error("kv_put", bucket=bucket, key="k", value="1", ttl=0.2)) == (
        "config", "invalid_config",
    )  # fmt: skip


# ---------------------------------------------------------------------------- objects


async def test_an_object_is_written_read_listed_and_deleted(do, store):
    assert (await do("object_list", bucket=store))["objects"] == []
    await do("object_put", bucket=store, key="a.txt", data="hello")
    assert (await do("object_info", bucket=store, key="a.txt"))["size"] == 5
    assert (await do("object_get", bucket=store, object="a.txt"))["value"] == "hello"
    assert [item["object"] for item in (await do("object_list", bucket=store))["objects"]] == [
        "a.txt"
    ]
    assert (await do("object_delete", bucket=store, key="a.txt"))["deleted"]
    assert not (await do("object_delete", bucket=store, key="a.txt"))["deleted"]
    assert (await do("object_get", bucket=store, key="a.txt"))["status"] == "not_found"
    assert (await do("object_info", bucket=store, key="a.txt"))["status"] == "not_found"


async def test_a_large_object_travels_by_reference_both_ways(do, store):
    body = "é" * 100_000
    await do("object_put", bucket=store, key="large", data=body)
    got = await do("object_get", bucket=store, key="large")
    assert (got["value"], got["bytes"]) == (None, 200_000)
    await do("object_put", bucket=store, key="copy", ref=got["ref"])
    assert (await do("object_get", bucket=store, key="copy"))["sha256"] == got["sha256"]
    gone = got["ref"][:-4] + "0000"
    assert told(await do.error("object_put", bucket=store, key="x", ref=gone)) == (
        "not_found", "result_gone",
    )  # fmt: skip


# ---------------------------------------------------------------------------- streams


async def test_the_same_visit_publishes_once(do, stream):
    first = await do("js_publish", subject=f"{stream}.a", data={"n": 1}, headers={"x-kind": "demo"})
    assert first == {"stream": stream, "seq": 1, "duplicate": False}
    assert (await do("js_publish", subject=f"{stream}.a", data={"n": 1}))["duplicate"]
    other = await do("js_publish", subject=f"{stream}.a", data={"n": 2}, visit="1/s/-/2")
    assert not other["duplicate"]
    got = await do("js_get_msg", stream=stream, seq=1)
    assert (got["data"], got["headers"]["x-kind"], got["subject"]) == (
        {"n": 1}, "demo", f"{stream}.a",
    )  # fmt: skip
    assert (await do("js_get_msg", stream=stream, last=True))["data"] == {"n": 2}
    assert (await do("js_get_msg", stream=stream, subject=f"{stream}.a"))["seq"] == 2
    info = await do("js_stream_info", stream=stream)
    assert (info["messages"], info["first_seq"], info["last_seq"]) == (2, 1, 2)
    assert told(await do.error("js_get_msg", stream=stream, seq=99)) == (
        "not_found", "message_not_found",
    )  # fmt: skip


async def test_what_no_stream_takes_is_not_found(do, name):
    assert told(await do.error("js_publish", subject=f"{name}.a", data="1")) == (
        "not_found", "stream_not_found",
    )  # fmt: skip
    assert told(await do.error("js_stream_info", stream=name)) == ("not_found", "stream_not_found")


async def test_consumed_messages_are_settled_when_the_report_was_stored(do, client, stream):
    about = ConsumerConfig(durable_name="c", ack_policy="explicit")
    await client.jetstream().add_consumer(stream, about)
    for number in range(3):
        await do("js_publish", subject=f"{stream}.a", data=number, visit=f"k{number}")

    async def unsettled():
        return (await client.jetstream().consumer_info(stream, "c")).num_ack_pending

    taken = await do("js_consume", stream=stream, consumer="c", batch=2)
    assert ([m["data"] for m in taken["messages"]], taken["count"]) == ([0, 1], 2)
    assert "ack_id" not in taken["messages"][0]
    assert await unsettled() == 2
    [settle] = do.afterwards
    await settle()
    assert await unsettled() == 0
    kept = await do("js_consume", stream=stream, consumer="c", ack="defer")
    assert kept["messages"][0]["ack_id"] == kept["ack_ids"][0]
    assert len(do.afterwards) == 1
    none = await do("js_consume", stream=stream, consumer="c", timeout_ms=0, ack=False)
    assert none["messages"] == []
    assert told(await do.error("js_consume", stream=stream, consumer="nobody")) == (
        "not_found", "consumer_not_found",
    )  # fmt: skip


async def test_a_batch_is_published_by_the_system_pool_alone(do, stream):
    messages = [{"subject": f"{stream}.a", "data": n} for n in range(5)]
    assert told(await do.error("js_publish_batch", messages=messages)) == (
        "auth", "platform_resource",
    )  # fmt: skip
    done = await do("js_publish_batch", messages=messages, pool="system")
    assert (done["published"], done["duplicates"]) == (5, 0)
    again = await do("js_publish_batch", messages=messages, pool="system")
    assert (again["published"], again["duplicates"]) == (0, 5)


async def test_a_question_is_answered_or_fails(do, client, name):
    async def answer(msg):
        await msg.respond(b'{"said": ' + msg.data + b"}")

    await client.subscribe(f"{name}.time", cb=answer)

    async def ignore(_msg):
        pass

    await client.subscribe(f"{name}.mute", cb=ignore)
    await client.flush()
    assert (await do("request", subject=f"{name}.time", data=5))["data"] == {"said": 5}
    nobody = await do.error("request", subject=f"{name}.nobody")
    assert told(nobody) == ("connection", "no_responders")
    mute = await do.error("request", subject=f"{name}.mute", timeout_ms=50)
    assert told(mute) == ("timeout", "tool_timeout")


# ---------------------------------------------------------------------------- remedies


@pytest.mark.parametrize(
    ("config", "error"),
    [
        (
            {"operation": "kv_get", "bucket": "nowhere", "key": "k"},
            ("not_found", "bucket_not_found",
             "there is no bucket nowhere: Make the bucket, or mend its name."),
        ),
        (
            {"operation": "js_stream_info", "stream": "NOWHERE"},
            ("not_found", "stream_not_found",
             "there is no stream NOWHERE: Make the stream, or mend its name."),
        ),
        (
            {"operation": "js_publish", "subject": "nowhere.a", "data": 1},
            ("not_found", "stream_not_found",
             ("no stream of the broker takes the subject nowhere.a: "
             "Make the stream, or mend its name.")),
        ),
        (
            {"operation": "js_consume", "stream": "NOWHERE", "consumer": "c"},
            ("not_found", "consumer_not_found",
             ("there is no consumer c of a stream NOWHERE: "
             "Make the stream and the durable consumer, or mend their names.")),
        ),
        (
            {"operation": "request", "subject": "nowhere.a"},
            ("connection", "no_responders",
             "nobody listens to nowhere.a: Start the service that answers, or mend the subject."),
        ),
        (
            {"operation": "kv_get", "bucket": "sessions", "key": "k"},
            ("auth", "platform_resource",
             ("the bucket sessions is the platform's own: tasks of user pools may not touch it: "
             "Use one of your own; the system pool alone may touch these.")),
        ),
        (
            {"operation": "kv_get", "bucket": "b", "key": "k", "url": "http://h"},
            ("config", "invalid_config",
             ("/url: the address of the broker cannot be read: http://h. "
             "Write nats://host:4222 or tls://host:4222, several with commas between.")),
        ),
        (
            {"operation": "kv_get", "bucket": "b", "key": "k", "auth": {"type": "nats"}},
            ("auth", "auth_required",
             ("/url: neither the task nor its credential names the address of the broker; "
             "write `url` into the credential or the task")),
        ),
    ],
    ids=lambda given: given[1] if isinstance(given, tuple) else given["operation"],
)  # fmt: skip
async def test_an_error_names_its_remedy(do, config, error):
    found = await do.error(**config)
    assert (found["kind"], found["code"], found["message"]) == error


LARGE = (
    "limit", "output_limit",
    ("the message is larger than the broker takes: put it into an object (`object_put`), "
    "or raise `max_payload` of the broker or `max_msg_size` of the stream"),
)  # fmt: skip


async def test_a_message_that_is_too_large_names_where_it_fits(do, client, bucket, name):
    await client.jetstream().add_stream(name=f"{name}s", subjects=[f"{name}.>"], max_msg_size=9)
    cases = [
        {"operation": "kv_put", "bucket": bucket, "key": "k", "value": "x" * (9 << 20)},
        {"operation": "js_publish", "subject": f"{name}.a", "data": "more than nine bytes"},
    ]
    try:
        found = [await do.error(**case) for case in cases]
    finally:
        await client.jetstream().delete_stream(f"{name}s")
    assert [(each["kind"], each["code"], each["message"]) for each in found] == [LARGE, LARGE]


async def test_a_key_that_is_there_names_what_to_write(do, bucket):
    await do("kv_create", bucket=bucket, key="k", value="1")
    exists = await do.error("kv_create", bucket=bucket, key="k", value="2")
    assert exists["message"] == (
        f"the key k of the bucket {bucket} is there already: "
        "Read it again, and write with its revision."
    )
    other = await do.error("kv_update", bucket=bucket, key="k", value="2", revision=7)
    assert other["message"] == (
        f"the key k of the bucket {bucket} has another revision by now; "
        "read it again, and write with its revision"
    )


GUEST = """
authorization { users: [
  {user: noetl, password: all},
  {user: guest, password: few, permissions: {
    publish: ["$JS.API.INFO"], subscribe: ["_INBOX.>"]}}
] }
"""


@pytest.fixture
async def guarded(tmp_path):
    """A broker with a user who may do next to nothing."""
    server = NatsServer(tmp_path / "nats", more=GUEST)
    server.spawn()
    try:
        await server.ready()
        yield server
    finally:
        server.stop()


@pytest.mark.parametrize(
    ("config", "subject"),
    [
        ({"operation": "kv_get", "bucket": "b", "key": "k"}, "$JS.API.STREAM.INFO.KV_b"),
        ({"operation": "js_consume", "stream": "S", "consumer": "c"}, "$JS.API.CONSUMER.INFO.S.c"),
        ({"operation": "request", "subject": "a.b", "timeout_ms": 500}, "a.b"),
    ],
    ids=lambda given: given["operation"] if isinstance(given, dict) else "",
)
async def test_a_login_without_the_right_is_told_which_one_it_lacks(tool, guarded, config, subject):
    port = guarded.nats.port
    found = await Does(tool, f"nats://guest:few@127.0.0.1:{port}").error(**config)
    assert (found["kind"], found["code"], found["message"], found["retryable"]) == (
        "auth", "subject_forbidden",
        (f'the broker refuses us: nats: permissions violation for publish to "{subject.lower()}": '
        "Give the user of the credential the right to publish or subscribe there."),
        False,
    )  # fmt: skip


# ---------------------------------------------------------------------------- who may do what


async def test_the_fields_of_a_credential_are_the_connection(do, connections, nats_server, bucket):
    async def secrets(alias):
        assert alias == "main"
        where = nats_server.nats.url.rpartition("@")[2]
        data = {"nats_url": f"nats://{where}", "nats_user": "noetl", "nats_password": PASSWORD}
        return {"type": "nats", "data": data}

    got = await do("kv_get", auth="main", secrets=secrets, bucket=bucket, key="k")
    assert got["status"] == "not_found"
    await do("kv_get", auth="main", secrets=secrets, bucket=bucket, key="k")
    assert len(connections) == 1


async def test_a_task_without_a_place_is_refused(do):
    assert told(await do.error("kv_get", auth=None, bucket="b", key="k")) == (
        "auth", "auth_required",
    )  # fmt: skip


async def test_a_wrong_password_is_an_auth_error_and_stays_secret(do, nats_server):
    where = nats_server.nats.url.rpartition("@")[2]
    url = f"nats://noetl:canary-nats-b71@{where}"
    error = await do.error("kv_get", url=url, bucket="b", key="k")
    assert told(error) == ("auth", "bad_login")
    assert "canary-nats-b71" not in str(error)


async def test_nobody_at_home_is_a_connection_error(do, free_port):
    error = await do.error("kv_get", url=f"nats://127.0.0.1:{free_port}", bucket="b", key="k")
    assert told(error) == ("connection", "CONN_REFUSED")
    assert error["retryable"]


async def test_a_guarded_worker_does_not_reach_inside(nats_url):
    tool = NatsTool(Connections(Guard(egress=Egress())), SystemClock())
    try:
        error = await Does(tool, nats_url).error("kv_get", bucket="b", key="k")
    finally:
        await tool.close()
    assert told(error) == ("egress", "egress_denied")


async def test_an_idle_connection_is_closed_and_a_lost_one_is_made_anew(nats_url, bucket):
    connections = Connections(Guard(egress=Egress(mode="open")), idle_s=0.05)
    tool = NatsTool(connections, SystemClock())
    do = Does(tool, nats_url)
    try:
        await do("kv_get", bucket=bucket, key="k")
        async with asyncio.timeout(10):
            while len(connections):  # noqa: ASYNC110 - nobody is told
                await asyncio.sleep(0.01)
        place = Address.of(nats_url)
        async with connections.use(place) as first:
            await first.close()
        async with connections.use(place) as second:
            assert second is not first
        assert (await do("kv_get", bucket=bucket, key="k"))["status"] == "not_found"
    finally:
        await tool.close()
    assert len(connections) == 0


@pytest.fixture
def free_port():
    with socket.socket() as sock:
        sock.bind(("127.0.0.1", 0))
        return sock.getsockname()[1]
