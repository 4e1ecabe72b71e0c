"""The names and settings of the broker's streams, and that nobody else writes them down."""

import re
from pathlib import Path

import noetl
from noetl.bus import streams, subjects
from noetl.bus.base import Delivery
from noetl.bus.streams import ApiFault, declare

SECOND = 1_000_000_000
_LITERAL = re.compile(
    r"""["'](?:noetl\.(?:commands|events|clients|control|live|keys|gateway\.(?:revoked|ingress))\.|NOETL_(?:COMMANDS|EVENTS|CLIENTS)\b|noetl_worker_pool_)"""
)


def test_only_the_bus_writes_names_of_the_bus():
    root = Path(noetl.__file__).parent
    found = [
        f"{path.relative_to(root)}: {line.strip()}"
        for path in sorted(root.rglob("*.py"))
        if path.parent != root / "bus"
        for line in path.read_text().splitlines()
        if _LITERAL.search(line)
    ]
    assert found == []


def test_the_streams_that_servers_and_workers_use():
    commands, events = streams.core()
    assert commands.config() == {
        "name": "NOETL_COMMANDS", "subjects": ["noetl.commands.>"], "retention": "limits",
        "discard": "old", "storage": "file", "max_age": 3600 * SECOND,
        "duplicate_window": 120 * SECOND, "max_msgs_per_subject": -1,
    }  # fmt: skip
    assert events.config() == {
        "name": "NOETL_EVENTS", "subjects": ["noetl.events.>"], "retention": "limits",
        "discard": "old", "storage": "file", "max_age": 86400 * SECOND,
        "duplicate_window": 120 * SECOND, "max_msgs_per_subject": -1,
    }  # fmt: skip


def test_the_stream_of_clients_is_heard_live():
    config = streams.CLIENTS.config()
    assert config["republish"] == {"src": "noetl.clients.>", "dest": "noetl.live.>"}
    assert (config["max_age"], config["max_msgs_per_subject"]) == (1800 * SECOND, 1000)
    assert (config["duplicate_window"], config["allow_direct"]) == (1800 * SECOND, True)
    assert subjects.matches(subjects.LIVE, subjects.live("c"))


def test_the_consumer_of_a_pool():
    assert streams.consumer("my.pool").config() == {
        "durable_name": "noetl_worker_pool_my_pool", "name": "noetl_worker_pool_my_pool",
        "filter_subject": "noetl.commands.my_pool.>", "ack_policy": "explicit",
        "deliver_policy": "all", "replay_policy": "instant", "ack_wait": 30 * SECOND,
        "max_deliver": 10, "max_ack_pending": 1024, "max_waiting": 4096,
    }  # fmt: skip


def test_the_consumer_of_gateways():
    assert streams.FEED.config() == {
        "durable_name": "gateway-requests", "name": "gateway-requests",
        "filter_subject": "noetl.events.>", "ack_policy": "explicit",
        "deliver_policy": "new", "replay_policy": "instant", "ack_wait": 30 * SECOND,
        "max_deliver": 10, "max_ack_pending": 4096, "max_waiting": 4096,
        "inactive_threshold": 3600 * SECOND,
    }  # fmt: skip


def test_a_bucket_keeps_one_value_per_key_and_republishes_it():
    assert streams.bucket("b").config() == {
        "name": "KV_b", "subjects": ["$KV.b.>"], "retention": "limits", "discard": "new",
        "storage": "file", "max_age": 0, "duplicate_window": 120 * SECOND,
        "max_msgs_per_subject": 1, "republish": {"src": "$KV.b.>", "dest": "noetl.keys.b.>"},
        "allow_rollup_hdrs": True, "allow_direct": True, "allow_msg_ttl": True,
        "deny_delete": True,
    }  # fmt: skip


def test_buckets_have_the_names_that_their_library_gives_them():
    assert [bucket.name for bucket in streams.BUCKETS] == [
        "KV_sessions", "KV_requests", "KV_circuits",
    ]  # fmt: skip
    assert streams.SPOOL.name == "OBJ_noetl_spool"


class Broker:
    """Answers as told, in order; the calls are kept."""

    def __init__(self, *answers):
        self.answers = list(answers)
        self.calls = []

    async def call(self, verb, body=None):
        self.calls.append((verb.split(".")[1], body))
        answer = self.answers.pop(0)
        if isinstance(answer, Exception):
            raise answer
        return answer


MISSING = ApiFault(404, 10059, "stream not found")
TAKEN = ApiFault(400, 10058, "name in use")


async def test_a_stream_that_somebody_else_just_made_is_compared():
    stream = streams.commands(Delivery())
    actual = stream.config() | {"max_age": 1, "num_replicas": 3}
    broker = Broker(MISSING, TAKEN, {"config": actual}, {})
    assert await declare(broker, [stream]) == ["repaired NOETL_COMMANDS: max_age"]
    assert [call for call, _ in broker.calls] == ["INFO", "CREATE", "INFO", "UPDATE"]
    assert broker.calls[-1][1] == stream.config() | {"num_replicas": 3}


async def test_what_is_as_it_should_be_costs_one_call():
    stream = streams.commands(Delivery())
    broker = Broker({"config": stream.config() | {"num_replicas": 3, "max_bytes": -1}})
    assert await declare(broker, [stream]) == []


def test_a_full_broker_is_a_matter_of_time():
    assert not ApiFault(500, 10047, "insufficient storage").is_final
    assert not ApiFault(503, 10008, "no meta leader").is_final
    assert ApiFault(500, 10052, "storage type").is_final
    assert ApiFault(503, 0, "x").retryable
