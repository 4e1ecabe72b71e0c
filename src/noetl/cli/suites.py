"""The tests that a command line names, and their cases played side by side."""

from __future__ import annotations

import asyncio
import os
import re
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from pathlib import Path
from queue import Empty, SimpleQueue
from typing import TYPE_CHECKING, Final

from noetl.cli.failures import CommandFailed
from noetl.cli.files import Source, read
from noetl.cli.parsing import parsed_here
from noetl.cli.playbook import playbook_of
from noetl.dsl.documents.testcase import PlaybookTest
from noetl.local.cases import Subject, Trial, play
from noetl.local.playbooks import file_of
from noetl.local.virtual import VirtualLoop
from noetl.local.workshop import workshop

if TYPE_CHECKING:
    from collections.abc import Iterator, Sequence

    from noetl.cli.output import Output
    from noetl.dsl.playbook import Playbook
    from noetl.local.verdicts import Verdict

LOGS: Final = Path(".noetl") / "tests"
_SUFFIXES: Final = (".test.yaml", ".test.yml")
_CHILDREN: Final = 4
"""Python steps of one case that run at the same time."""
_WORD: Final = re.compile(r"[^A-Za-z0-9]+")


@dataclass(frozen=True, slots=True, kw_only=True)
class Suite:
    """One file of tests, its playbook, and the cases that are wanted."""

    name: str
    subject: Subject
    playbook: Playbook
    trials: tuple[Trial, ...]

    @property
    def steps(self) -> list[str]:
        """The steps of the playbook."""
        return [step.name for step in self.playbook.workflow]


def found(out: Output, words: Sequence[str], expression: str) -> list[Suite]:
    """The suites that the words name, with the cases that the expression wants."""
    names = dict.fromkeys(name for word in (words or ["."]) for name in _expanded(word))
    suites = [_suite(out, name, expression) for name in names]
    wanted = [suite for suite in suites if suite.trials]
    if not wanted:
        what = f"no case is named like `{expression}`" if names else "there is no test"
        hint = "a test is a `*.test.yaml` file with `kind: PlaybookTest`"
        raise CommandFailed("file_not_found", what, hint=hint)
    return wanted


def playing(suites: Sequence[Suite]) -> Iterator[tuple[Suite, list[Verdict]]]:
    """Play all suites, some at once; they come in their order."""
    waiting: SimpleQueue[int] = SimpleQueue()
    for number in range(len(suites)):
        waiting.put(number)
    done: dict[int, list[Verdict]] = {}
    workers = min(len(suites), os.cpu_count() or 1)
    with ThreadPoolExecutor(workers) as pool:
        playings = [pool.submit(_player, suites, waiting, done) for _ in range(workers)]
        try:
            for each in playings:
                each.result()
        finally:
            _empty(waiting)  # after an interrupt or a fault nobody begins another suite
    for number, suite in enumerate(suites):
        yield suite, done[number]


def _empty(waiting: SimpleQueue[int]) -> None:
    while True:
        try:
            waiting.get_nowait()
        except Empty:
            return


def _player(
    suites: Sequence[Suite], waiting: SimpleQueue[int], done: dict[int, list[Verdict]]
) -> None:
    """Play suites one after the other, each on a loop and with children of its own."""
    while True:
        try:
            number = waiting.get_nowait()
        except Empty:
            return
        with asyncio.Runner(loop_factory=VirtualLoop) as runner:
            done[number] = runner.run(_played(suites[number]))


async def _played(suite: Suite) -> list[Verdict]:
    async with workshop(slots=_CHILDREN) as shop:
        return [await play(trial, shop) for trial in suite.trials]


def _expanded(word: str) -> Iterator[str]:
    if not Path(word).is_dir():
        yield word
        return
    for where, folders, files in os.walk(word):
        folders[:] = sorted(name for name in folders if not name.startswith("."))
        for name in sorted(files):
            if name.endswith(_SUFFIXES):
                yield str(Path(where) / name)


def _suite(out: Output, name: str, expression: str) -> Suite:
    source = read(name)
    test = _test(out, source)
    folder = Path(name).parent
    file = _playbook_file(test, folder, name)
    subject = read(str(file))
    playbook = playbook_of(out, subject, otherwise="only a Playbook can be tested")
    about = Subject(
        file=str(file),
        text=subject.data.decode("utf-8", "replace"),
        folder=file.parent,
    )
    stem = _WORD.sub("-", name.removesuffix(".yaml").removesuffix(".yml")).strip("-")
    trials = tuple(
        Trial(
            subject=about,
            case=case,
            folder=folder,
            log=LOGS / f"{stem}-{_WORD.sub('-', case.name).strip('-')[:80]}.jsonl",
        )
        for case in test.spec.cases
        if is_wanted(expression, f"{name} {case.name}")
    )
    return Suite(name=name, subject=about, playbook=playbook, trials=trials)


def _test(out: Output, source: Source) -> PlaybookTest:
    from noetl.cli.findings import Finding, Found, refused, tell

    parsed = parsed_here(source.data)
    if isinstance(parsed.model, PlaybookTest):
        return parsed.model
    errors = tuple(Finding(source.name, item) for item in parsed.errors)
    if not errors:
        message = f"{source.name} is a {parsed.kind}, not a PlaybookTest"
        raise CommandFailed("invalid_playbook", message, hint="name the tests, not the playbook")
    tell(out, errors)
    raise refused(Found(files=1, items=errors, overflow=parsed.overflow))


def _playbook_file(test: PlaybookTest, folder: Path, name: str) -> Path:
    if test.spec.file is not None:
        return Path(os.path.normpath(folder / test.spec.file))
    path = test.spec.playbook or ""
    for root in (folder, Path()):
        file = file_of(path, root)
        if file is not None:
            return file
    message = f"{name}: there is no playbook `{path}` beside it or below this folder"
    raise CommandFailed("file_not_found", message, hint="name its file with `spec.file`")


def is_wanted(expression: str, name: str) -> bool:
    """Whether a name fits `a and not b or c`; each word is looked for anywhere, in any case."""
    text = name.lower()
    for alternative in re.split(r"\s+or\s+", expression.strip().lower()):
        parts = re.split(r"\s+and\s+", alternative)
        if all(_holds(part.strip(), text) for part in parts):
            return True
    return False


def _holds(part: str, text: str) -> bool:
    return part[4:].strip() not in text if part.startswith("not ") else part in text
