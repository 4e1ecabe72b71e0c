"""Both wirings, one truth: what runs in one process gives the same on the full stack."""

from __future__ import annotations

import asyncio
import shutil
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pytest

from noetl.dsl.yaml import load
from noetl.local.mocks import Mocks
from tests.e2e.playing import Theatre, cases_of, suite_of, text_of
from tests.e2e.staging import Script, mocks_of, staged
from tests.e2e.table import EXAMPLES, LINES, asked, faults_of, name_of

if TYPE_CHECKING:
    from collections.abc import Iterator, Mapping

    from noetl.api.problems import Refused
    from noetl.dsl.documents.testcase import Case
    from tests.e2e.ending import Ending
    from tests.servers.stack import FullStack

HERE = Path(__file__).parent
COMPAT = HERE.parent / "compat"
TABLE = load((HERE / "compat_outcomes.yaml").read_bytes()).root
# Time is virtual in a test of one process; here it passes.
SHORTER = {"c71_cycle": ("seconds: 15", "seconds: 0.1")}


@pytest.fixture
def theatre(tmp_path):
    made = Theatre(tmp_path)
    yield made
    made.close()


@pytest.mark.timeout(120)
def test_every_older_playbook_gives_the_same(theatre, full_stack):
    cases = dict(_cases())
    alone = dict(_alone())
    ours = {key: theatre.played(file, case) for key, (file, case) in cases.items()}
    ours |= {key: theatre.ran(file) for key, file in alone.items()}
    scripts = {
        key: Script(
            text=text_of(file).replace(*SHORTER.get(file.stem, ("", ""))),
            payload=dict(case.payload), mocks=mocks_of(case, COMPAT),
        )
        for key, (file, case) in cases.items()
    }  # fmt: skip
    scripts |= {key: Script(text=text_of(file)) for key, file in alone.items()}

    theirs = asyncio.run(_all(full_stack, COMPAT, scripts))

    assert _apart(ours, theirs) == {}


def test_every_older_playbook_that_is_refused_is_refused_there_too(full_stack):
    codes: dict[str, str] = {}
    scripts: dict[str, Script] = {}
    for name, row in TABLE.items():
        rows = [*row.get("cases", ()), {"name": "alone", **row}]
        for case in rows:
            if "refused" in case:
                key = f"{name[:3]}: {case['name']}"
                codes[key] = case["refused"]
                text = text_of(COMPAT / f"{name}.yaml")
                scripts[key] = Script(text=text, payload=dict(case.get("payload", {})))

    found = asyncio.run(_all(full_stack, COMPAT, scripts))

    assert {key: getattr(fault, "code", fault) for key, fault in found.items()} == codes


@pytest.mark.timeout(120)
def test_every_example_gives_the_same_and_what_the_page_says(theatre, full_stack, tmp_path):
    folder = tmp_path / "examples"
    shutil.copytree(EXAMPLES, folder, ignore=shutil.ignore_patterns(".noetl"))
    scripts: dict[str, Script] = {}
    ours: dict[str, Ending] = {}
    for line in LINES:
        file, payload, mock = asked(line, folder)
        mocks = None if mock is None else Mocks(mock.mocks, folder, allow=None)
        scripts[name_of(line)] = Script(text=text_of(file), payload=payload, mocks=mocks)
        ours[name_of(line)] = theatre.ran(file, payload, mock)

    theirs = asyncio.run(_all(full_stack, folder, scripts))

    assert _apart(ours, theirs) == {}
    told = {name_of(line): line for line in LINES}
    faults = {name: faults_of(told[name], theirs[name].as_json()) for name in told}
    assert {name: fault for name, fault in faults.items() if fault} == {}


@pytest.mark.timeout(120)
def test_every_case_of_the_examples_in_folders_gives_the_same(theatre, full_stack, tmp_path):
    """Those stand in no table: a message or a whole pipeline is their input."""
    folder = tmp_path / "examples"
    shutil.copytree(EXAMPLES, folder, ignore=shutil.ignore_patterns(".noetl"))
    cases = {
        f"{path.parent.name}/{path.name}: {case.name}": (path.parent / suite.spec.file, case)
        for path in sorted(folder.glob("*/*.test.yaml"))
        for suite in [suite_of(path)]
        for case in suite.spec.cases
    }
    ours = {key: theatre.played(file, case) for key, (file, case) in cases.items()}
    scripts = {
        key: Script(
            text=text_of(file), payload=dict(case.payload), mocks=mocks_of(case, file.parent)
        )
        for key, (file, case) in cases.items()
    }

    theirs = asyncio.run(_all(full_stack, folder, scripts))

    assert len(cases) >= 11
    assert _apart(ours, theirs) == {}


def _cases() -> Iterator[tuple[str, tuple[Path, Case]]]:
    for name, row in TABLE.items():
        for case in row.get("cases", ()):
            if "refused" not in case:
                (read,) = cases_of(name, [case])
                yield f"{name[:3]}: {case['name']}", (COMPAT / f"{name}.yaml", read)


def _alone() -> Iterator[tuple[str, Path]]:
    for name, row in TABLE.items():
        if "alone" in row and not row["alone"].get("offline"):
            yield f"{name[:3]} alone", COMPAT / f"{name}.yaml"


async def _all(
    stack: FullStack, folder: Path, scripts: Mapping[str, Script]
) -> dict[str, Ending | Refused]:
    async with staged(stack, folder) as stage:
        for text in {script.text: None for script in scripts.values()}:
            await stage.shelve(text)  # where children are found
        found = await asyncio.gather(*map(stage.play, scripts.values()), return_exceptions=True)
    return dict(zip(scripts, found, strict=True))


def _apart(ours: Mapping[str, Ending], theirs: Mapping[str, Any]) -> dict[str, list[str]]:
    found = {
        name: [repr(other)] if isinstance(other, BaseException) else ours[name].differences(other)
        for name, other in theirs.items()
    }
    return {name: differences for name, differences in found.items() if differences}
