"""Starts the child that plays tests, and ends it in time."""

from __future__ import annotations

import asyncio
import contextlib
import os
import signal
import sys
import tempfile
from typing import TYPE_CHECKING, Final

import msgspec

from noetl.api.catalog import CaseResult
from noetl.settings import child_environment, secret_files, variable

if TYPE_CHECKING:
    from collections.abc import AsyncIterator, Sequence

    from noetl.server.plays import Play

LIMIT_S: Final = 50.0
"""For all cases of a request, which itself may take a minute."""
AT_ONCE: Final = 2
CHILD: Final = "noetl.local.trials.child"
_LINE_BYTES: Final = 1 << 20
_results: Final = msgspec.json.Decoder(CaseResult)
_encode: Final = msgspec.json.Encoder().encode


class TrialPlayer:
    """Plays tests apart from the server; in production, code runs only where it can be shut in."""

    def __init__(
        self, *, must_be_shut_in: bool, limit_s: float = LIMIT_S, at_once: int = AT_ONCE
    ) -> None:
        self._word = "shut-in" if must_be_shut_in else "as-can-be"
        self._limit_s = limit_s
        self._slots = asyncio.Semaphore(at_once)

    async def play(self, asked: Play) -> Sequence[CaseResult]:
        """What each case came to, in their order; one that did not end in time has failed."""
        found: dict[tuple[str, str], CaseResult] = {}
        missing = "the process of the cases has ended before this one"
        try:
            async with asyncio.timeout(self._limit_s), self._slots, self._child(asked) as lines:
                async for line in lines:
                    result = _results.decode(line)
                    found[result.suite, result.name] = result
        except TimeoutError:
            missing = f"the case did not end within {self._limit_s:g} s of all cases"
        return [
            found.get((script.path, name))
            or CaseResult(name=name, ok=False, suite=script.path, diff=(missing,))
            for script in asked.scripts
            for name in script.cases
        ]

    @contextlib.asynccontextmanager
    async def _child(self, asked: Play) -> AsyncIterator[asyncio.StreamReader]:
        """A child at work in a folder of its own; it and all that it started end with the block."""
        with tempfile.TemporaryDirectory(prefix="noetl-trial-") as folder:
            child = await asyncio.create_subprocess_exec(
                sys.executable, "-I", "-m", CHILD, self._word, folder, *_ours(),
                stdin=asyncio.subprocess.PIPE, stdout=asyncio.subprocess.PIPE,
                stderr=asyncio.subprocess.DEVNULL, limit=_LINE_BYTES, cwd=folder,
                env=child_environment(), start_new_session=True,
            )  # fmt: skip
            try:
                if child.stdin is None or child.stdout is None:
                    raise AssertionError("the child was started with pipes")
                child.stdin.write(_encode(asked))
                child.stdin.close()
                yield child.stdout
            finally:
                with contextlib.suppress(ProcessLookupError):
                    os.killpg(child.pid, signal.SIGKILL)
                await asyncio.shield(child.wait())


def _ours() -> list[str]:
    """Places of this server that no playbook may see."""
    home = os.path.abspath(variable("NOETL_HOME") or ".noetl")  # noqa: PTH100 - asked while others wait
    return [home, *map(str, secret_files())]
