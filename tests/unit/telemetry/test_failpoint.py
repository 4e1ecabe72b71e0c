"""Faults on purpose."""

from __future__ import annotations

import asyncio

import pytest

from noetl.errors import NoetlError
from noetl.telemetry.failpoint import Injected, configure, failpoint


@pytest.fixture(autouse=True)
def _calm():
    yield
    configure("")


async def test_nothing_happens_unless_it_is_asked_for() -> None:
    await failpoint("commit.before")
    configure("commit.after=error")
    await failpoint("commit.before")


async def test_an_error_comes_as_often_as_it_is_asked_for() -> None:
    configure("commit.before=error*2; claim=delay:1")
    for _ in range(2):
        with pytest.raises(Injected):
            await failpoint("commit.before")
    await failpoint("commit.before")
    await failpoint("claim")


async def test_a_place_that_hangs_hangs() -> None:
    configure("commit.before=hang")
    task = asyncio.create_task(failpoint("commit.before"))
    done, _ = await asyncio.wait((task,), timeout=0.01)
    assert not done
    task.cancel()


def test_what_is_no_fault_and_what_is_production_are_refused() -> None:
    for text in ("a=b", "a", "a=delay", "a=delay:x", "a=crash*"):
        with pytest.raises(NoetlError, match="is not a fault"):
            configure(text)
    with pytest.raises(NoetlError, match="never in production"):
        configure("a=error", "production")
    configure("", "production")
