"""Defects that are planted are found: the simulation can fail."""

from __future__ import annotations

import pytest

from tests.simulation.defects import DEFECTS
from tests.simulation.seeds import judge

MOST = 60


@pytest.mark.parametrize("name", DEFECTS)
def test_a_planted_defect_is_found(name: str) -> None:
    errors = (judge(seed, DEFECTS[name], keeps=False).error for seed in range(MOST))
    assert next((error for error in errors if error), "") != ""
