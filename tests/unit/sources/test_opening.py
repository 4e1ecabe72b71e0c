"""The one way to a source: what is missing is told, what broke is made anew."""

import sys

import pytest

from noetl.clock import SystemClock
from noetl.sources.base import Facts, SourceError, report_of
from noetl.sources.memory import MemorySource
from noetl.sources.opening import LastingSource, open_source

KAFKA = {"topic": "t", "group": "g", "brokers": "127.0.0.1:1"}
PUBSUB = {"subscription": "projects/p/subscriptions/s", "endpoint": "http://127.0.0.1:1"}
LOST = SourceError("connection", "CONN_RESET", "gone", retryable=True)


@pytest.mark.parametrize(
    ("kind", "fields", "modules"),
    [
        ("kafka", KAFKA, ("aiokafka", "noetl.sources.kafka", "noetl.sources.kafka_client")),
        ("pubsub", PUBSUB, ("google.api_core", "grpc", "noetl.sources.pubsub")),
    ],
)
async def test_a_source_whose_extra_is_not_installed_is_unavailable(
    kind, fields, modules, monkeypatch
):
    for name in [name for name in sys.modules if name in modules]:
        monkeypatch.delitem(sys.modules, name)
    for name in modules:
        if not name.startswith("noetl"):
            monkeypatch.setitem(sys.modules, name, None)
    with pytest.raises(SourceError) as caught:
        await open_source(kind, fields, {}, SystemClock())
    assert (caught.value.kind, caught.value.code) == ("config", "source_unavailable")
    assert f"pip install 'noetl[{kind}]'" in caught.value.message


async def test_bad_fields_fail_before_anything_is_opened():
    with pytest.raises(SourceError) as caught:
        await open_source("kafka", {"topic": "t", "brokers": "k"}, {}, SystemClock())
    assert caught.value.message.startswith("/group: ")


class Breaking(MemorySource):
    """A source whose next call fails when it is told so."""

    def __init__(self):
        super().__init__(SystemClock())
        self.is_broken = self.is_closed = False
        self.code = "connection"

    async def poll(self, batch, timeout_ms):
        if self.is_broken:
            raise LOST
        return await super().poll(batch, timeout_ms)

    async def ack(self, ack_ids):
        if self.is_broken:
            return report_of(ack_ids, dict.fromkeys(ack_ids, (self.code, "gone")))
        return await super().ack(ack_ids)

    async def close(self):
        self.is_closed = True
        await super().close()


class Maker:
    """Makes sources, and remembers them."""

    def __init__(self):
        self.made = []

    async def __call__(self):
        self.made.append(Breaking())
        return self.made[-1]


async def test_any_fetch_error_discards_the_connection_and_the_next_poll_has_a_new_one():
    maker = Maker()
    source = LastingSource(maker)
    assert await source.poll(1, 0) == []
    maker.made[0].is_broken = True
    with pytest.raises(SourceError):
        await source.poll(1, 0)
    assert maker.made[0].is_closed
    assert await source.poll(1, 0) == []
    assert len(maker.made) == 2
    assert source.facts() == Facts(ack_wait_s=30.0)
    await source.close()
    assert maker.made[1].is_closed


@pytest.mark.parametrize(
    ("is_remade", "code", "sources"),
    [
        (True, "connection", 2),
        (True, "ack_timeout", 2),
        (True, "stale", 1),
        (False, "connection", 1),
    ],
)
async def test_acks_renew_the_connection_where_ids_outlive_it(is_remade, code, sources):
    maker = Maker()
    source = LastingSource(maker, is_remade_by_acks=is_remade)
    await source.open()
    maker.made[0].is_broken, maker.made[0].code = True, code
    assert (await source.ack(["x"])).errors[0].code == code
    await source.ack(["x"])
    assert len(maker.made) == sources
    await source.close()


async def test_a_lasting_source_passes_everything_on():
    source = LastingSource(Maker())
    inner = await source.open()
    inner.publish(b"1")
    inner.publish(b"2")
    first, second = [message.ack_id for message in await source.poll(2, 0)]
    assert await source.backlog() == 2
    assert (await source.extend([first])).disposed == 1
    assert (await source.nack([first], 60_000)).disposed == 1
    assert (await source.term([second])).disposed == 1
    assert await source.backlog() == 1
    await source.close()
    await source.close()
