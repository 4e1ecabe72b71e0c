"""What is asked of whoever plays the tests of playbooks; the wiring brings him."""

from __future__ import annotations

from typing import TYPE_CHECKING, Protocol

import msgspec

if TYPE_CHECKING:
    from collections.abc import Sequence

    from noetl.api.catalog import CaseResult


class Script(msgspec.Struct, frozen=True, kw_only=True):
    """One document of tests, and which of its cases are to be played."""

    path: str
    content: str
    cases: tuple[str, ...]


class Play(msgspec.Struct, frozen=True, kw_only=True):
    """A playbook, what it calls, and its tests."""

    path: str
    playbook: str
    called: tuple[str, ...]
    scripts: tuple[Script, ...]


class Player(Protocol):
    """Plays cases apart from the server: mocked tools, virtual time, no network."""

    async def play(self, asked: Play) -> Sequence[CaseResult]:
        """What each case came to, in their order; one that did not end in time has failed."""
