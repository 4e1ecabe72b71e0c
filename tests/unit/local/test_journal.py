import os
import stat

import msgspec
import pytest

from noetl.engine.events import PlaybookCompleted, PlaybookStarted, Recorded, StepEntered
from noetl.local.journal import CorruptLog, Journal, read


def row(seq, event, run="7"):
    return Recorded(
        execution_id=run,
        seq=seq,
        event_id=f"{run}0{seq}",
        prev_event_id=f"{run}0{seq - 1}" if seq > 1 else None,
        created_at=f"2026-01-01T00:00:0{seq}.000000Z",
        event=event,
    )


def started(run="7"):
    return PlaybookStarted(execution_id=run, path="a/b", version=1, catalog_id="3", workload={})


def log(run="7"):
    return [
        row(1, started(run), run),
        row(2, StepEntered(step="start", visit=1), run),
        row(3, PlaybookCompleted(result={"n": 1}), run),
    ]


@pytest.fixture
def path(tmp_path):
    return tmp_path / "runs" / "7.jsonl"


@pytest.fixture
def written(path):
    journal = Journal(path)
    journal.commit(log())
    journal.close()
    return path


def test_what_is_committed_is_read_back(path):
    journal = Journal(path)
    first, second, third = log()
    journal.commit([first])
    assert read(path) == [first]
    journal.commit([second, third])
    journal.close()

    assert read(path) == log()


def test_only_the_owner_may_read_the_log(written):
    assert stat.S_IMODE(written.stat().st_mode) == 0o600


def test_events_of_several_runs_share_a_log(path):
    journal = Journal(path)
    parent, child = log("7"), log("8")
    journal.commit([parent[0], child[0], parent[1], *child[1:], parent[2]])
    journal.close()

    assert [(item.execution_id, item.seq) for item in read(path)] == [
        ("7", 1), ("8", 1), ("7", 2), ("8", 2), ("8", 3), ("7", 3),
    ]  # fmt: skip


@pytest.mark.parametrize("kept", [1, 10, -1])
def test_a_torn_last_line_is_dropped_and_cut_off_by_the_next_write(written, kept):
    lines = written.read_bytes().splitlines(keepends=True)
    written.write_bytes(b"".join(lines[:2]) + lines[2][:kept])

    assert read(written) == log()[:2]
    journal = Journal(written)
    journal.commit(log()[2:])
    journal.close()
    assert read(written) == log()


def test_a_damaged_line_is_named(written):
    lines = written.read_bytes().splitlines(keepends=True)
    written.write_bytes(lines[0] + b"{nonsense}\n" + lines[2])

    with pytest.raises(CorruptLog) as caught:
        read(written)
    assert caught.value.message.startswith(f"{written}, line 2: the line is no event: ")


@pytest.mark.parametrize(
    ("lines", "what"),
    [
        ((0, 2), "line 2: the line has seq 3 where 2 was expected"),
        ((0, 0), "line 2: the line has seq 1 where 2 was expected"),
        ((1,), "line 1: the line has seq 2 where 1 was expected"),
    ],
)
def test_a_line_that_is_missing_or_doubled_is_named(written, lines, what):
    whole = written.read_bytes().splitlines(keepends=True)
    written.write_bytes(b"".join(whole[number] for number in lines))

    with pytest.raises(CorruptLog) as caught:
        read(written)
    assert caught.value.message == f"{written}, {what}"


def test_a_line_that_follows_another_event_is_named(path):
    journal = Journal(path)
    first, second, _ = log()
    journal.commit([first, msgspec.structs.replace(second, prev_event_id="1")])
    journal.close()

    with pytest.raises(CorruptLog) as caught:
        read(path)
    what = "the line does not follow the event before it, 701"
    assert caught.value.message == f"{path}, line 2: {what}"


def test_a_run_must_begin_with_its_start(path):
    journal = Journal(path)
    journal.commit([row(1, StepEntered(step="start", visit=1))])
    journal.close()

    with pytest.raises(CorruptLog, match=r"no `playbook\.started`"):
        read(path)


def test_an_empty_log_is_no_log(path):
    path.parent.mkdir()
    path.write_bytes(b"")

    with pytest.raises(CorruptLog, match="holds no event"):
        read(path)


def test_a_full_disk_leaves_whole_lines_only(path):
    journal = Journal(path)
    journal.commit(log()[:1])
    size = path.stat().st_size
    full = os.open("/dev/full", os.O_WRONLY)
    os.dup2(full, journal._file)  # noqa: SLF001 - the disk that is full is that of this file
    os.close(full)

    with pytest.raises(OSError, match="No space"):
        journal.commit(log()[1:])
    journal.close()
    assert path.stat().st_size == size
