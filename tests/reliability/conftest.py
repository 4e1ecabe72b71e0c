"""The stack and the ledger of a test."""

from __future__ import annotations

import asyncio
import shutil

import pytest

from tests.reliability.ledger import Ledger
from tests.reliability.rig import Mould, stacked
from tests.reliability.scenario import Plan, passable

pytest.register_assert_rewrite("tests.reliability.oracle")


@pytest.fixture(scope="session")
def mould():
    folder = passable("noetl-mould-")
    try:
        made = Mould(folder)
        asyncio.run(made.make())
        yield made
    finally:
        shutil.rmtree(folder)


@pytest.fixture
async def stack(mould):
    folder = passable("noetl-faults-")
    try:
        async with stacked(folder, mould) as made:
            yield made
    finally:
        shutil.rmtree(folder)


@pytest.fixture
def plan(mould):
    """Makes the plan of a scenario that is played for seconds."""
    folder = passable("noetl-scenario-")
    try:
        yield lambda seconds, seed=1: Plan(seed=seed, seconds=seconds, folder=folder, mould=mould)
    finally:
        shutil.rmtree(folder)


@pytest.fixture
async def ledger():
    async with Ledger().open() as made:
        yield made
