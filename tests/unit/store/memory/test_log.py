import pytest
from msgspec.structs import replace

from noetl.store.memory.store import MemoryStore
from noetl.store.wellformed import MalformedChange
from tests.conformance.store_suite import RUN, Run, entered


async def test_whoever_is_told_of_commits_gets_the_events_of_the_winners_in_order():
    told = []
    store = MemoryStore(on_commit=told.append)
    run, other = Run(), Run("331204559102443521")
    first = await run.write(store, run.started())
    stale = Run().change(entered())
    fine = other.change(other.started(), entered())
    assert await store.log.commit([stale, fine]) == {RUN}
    assert await store.log.commit([stale]) == {RUN}
    assert told == [list(first.events), list(fine.events)]


async def test_a_listener_that_fails_is_told_after_the_fact():
    def fail(_events):
        message = "disk full"
        raise OSError(message)

    store = MemoryStore(on_commit=fail)
    run = Run()
    with pytest.raises(OSError, match="disk full"):
        await store.log.commit([run.change(run.started())])
    assert len(await store.log.read(RUN)) == 1


async def test_a_malformed_change_is_a_defect_of_the_writer():
    gap = replace(Run().change(entered()), expected_seq=3)
    with pytest.raises(MalformedChange, match="after seq 3"):
        await MemoryStore().log.commit([gap])
