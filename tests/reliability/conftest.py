"""The stack and the ledger of a test."""

from __future__ import annotations

import asyncio
import shutil
import tempfile
from pathlib import Path

import pytest

from tests.reliability.ledger import Ledger
from tests.reliability.rig import Mould, stacked

pytest.register_assert_rewrite("tests.reliability.oracle")


def _folder(prefix):
    """A folder that PostgreSQL's own user may pass, too."""
    made = Path(tempfile.mkdtemp(prefix=prefix))
    made.chmod(0o711)
    return made


@pytest.fixture(scope="session")
def mould():
    folder = _folder("noetl-mould-")
    try:
        made = Mould(folder)
        asyncio.run(made.make())
        yield made
    finally:
        shutil.rmtree(folder)


@pytest.fixture
async def stack(mould):
    folder = _folder("noetl-faults-")
    try:
        async with stacked(folder, mould) as made:
            yield made
    finally:
        shutil.rmtree(folder)


@pytest.fixture
async def ledger():
    async with Ledger().open() as made:
        yield made
