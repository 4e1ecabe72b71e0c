"""Every example runs and ends as examples/README.md says, and every test of one passes."""

import json
import shutil
import subprocess
import sys
from pathlib import Path

import pytest

from noetl.dsl.parse import parse
from noetl.dsl.playbook import Playbook
from tests.e2e.playing import Theatre, suite_of
from tests.e2e.table import EXAMPLES, LINES, PAGE, asked, faults_of, name_of

NOETL = Path(sys.executable).parent / "noetl"
TESTS = sorted(EXAMPLES.rglob("*.test.yaml"))
PLAYBOOKS = [
    path
    for path in sorted(EXAMPLES.rglob("*.yaml"))
    if path not in TESTS and isinstance(parse(path.read_bytes()).model, Playbook)
]
# Started as processes: a success, a failure, children, mocks, and a program of the machine.
PROCESSES = ("hello", "final_step", "subplaybook_parent", "policy_rules", "shell")


@pytest.fixture(scope="module")
def folder(tmp_path_factory):
    copy = tmp_path_factory.mktemp("run") / "examples"
    shutil.copytree(EXAMPLES, copy, ignore=shutil.ignore_patterns(".noetl"))
    return copy


@pytest.fixture(scope="module")
def theatre(folder):
    made = Theatre(folder.parent)
    yield made
    made.close()


def test_there_are_at_least_thirty_examples():
    assert len(PLAYBOOKS) >= 30


def test_every_example_has_a_test_with_a_case():
    tested = {path.parent / suite_of(path).spec.file for path in TESTS}

    assert [path for path in PLAYBOOKS if path not in tested] == []


def test_every_example_is_in_the_table_once():
    alone = [path.stem for path in PLAYBOOKS if path.parent == EXAMPLES]
    assert sorted(map(name_of, LINES)) == alone


def test_every_document_is_on_the_page():
    documents = {path.name for path in EXAMPLES.glob("*.yaml") if path not in TESTS}

    assert sorted(name for name in documents if f"`{name}" not in PAGE) == []


@pytest.mark.parametrize("line", LINES, ids=name_of)
def test_an_example_ends_as_the_page_says(theatre, folder, line):
    file, payload, mock = asked(line, folder)

    assert faults_of(line, theatre.run(file, payload, mock).as_json()) == []


@pytest.mark.parametrize(
    ("path", "case"),
    [
        pytest.param(path, case, id=f"{path.name.split('.')[0]}: {case.name}")
        for path in TESTS
        for case in suite_of(path).spec.cases
    ],
)
def test_a_case_of_an_example_passes(theatre, folder, path, case):
    file = folder / path.relative_to(EXAMPLES).parent / suite_of(path).spec.file

    assert theatre.play(file, case).faults == ()


@pytest.mark.parametrize("name", PROCESSES)
def test_an_example_ends_the_same_as_a_process(folder, name):
    (line,) = (line for line in LINES if name_of(line) == name)
    done = _noetl(folder, "run", *line["words"].split(), "-o", "json")

    assert done.stdout, done.stderr.decode()
    found = json.loads(done.stdout)
    assert faults_of(line, found) == []
    assert done.returncode == {"COMPLETED": 0, "FAILED": 3}[line["status"]]
    assert (folder / found["events_file"]).is_file()


def test_the_command_plays_the_same_cases(folder):
    done = _noetl(folder, "test", "branches.test.yaml", "retry.test.yaml", "-o", "json")

    told = json.loads(done.stdout)
    assert done.returncode == 0
    assert [case["name"] for case in told["cases"]] == [
        case.name
        for name in ("branches", "retry")
        for case in suite_of(EXAMPLES / f"{name}.test.yaml").spec.cases
    ]


def _noetl(folder, *words):
    env = {"PATH": f"{NOETL.parent}:/usr/bin:/bin", "LANG": "C.UTF-8"}
    return subprocess.run(
        [NOETL, *words], cwd=folder, env=env, capture_output=True, check=False, timeout=30
    )
