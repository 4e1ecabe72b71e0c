"""An emulator of Pub/Sub per test process: `tests.fakes.pubsub` in a process of its own."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path
from typing import TYPE_CHECKING

import pytest

if TYPE_CHECKING:
    from collections.abc import Iterator

LATE_S = 20


class PubsubEmulator:
    """The process of a test run."""

    def __init__(self) -> None:
        self._process = subprocess.Popen(
            [sys.executable, "-m", "tests.fakes.pubsub"],
            cwd=Path(__file__).parents[2],
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            text=True,
        )
        assert self._process.stdout is not None
        self.host = self._process.stdout.readline().strip()
        assert self.host, "the emulator did not start"

    def stop(self) -> None:
        """End it."""
        assert self._process.stdin is not None
        assert self._process.stdout is not None
        self._process.stdin.close()
        try:
            self._process.wait(LATE_S)
        except subprocess.TimeoutExpired:
            self._process.kill()
            self._process.wait()
        self._process.stdout.close()


@pytest.fixture(scope="session")
def pubsub_emulator() -> Iterator[PubsubEmulator]:
    """The emulator of this test process, shared by its tests."""
    emulator = PubsubEmulator()
    try:
        yield emulator
    finally:
        emulator.stop()
