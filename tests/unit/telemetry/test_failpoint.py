"""Faults on purpose."""

from __future__ import annotations

import asyncio
import re
from pathlib import Path

import pytest

import noetl
from noetl.errors import NoetlError
from noetl.telemetry.failpoint import POINTS, Injected, armed, configure, failpoint

BEFORE, AFTER, CLAIM = "server.append.before_commit", "server.append.after_commit", "worker.claim"


@pytest.fixture(autouse=True)
def _calm():
    yield
    configure("")


async def test_nothing_happens_unless_it_is_asked_for() -> None:
    assert not armed
    await failpoint(BEFORE)
    configure(f"{AFTER}=error")
    await failpoint(BEFORE)


async def test_an_error_comes_as_often_as_it_is_asked_for() -> None:
    configure(f"{BEFORE}=error*2; {CLAIM}=delay:1")
    for _ in range(2):
        with pytest.raises(Injected):
            await failpoint(BEFORE)
    await failpoint(BEFORE)
    await failpoint(CLAIM)


async def test_a_fault_waits_for_its_time() -> None:
    configure(f"{BEFORE}=error@3*1")
    for _ in range(2):
        await failpoint(BEFORE)
    with pytest.raises(Injected):
        await failpoint(BEFORE)
    await failpoint(BEFORE)


async def test_a_place_that_hangs_hangs() -> None:
    configure(f"{BEFORE}=hang")
    task = asyncio.create_task(failpoint(BEFORE))
    done, _ = await asyncio.wait((task,), timeout=0.01)
    assert not done
    task.cancel()


def test_what_is_no_fault_and_what_is_production_are_refused() -> None:
    for what in ("=b", "", "=delay", "=delay:x", "=crash*", "=crash@"):
        with pytest.raises(NoetlError, match="is not a fault"):
            configure(f"{CLAIM}{what}")
    with pytest.raises(NoetlError, match="there is no failpoint"):
        configure("worker.clam=crash")
    with pytest.raises(NoetlError, match="never in production"):
        configure(f"{CLAIM}=error", "production")
    configure("", "production")


def test_the_list_holds_every_place_of_the_code_once() -> None:
    source = Path(noetl.__file__).parent
    found = [
        name
        for file in source.rglob("*.py")
        for name in re.findall(r'await failpoint\("([^"]+)"\)', file.read_text(encoding="utf-8"))
    ]
    assert sorted(found) == sorted(POINTS)
