"""Sources as runtimes open them: they outlive their broker's restarts."""

import asyncio
from datetime import datetime, timedelta

import pytest
from nats.js.api import ConsumerConfig

from noetl.clock import SystemClock
from noetl.sources.base import Facts, SourceError
from noetl.sources.connecting import connect, end
from noetl.sources.opening import open_source
from noetl.sources.places import as_written, place_of
from tests.servers.nats import NatsServer
from tests.unit.intake.world import World, settled

LONG_MS = 5000
LATE_S = 30
HOUR_S = 3600


@pytest.fixture
def server(tmp_path):
    made = NatsServer(tmp_path)
    made.start()
    yield made
    made.stop()


async def prepared(server, **more):
    """A stream with a consumer; the fields that name them."""
    fields = {"url": server.url, "stream": "S", "consumer": "c"}
    client = await connect(place_of("nats", fields, {}), as_written)
    js = client.jetstream()
    await js.add_stream(name="S", subjects=["s.>"], max_age=HOUR_S)
    about = ConsumerConfig(durable_name="c", ack_policy="explicit", **{"ack_wait": 20, **more})
    await js.add_consumer("S", about)
    await js.publish("s.a", b"1")
    await end(client)
    return fields


async def published(fields, body):
    """One more message."""
    client = await connect(place_of("nats", fields, {}), as_written)
    await client.jetstream().publish("s.a", body)
    await end(client)


async def found(source, value):
    """A message of that value, once the broker is back; others may come again before it."""
    async with asyncio.timeout(LATE_S):
        while True:
            try:
                messages = await source.poll(5, LONG_MS)
            except SourceError as fault:
                if not fault.is_retryable:
                    raise
                await asyncio.sleep(0.01)
                continue
            for message in messages:
                if message.data == value:
                    return message


async def test_a_source_goes_on_after_its_broker_was_killed(server):
    fields = await prepared(server)
    source = await open_source("nats", fields, {}, SystemClock())
    assert len(await source.poll(1, LONG_MS)) == 1
    server.kill()
    with pytest.raises(SourceError) as caught:
        await source.poll(1, LONG_MS)
    assert caught.value.is_retryable
    server.spawn()
    await server.ready()
    await published(fields, b"2")
    message = await found(source, 2)
    assert (await source.ack([message.ack_id])).errors == ()
    await source.close()


async def test_an_heir_gets_what_another_held_before_what_is_new(server):
    fields = await prepared(server, ack_wait=1.0)
    gone = await open_source("nats", fields, {}, SystemClock())
    [held] = await gone.poll(1, LONG_MS)
    await gone.close()
    await published(fields, b"2")
    heir = await open_source("nats", fields, {}, SystemClock(), is_heir=True)
    assert await heir.poll(5, 0) == []
    first, second = await heir.poll(5, LONG_MS)
    assert (first.id, first.metadata["delivered"], second.data) == (held.id, 2, 2)
    await heir.close()


async def test_an_heir_gets_what_another_held_in_the_order_of_the_stream(server):
    """The broker brings back first what was longest in the hands of the other."""
    fields = await prepared(server, ack_wait=1.0)
    await published(fields, b"2")
    gone = await open_source("nats", fields, {}, SystemClock())
    first, second = await gone.poll(2, LONG_MS)
    await asyncio.sleep(0.3)
    assert (await gone.extend([first.ack_id])).errors == ()
    await gone.close()
    await published(fields, b"3")
    heir = await open_source("nats", fields, {}, SystemClock(), is_heir=True)
    came = [(await heir.poll(1, LONG_MS))[0] for _ in range(3)]
    assert [(one.id, one.data) for one in came] == [(first.id, 1), (second.id, 2), ("S:3", 3)]
    await heir.close()


async def test_an_heir_of_nothing_does_not_wait(server):
    fields = await prepared(server)
    source = await open_source("nats", fields, {}, SystemClock(), is_heir=True)
    assert len(await source.poll(1, 0)) == 1
    await source.close()


async def test_a_source_of_nats_tells_how_patient_its_consumer_and_stream_are(server):
    fields = await prepared(server, max_deliver=7)
    source = await open_source("nats", fields, {}, SystemClock())
    assert source.facts() == Facts(max_deliver=7, max_age_s=float(HOUR_S), ack_wait_s=20.0)
    await source.close()


async def test_a_message_that_its_stream_will_soon_forget_is_taken_in(server):
    fields = await prepared(server)
    source = await open_source("nats", fields, {}, SystemClock())
    [message] = await source.poll(1, LONG_MS)
    facts, sent_at = source.facts(), datetime.fromisoformat(message.metadata["timestamp"])
    await source.close()
    age_s = (SystemClock().now() - sent_at).total_seconds()
    assert 0 <= age_s < LATE_S
    passive = {"downstream": [{"name": "tsdb", "probe": "passive"}], "trip_after": 1}
    came = []
    for age in (HOUR_S / 2 - 1, HOUR_S / 2 + 1):
        start = sent_at + timedelta(seconds=age)
        world = World(start=start, spool={"mode": "hybrid", "circuit": passive})
        engine = world.engine(retention_s=facts.max_age_s)
        await engine.breakers.failed("tsdb")
        came += settled(await engine.intake.handle([message.as_json()]))
    assert came == [("nack", "held"), ("ack", "spooled")]


async def test_a_consumer_that_is_not_there_is_named_with_its_stream(server):
    fields = {"url": server.url, "stream": "Nowhere", "consumer": "nobody"}
    with pytest.raises(SourceError) as caught:
        await open_source("nats", fields, {}, SystemClock())
    assert (caught.value.kind, caught.value.code) == ("not_found", "consumer_not_found")
    assert "Nowhere" in caught.value.message
    assert "nobody" in caught.value.message


async def test_a_consumer_without_explicit_acks_is_refused(server):
    fields = await prepared(server)
    client = await connect(place_of("nats", fields, {}), as_written)
    await client.jetstream().add_consumer(
        "S", ConsumerConfig(durable_name="loose", ack_policy="none")
    )
    await end(client)
    with pytest.raises(SourceError) as caught:
        await open_source("nats", {**fields, "consumer": "loose"}, {}, SystemClock())
    assert caught.value.code == "ack_policy_invalid"


async def test_a_wrong_password_is_told_without_it(server):
    fields = {"url": server.nats.url.rpartition("@")[2], "stream": "S", "consumer": "c"}
    auth = {"user": "noetl", "password": "quite wrong"}
    with pytest.raises(SourceError) as caught:
        await open_source("nats", fields, auth, SystemClock())
    assert caught.value.code == "bad_login"
    assert "quite wrong" not in caught.value.message
