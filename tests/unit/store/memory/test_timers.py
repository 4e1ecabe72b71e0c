from noetl.store.memory.tables import Tables
from noetl.store.memory.timers import write
from tests.conformance.store_suite import Run, entered


def test_a_run_without_timers_leaves_nothing_behind():
    tables, run = Tables(), Run()
    write(tables, run.change(entered(), timers=(run.timer("a", 1), run.timer("b", 2))))
    write(tables, run.change(entered(), timers_gone=("a",)))
    assert list(tables.timers.rows[run.execution_id]) == ["b"]
    write(tables, run.change(entered(), timers_gone=("b",)))
    assert (tables.timers.rows, len(tables.timers.order)) == ({}, 0)
