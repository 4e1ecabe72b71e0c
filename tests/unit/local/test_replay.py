import msgspec
import pytest

from noetl.engine import events as ev
from noetl.local.playbooks import PlaybookChanged, Shelf
from noetl.local.replay import replay
from noetl.store.memory.store import MemoryStore
from tests.unit.local.stage import Stage, playbook
from tests.unit.local.test_restore import CHILD, MOCKS, WORKFLOW


@pytest.fixture
def shelf(tmp_path):
    (tmp_path / "child.yaml").write_text(CHILD)
    (tmp_path / "main.yaml").write_text(playbook(WORKFLOW))
    return Shelf(MemoryStore().catalog, tmp_path)


@pytest.fixture
def story(shelf, tmp_path):
    del shelf
    return Stage(playbook(WORKFLOW), MOCKS, tmp_path).play()[1].events


async def test_the_engine_decides_again_what_it_decided(story, shelf):
    done = await replay(story, shelf)

    assert (done.runs, done.difference, done.unread) == (2, None, None)
    assert done.decisions > 30


async def test_a_log_that_was_cut_is_fine_as_far_as_it_goes(story, shelf):
    for cut in range(1, len(story)):
        assert (await replay(story[:cut], shelf)).difference is None


async def test_the_first_decision_that_differs_is_named(story, shelf):
    at = next(n for n, item in enumerate(story) if isinstance(item.event, ev.StepExited))
    exited = story[at]
    other = msgspec.structs.replace(
        exited, event=msgspec.structs.replace(exited.event, result={"n": 8})
    )
    skipped = msgspec.structs.replace(
        exited, event=ev.StepSkipped(step="start", reason="admission")
    )
    place = f"run {exited.execution_id}, seq {exited.seq}"

    done = await replay([*story[:at], other, *story[at + 1 :]], shelf)
    assert done.difference.words() == (
        f"{place}: the log has step.exit of start, today it is step.exit of start "
        "with other values of result"
    )
    done = await replay([*story[:at], skipped, *story[at + 1 :]], shelf)
    assert done.difference.words() == (
        f"{place}: the log has step.skipped of start, today it is step.exit of start"
    )


async def test_a_defect_that_was_recorded_is_passed_over(story, shelf):
    defect = msgspec.structs.replace(story[1], event=ev.EngineFailed(message="x"))

    assert (await replay([story[0], defect, *story[1:]], shelf)).difference is None


async def test_a_playbook_that_is_gone_is_named(story, tmp_path):
    empty = tmp_path / "empty"
    empty.mkdir()

    with pytest.raises(PlaybookChanged, match="the playbook t/main of the log is not there"):
        await replay(story, Shelf(MemoryStore().catalog, empty))
