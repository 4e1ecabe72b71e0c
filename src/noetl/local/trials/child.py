"""The child that plays tests: a request on standard input, a line per case on standard output.

It has no settings and no secrets of the server. Tools that reach outside are mocked or fail,
whatever a case allows; the files of a case are not here.
"""

from __future__ import annotations

import asyncio
import sys
from dataclasses import dataclass, replace
from pathlib import Path
from typing import TYPE_CHECKING, Final

import msgspec

from noetl.api.catalog import CaseResult
from noetl.dsl.documents.testcase import PlaybookTest
from noetl.dsl.parse import read
from noetl.local.cases import Subject, Trial, play
from noetl.local.mocks import HARMLESS
from noetl.local.virtual import VirtualLoop
from noetl.local.workshop import workshop
from noetl.server.plays import Play
from noetl.tools.interpreter.sandbox import Confinement, Sandbox, SandboxMissing, Walls

if TYPE_CHECKING:
    from collections.abc import Iterator

    from noetl.dsl.documents.testcase import Case

CHILDREN: Final = 2
MOST_FAULTS: Final = 20
MOST_FAULT: Final = 2_000
_encode: Final = msgspec.json.Encoder().encode


@dataclass(slots=True, kw_only=True)
class Offline(Sandbox):
    """Children without a network, as far as this machine can do that."""

    must_be_shut_in: bool

    def confine(self, walls: Walls, work: Path, shown: tuple[Path, ...] = ()) -> Confinement:
        """How to start one child."""
        if self.level != "rlimits":
            return Sandbox.confine(self, Walls(strict=walls.strict, network=False), work, shown)
        if self.must_be_shut_in:
            raise SandboxMissing("this server cannot shut code in: mock the step")
        return Sandbox.confine(self, walls, work, shown)


def main(word: str, folder: Path, *hidden: Path) -> None:
    """Play what standard input asks for; the code of playbooks sees nothing of what is hidden."""
    asked = msgspec.json.decode(sys.stdin.buffer.read(), type=Play)
    with asyncio.Runner(loop_factory=VirtualLoop) as runner:
        runner.run(_played(asked, folder, hidden, must_be_shut_in=word == "shut-in"))


async def _played(
    asked: Play, folder: Path, hidden: tuple[Path, ...], *, must_be_shut_in: bool
) -> None:
    found = Sandbox.detect(hidden=hidden)
    sandbox = Offline(
        level=found.level,
        bwrap=found.bwrap,
        hidden=found.hidden,
        may_nest=found.may_nest,
        must_be_shut_in=must_be_shut_in,
    )
    subject = _laid_out(asked, folder)
    async with workshop(CHILDREN, sandbox) as shop:
        for suite, case in _cases(asked):
            faults = _not_here(case)
            took = 0.0
            if not faults:
                log = folder / "events.jsonl"
                trial = Trial(subject=subject, case=replace(case, allow=()), folder=folder, log=log)
                verdict = await play(trial, shop)
                faults, took = verdict.faults, verdict.duration_ms
            told = CaseResult(
                name=case.name,
                ok=not faults,
                suite=suite,
                duration_ms=round(took),
                diff=tuple(fault[:MOST_FAULT] for fault in faults[:MOST_FAULTS]),
            )
            sys.stdout.buffer.write(_encode(told) + b"\n")
            sys.stdout.buffer.flush()


def _laid_out(asked: Play, folder: Path) -> Subject:
    """The playbooks as files, where a local run looks for those that it calls."""
    for number, text in enumerate(asked.called):
        (folder / f"called_{number}.yaml").write_text(text, encoding="utf-8")
    return Subject(file=asked.path, text=asked.playbook, folder=folder)


def _cases(asked: Play) -> Iterator[tuple[str, Case]]:
    for script in asked.scripts:
        for case in read(script.content, PlaybookTest).spec.cases:
            if case.name in script.cases:
                yield script.path, case


def _not_here(case: Case) -> tuple[str, ...]:
    """What a case needs and a server does not have."""
    answers = (answer for mock in case.mocks for answer in (mock, *mock.sequence))
    files = [answer.return_file for answer in answers if answer.return_file is not None]
    kinds = sorted(set(case.allow) - HARMLESS)
    return (
        *(f"return_file: `{name}` is not on the server; write the value" for name in files),
        *(f"allow: `{kind}` does not run on the server; mock the step" for kind in kinds),
    )


if __name__ == "__main__":
    main(sys.argv[1], *map(Path, sys.argv[2:]))
