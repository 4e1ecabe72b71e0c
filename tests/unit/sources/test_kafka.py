"""Faults and certificates of Kafka, and records as messages, without a broker."""

import asyncio
import ssl
from types import SimpleNamespace

import pytest
from aiokafka import TopicPartition, errors

from noetl.sources.base import SourceError
from noetl.sources.kafka_client import context_of, fault_of
from noetl.sources.kafka_messages import text_of
from noetl.sources.kafka_partitions import Partitions
from noetl.sources.places import Certificates, place_of

PLACE = place_of("kafka", {"topic": "t", "group": "g", "brokers": "k:9092"}, {})


@pytest.mark.parametrize(
    ("fault", "kind", "code", "is_retryable"),
    [
        (errors.KafkaConnectionError("away"), "connection", "CONN_RESET", True),
        (ConnectionRefusedError("no"), "connection", "CONN_RESET", True),
        (TimeoutError(), "timeout", "tool_timeout", True),
        (errors.KafkaTimeoutError(), "timeout", "tool_timeout", True),
        (errors.AuthenticationFailedError("x"), "auth", "bad_login", False),
        (errors.SaslAuthenticationFailed("x"), "auth", "bad_login", False),
        (errors.TopicAuthorizationFailedError("t"), "auth", "topic_forbidden", False),
        (errors.GroupAuthorizationFailedError("g"), "auth", "topic_forbidden", False),
        (errors.UnknownError("x"), "client_error", "source_refused", False),
    ],
)
def test_faults_of_the_client_are_told_in_our_words(fault, kind, code, is_retryable):
    told = fault_of(fault, PLACE)
    assert (told.kind, told.code, told.is_retryable) == (kind, code, is_retryable)


def test_a_fault_that_is_ours_already_stays():
    ours = SourceError("config", "invalid_config", "x")
    assert fault_of(ours, PLACE) is ours


def test_bytes_are_text_or_base64():
    assert (text_of(b"a"), text_of(b"\xff"), text_of(b"")) == ("a", "/w==", "")


def test_certificates_that_are_none_are_told():
    assert isinstance(context_of(Certificates()), ssl.SSLContext)
    for wrong in (Certificates(ca="x"), Certificates(cert="x", key="y")):
        with pytest.raises(SourceError) as caught:
            context_of(wrong)
        assert caught.value.code == "invalid_config"
        assert caught.value.message.startswith("/ssl: ")


PART = TopicPartition("t", 0)


class Member:
    """A member whose commits end as they are told."""

    def __init__(self):
        self.fault = None
        self.commits = []
        self.may_commit = asyncio.Event()
        self.may_commit.set()

    async def commit(self, offsets):
        await self.may_commit.wait()
        if self.fault is not None:
            raise self.fault
        self.commits.append(offsets)


def held(member, *offsets):
    made = Partitions(member, PLACE, None)
    made.assign([PART])
    for offset in offsets:
        assert made.give(SimpleNamespace(topic="t", partition=0, offset=offset))
    return made


async def codes(partitions, *ack_ids):
    return [error.code for error in (await partitions.settled(ack_ids)).errors]


async def test_a_commit_that_failed_is_made_with_the_next_ack():
    member = Member()
    partitions = held(member, 0, 1)
    member.fault = errors.KafkaConnectionError("away")
    assert await codes(partitions, "t:0:0") == ["connection"]
    member.fault = None
    assert await codes(partitions, "t:0:0") == []
    assert member.commits == [{PART: 1}]


@pytest.mark.parametrize(
    ("fault", "code"),
    [
        (errors.CommitFailedError("gone"), "stale"),
        (errors.IllegalStateError("gone"), "stale"),
        (TimeoutError(), "ack_timeout"),
    ],
)
async def test_a_commit_that_the_group_does_not_take_is_told(fault, code):
    member = Member()
    member.fault = fault
    assert await codes(held(member, 0), "t:0:0") == [code]


async def test_acks_that_wait_while_the_group_is_divided_anew_are_stale():
    member = Member()
    partitions = held(member, 0, 1)
    member.may_commit.clear()
    first = asyncio.create_task(codes(partitions, "t:0:0"))
    await asyncio.sleep(0)
    second = asyncio.create_task(codes(partitions, "t:0:1"))
    await asyncio.sleep(0)
    partitions.revoke([PART])
    partitions.assign([PART])
    member.fault = errors.CommitFailedError("gone")
    member.may_commit.set()
    assert (await first, await second) == (["stale"], ["stale"])


async def test_ids_of_partitions_that_are_not_ours_are_stale():
    partitions = held(Member(), 0)
    assert await codes(partitions, "t:1:0", "other:0:0", "t:0:9") == ["stale"] * 3
