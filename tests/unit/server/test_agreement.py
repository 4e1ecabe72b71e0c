"""List, get, status, the end of a stream and a replay agree on the status of any history."""

from __future__ import annotations

from types import SimpleNamespace

import pytest
from hypothesis import HealthCheck, Phase, given, settings
from hypothesis import strategies as st

from noetl.local.virtual import run_virtually
from tests.unit.server.agreement import differences, judged
from tests.unit.server.rig import rig

pytestmark = pytest.mark.timeout(300)  # many cases, on a machine that may be busy
CASES = 20


@settings(
    max_examples=CASES, deadline=None, phases=[Phase.generate], database=None,
    suppress_health_check=[HealthCheck.too_slow, HealthCheck.data_too_large],
)  # fmt: skip
@given(st.integers(0, 2**40))
def test_every_reader_tells_the_same_status(seed: int) -> None:
    assert judged(seed) == []


@pytest.mark.parametrize("seed", [817133])
def test_what_was_found_stays_mended(seed: int) -> None:
    async def main() -> list[str]:
        async with rig() as r:
            return await differences(r, seed)

    assert run_virtually(main()) == []


def test_a_reader_that_tells_another_status_is_heard(monkeypatch) -> None:
    async def lying(_run: str) -> SimpleNamespace:
        return SimpleNamespace(status="PAUSED")

    async def main() -> list[str]:
        async with rig() as r:
            monkeypatch.setattr(r.client, "status", lying)
            return await differences(r, 3)

    (found,) = run_virtually(main())
    assert "'status': 'PAUSED'" in found
