"""What must have a log: every example, every older playbook, every acceptance test."""

from __future__ import annotations

import itertools
import re
import shutil
from dataclasses import dataclass
from typing import TYPE_CHECKING

from noetl.local.mocks import Mocks
from tests.e2e import test_acceptance as acceptance
from tests.e2e.playing import Asked, cases_of, suite_of
from tests.e2e.table import EXAMPLES, LINES, asked, name_of
from tests.e2e.test_compat_runs import COMPAT, TABLE

if TYPE_CHECKING:
    from collections.abc import Iterator
    from pathlib import Path

    from noetl.dsl.documents.testcase import Case

LONGEST = 90


@dataclass(frozen=True, slots=True, kw_only=True)
class Wanted:
    """A run on virtual time whose logs are wanted."""

    key: str
    file: Path
    asked: Asked


def slug(text: str) -> str:
    """A text as a part of the name of a file."""
    return re.sub(r"\W+", "_", text).strip("_").lower()[:LONGEST]


def of_examples(folder: Path) -> Iterator[Wanted]:
    """Every example as its page runs it, and every case of its tests."""
    for line in LINES:
        file, payload, mock = asked(line, folder)
        mocks = None if mock is None else Mocks(mock.mocks, folder, allow=None)
        yield Wanted(
            key=f"examples/{name_of(line)}.page", file=file,
            asked=Asked(payload=payload, mocks=mocks),
        )  # fmt: skip
    for path in sorted(folder.rglob("*.test.yaml")):
        suite = suite_of(path)
        name = path.relative_to(folder).as_posix().removesuffix(".test.yaml")
        for case in suite.spec.cases:
            yield _of(f"examples/{name}.{slug(case.name)}", path.parent / suite.spec.file, case)


def of_older() -> Iterator[Wanted]:
    """Every older playbook that runs: with mocks, and alone."""
    for name, row in TABLE.items():
        for told in row.get("cases", ()):
            if "refused" not in told:
                (case,) = cases_of(name, [told])
                yield _of(f"older/{name[:3]}.{slug(case.name)}", COMPAT / f"{name}.yaml", case)
        if "alone" in row and not row["alone"].get("offline"):
            yield Wanted(key=f"older/{name[:3]}.alone", file=COMPAT / f"{name}.yaml", asked=Asked())


def of_acceptance() -> list[str]:
    """Every acceptance test, with its parameters."""
    found = []
    for name, test in vars(acceptance).items():
        if name.startswith("test_"):
            marks = [mark for mark in getattr(test, "pytestmark", ()) if mark.name == "parametrize"]
            given = itertools.product(*(mark.args[1] for mark in marks))
            found += [acceptance_key(name, values) for values in given]
    return found


def acceptance_key(test: str, values: tuple[object, ...]) -> str:
    """How the logs of an acceptance test are called."""
    flat = [one for value in values for one in (value if isinstance(value, tuple) else (value,))]
    return f"acceptance/{slug('_'.join([test.removeprefix('test_'), *map(str, flat)]))}"


def keys() -> list[str]:
    """Every case that must have a log."""
    told = [*of_examples(EXAMPLES), *of_older()]
    return [*(wanted.key for wanted in told), *of_acceptance()]


def copied(folder: Path) -> Path:
    """The examples in a folder of their own, where their runs may write."""
    copy = folder / "examples"
    shutil.copytree(EXAMPLES, copy, ignore=shutil.ignore_patterns(".noetl"))
    return copy


def _of(key: str, file: Path, case: Case) -> Wanted:
    mocks = Mocks(case.mocks, file.parent, allow=frozenset(case.allow))
    return Wanted(key=key, file=file, asked=Asked(payload=dict(case.payload), mocks=mocks))
