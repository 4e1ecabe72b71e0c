"""A plug-in of pytest that records the logs of acceptance tests (`-p tests.replay.plugin`)."""

from __future__ import annotations

from typing import TYPE_CHECKING

from tests.e2e.sites import TAKER
from tests.replay.cases import acceptance_key
from tests.replay.harvest import harvested
from tests.replay.logs import case_of, names
from tests.replay.record import kept

if TYPE_CHECKING:
    import pytest

    from noetl.api.client import Client
    from tests.e2e.sites import Take


def pytest_configure(config: pytest.Config) -> None:
    """Take from every test."""
    config.stash[TAKER] = _taker


def _taker(item: pytest.Item) -> Take:
    given = item.callspec.params  # type: ignore[attr-defined]  # a test with parameters has it
    values = tuple(value for name, value in given.items() if name != "opened")
    case = acceptance_key(item.originalname, values)  # type: ignore[attr-defined]  # it is a function

    async def take(client: Client) -> None:
        if case not in {case_of(name) for name in names()}:
            list(kept(case, await harvested(client)))

    return take
