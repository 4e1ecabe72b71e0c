from __future__ import annotations

import asyncio
from pathlib import Path
from threading import Event

import pytest

from noetl.blobs.spool.together import Together


async def test_those_that_come_meanwhile_are_done_together_and_each_hears_of_its_own():
    may_go_on, seen = Event(), []

    def do(path):
        may_go_on.wait(10)
        seen.append(path.name)
        if path.name == "3":
            raise ValueError("of this one alone")
        return path.name

    files = Together(do)
    tasks = [asyncio.create_task(files.of(Path(str(n)))) for n in range(6)]
    await asyncio.sleep(0)
    tasks[4].cancel()
    may_go_on.set()
    found = await asyncio.gather(*tasks, return_exceptions=True)
    assert found[:3] == ["0", "1", "2"]
    assert isinstance(found[3], ValueError)
    assert isinstance(found[4], asyncio.CancelledError)
    assert found[5] == "5"
    assert seen == [str(n) for n in range(6)]
    assert await files.of(Path("7")) == "7"


async def test_whoever_waits_is_not_left_when_the_work_is_ended():
    may_go_on = Event()
    files = Together(lambda path: may_go_on.wait(10) and path)
    waiting = [asyncio.create_task(files.of(Path(str(n)))) for n in range(3)]
    await asyncio.sleep(0)
    [work] = [task for task in asyncio.all_tasks() if task.get_name() == "spool-files"]
    await asyncio.sleep(0)
    work.cancel()
    may_go_on.set()
    with pytest.raises(asyncio.CancelledError):
        await asyncio.gather(*waiting)
    assert await files.of(Path("4")) == Path("4")
