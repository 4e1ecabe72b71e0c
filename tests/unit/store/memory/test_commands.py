from hypothesis import given
from hypothesis import strategies as st
from msgspec.structs import replace

from noetl.store.memory import commands
from noetl.store.memory.commands import MemoryCommands
from noetl.store.memory.executions import write as write_execution
from noetl.store.memory.tables import Tables
from tests.conformance.store_suite import Run, at, entered

NUMBERS = st.integers(1, 6)
SECONDS = st.integers(0, 9)
ACTIONS = st.lists(
    st.one_of(
        st.tuples(st.just("PENDING"), NUMBERS, SECONDS, st.sampled_from([1, 5]), st.booleans()),
        st.tuples(st.just("CLAIMED"), NUMBERS, SECONDS, st.sampled_from(["w1", "w2"])),
        st.tuples(st.sampled_from(["PARKED", "COMPLETED", "extend"]), NUMBERS, SECONDS),
        st.tuples(st.sampled_from(["pause", "resume", "end"])),
    ),
    max_size=40,
)


class Model:
    """The same table without any order kept: every question is a scan."""

    def __init__(self):
        self.rows = {}
        self.status = "RUNNING"

    def pending(self, excluded=()):
        if self.status == "PAUSED":
            return []
        found = [
            row
            for row in self.rows.values()
            if row.status == "PENDING" and row.kind not in excluded
        ]
        found.sort(key=lambda row: (-row.priority, row.available_at, int(row.command_id)))
        return [row.command_id for row in found]

    def held(self, worker):
        return {n for n, row in self.rows.items() if row.worker_id == worker and _is_held(row)}

    def expired(self, now):
        return {n for n, row in self.rows.items() if _is_held(row) and row.lease_until < now}


def _is_held(row):
    return row.status == "CLAIMED"


@given(ACTIONS)
async def test_every_order_is_that_of_a_scan(actions):
    tables, model, run = Tables(), Model(), Run()
    kept = MemoryCommands(tables)
    for action in actions:
        await _act(tables, kept, model, run, action)
        assert [row.command_id for row in await kept.pending("shared", 99)] == model.pending()
        assert [row.command_id for row in await kept.pending("shared", 99, ["http"])] == (
            model.pending(["http"])
        )
        for worker in ("w1", "w2"):
            assert {r.command_id for r in await kept.of_worker(worker)} == model.held(worker)
        assert {r.command_id for r in await kept.expired(at(5))} == model.expired(at(5))
        assert {n: await kept.get(n) for n in model.rows} == model.rows


async def _act(tables, kept, model, run, action):
    name, *given_ = action
    rows = ()
    if name in {"pause", "resume", "end"}:
        model.status = {"pause": "PAUSED", "resume": "RUNNING", "end": "CANCELLED"}[name]
    elif name == "extend":
        number, second = given_
        await kept.extend("w1", [(str(number), 1)], at(second))
        row = model.rows.get(str(number))
        if row is not None and _is_held(row) and row.worker_id == "w1":
            until = max(row.lease_until, at(second))
            model.rows[str(number)] = replace(row, lease_until=until)
        return
    else:
        rows = (_row(model, run, name, *given_),)
    ended = at(9) if name == "end" else None
    change = run.change(
        entered(), commands=rows, row={"status": model.status, "completed_at": ended}
    )
    write_execution(tables, change)
    commands.write(tables, change)
    commands.turned(tables, run.execution_id)
    _follow(model, rows, name)


def _row(model, run, name, number, second, *more):
    before = model.rows.get(str(number))
    if name == "PENDING":
        priority, is_http = more
        kind = "http" if is_http else "python"
        return run.command(number, priority=priority, kind=kind, available_at=at(second))
    since = before.available_at if before is not None else ""
    if name == "CLAIMED":
        return run.claimed(number, worker=more[0], until=second, available_at=since)
    return run.command(number, status=name, available_at=since)


def _follow(model, rows, name):
    for row in rows:
        before = model.rows.pop(row.command_id, None)
        if row.status == "COMPLETED":
            continue
        is_same = before is not None and _is_held(before) and _is_held(row)
        if is_same and before.worker_id == row.worker_id:
            until = max(row.lease_until, before.lease_until)
            model.rows[row.command_id] = replace(row, lease_until=until)
        else:
            model.rows[row.command_id] = row
    if name == "end":
        model.rows.clear()


async def test_closed_commands_of_a_long_loop_share_what_is_told_of_them():
    tables, run = Tables(), Run()
    for number in range(1000):
        for status in ("PENDING", "COMPLETED"):
            change = run.change(entered(), commands=(run.command(number, status=status),))
            commands.write(tables, change)
    table = tables.commands
    assert (len(table.rows), len(table.closed), len(table.stones)) == (0, 1000, 1)
    assert (table.of_execution, table.of_worker, table.kept) == ({}, {}, {})
