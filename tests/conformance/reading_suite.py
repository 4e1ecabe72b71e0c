"""What every store sums up for readers of runs; a backend is the fixture `store`."""

from noetl.engine.events import (
    ArcTaken,
    CommandClaimed,
    CommandIssued,
    CommandLost,
    CtxUpdated,
    Routing,
    StepEntered,
    StepExited,
    StepSkipped,
    TimerSet,
)
from noetl.store.base import Listing
from noetl.store.reading import ArcSum, StepSum
from tests.conformance.store_suite import Run, at

OTHER = "331204559102443521"
THIRD = "331204559102443522"


def left(step, taken="", visit=1):
    """The exit of a step; each arc is a letter, `y` when it was taken."""
    arcs = tuple(ArcTaken(step="x", on="success", taken=word == "y") for word in taken)
    return StepExited(
        step=step, visit=visit, outcome="COMPLETED", routing=Routing(mode="exclusive", arcs=arcs)
    )


class ReadingSuite:
    """Sums, places and changes."""

    async def test_rows_come_in_the_order_of_their_ids_and_unknown_ones_not_at_all(self, store):
        for name in (THIRD, OTHER):
            run = Run(name)
            await run.write(store, run.started())
        named = Listing(execution_ids=(THIRD, "12", OTHER, THIRD, "no id"), is_ascending=True)
        found = await store.executions.listed(named)
        assert [row.execution_id for row in found] == [OTHER, THIRD]
        assert await store.executions.listed(Listing(execution_ids=("no id",))) == []

    async def test_a_log_is_summed_up_by_step(self, store):
        run, other = Run(), Run(OTHER)
        about = {"step": "load", "command_key": "load#1", "attempt": 1}
        await run.write(
            store,
            run.started(),
            StepEntered(step="load", visit=1),
            TimerSet(timer_key="t", kind="step_timeout", due_at=at(9), step="load"),
            CommandIssued(step="load", visit=1, command_key="load#1", kind="x", pool="shared"),
            CommandClaimed(**about, worker_id="w"),
            CommandLost(**about),
            CommandClaimed(**about | {"attempt": 2}, worker_id="v"),
            CtxUpdated(step="load", cause="set"),
            left("load", "y"),
            StepSkipped(step="späte", reason="not_taken"),
            StepEntered(step="load", visit=2),
        )
        await other.write(store, other.started(), StepEntered(step="other", visit=1))
        assert await store.reading.steps(run.execution_id) == [
            StepSum(step="load", entered=2, claimed=2, lost=1, started_at=at(2), ended_at=at(9)),
            StepSum(step="späte", ended_at=at(10)),
        ]
        assert await store.reading.steps("12") == []

    async def test_arcs_are_counted_by_their_place(self, store):
        run = Run()
        refused = StepSkipped(
            step="b",
            reason="admission",
            routing=Routing(mode="inclusive", arcs=(ArcTaken(step="c", on="success", taken=True),)),
        )
        await run.write(
            store, run.started(), left("a", "yn"), left("a", "nn", visit=2), refused,
            StepSkipped(step="c", reason="dead_path"), left("d"),
        )  # fmt: skip
        assert await store.reading.arcs(run.execution_id) == [
            ArcSum(step="a", place=0, looked=2, taken=1),
            ArcSum(step="a", place=1, looked=2, taken=0),
            ArcSum(step="b", place=0, looked=1, taken=1),
        ]

    async def test_runs_are_found_by_the_ids_of_their_newest_events(self, store):
        runs = [Run(name) for name in (OTHER, THIRD)]
        for run in runs:
            await run.write(store, run.started())
        first, second = (run.event_id(1) for run in runs)
        assert await store.reading.changed(first, second) == [OTHER, THIRD]
        assert await store.reading.changed(first, second, limit=1) == [OTHER]
        assert await store.reading.changed(second, second) == [THIRD]
        later = str(int(second) + 1)
        assert await store.reading.changed(later, str(int(later) + 10)) == []

    async def test_a_place_in_the_queue_is_that_of_the_claims(self, store):
        run = Run()
        rows = [
            run.command(1, available_at=at(5)),
            run.command(2, available_at=at(4)),
            run.command(3, available_at=at(9), priority=9),
            run.command(4, available_at=at(1), pool="gpu"),
            run.command(5, available_at=at(1), status="CLAIMED", worker_id="w", lease_until=at(99)),
        ]
        await run.write(store, run.started(), commands=tuple(rows))
        pending = await store.commands.pending("shared", 10)
        places = [await store.reading.ahead("shared", row.command_id) for row in pending]
        assert ([row.command_id for row in pending], places) == (["3", "2", "1"], [0, 1, 2])
        assert await store.reading.ahead("shared", "1", most=1) == 1
        for pool, name in (("shared", "4"), ("shared", "5"), ("shared", "77")):
            assert await store.reading.ahead(pool, name) is None

    async def test_there_is_no_circuit_that_nobody_wrote(self, store):
        assert await store.reading.circuits("default", "a/b") == []
