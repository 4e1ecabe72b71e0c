import gc

import pytest

from noetl.edge.memory import GENERATIONS, settle


@pytest.fixture
def _as_before():
    before = gc.get_threshold()
    yield
    gc.unfreeze()
    gc.set_threshold(*before)


@pytest.mark.usefixtures("_as_before")
def test_what_is_there_is_set_aside():
    settle()
    assert gc.get_freeze_count() > 1000
    assert gc.get_threshold() == GENERATIONS
