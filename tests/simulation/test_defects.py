"""Defects that are planted are found: the simulation can fail."""

from __future__ import annotations

import re

import pytest

from tests.simulation.defects import DEFECTS
from tests.simulation.seeds import judge
from tests.simulation.test_simulation import SEEDS

SIGNS = {
    "a server skips the fence": r"Wrong: .* of .*: sent by .*, held by ",
    "a commit that lost is applied anyway": "Wrong: ",
    "a commit that lost is told to be written": "Wrong: ",
    "messages to other runs get lost": "Wrong: .*: 0 terminal events",
    "leases never end": "Wrong: .*: 0 terminal events",
}
"""What the oracle says of each: a world that breaks in another way has shown nothing."""


@pytest.mark.parametrize("name", DEFECTS)
def test_a_planted_defect_is_found(name: str) -> None:
    errors = (judge(seed, DEFECTS[name], keeps=False).error for seed in range(SEEDS))
    assert re.match(SIGNS[name], next((error for error in errors if error), ""))
