from noetl.store.memory.executions import write
from noetl.store.memory.tables import Tables
from tests.conformance.store_suite import Run, at


def test_keys_whose_window_has_ended_are_forgotten():
    tables = Tables()
    for number in range(1, 101):
        run = Run(str(number))
        row = {"updated_at": at(number)}
        write(
            tables, run.change(run.started(), row=row, dedup=("s", f"k{number}", at(number + 10)))
        )
    assert len(tables.executions.dedup) == len(tables.executions.windows) == 10
