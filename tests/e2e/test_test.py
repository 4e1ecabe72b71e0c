"""`noetl test` as a process of its own, on the examples that come with NoETL."""

import json
import shutil
import subprocess
import sys
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[2]
BIN = Path(sys.executable).parent
ENV = {"PATH": f"{BIN}:/usr/bin:/bin", "LANG": "C.UTF-8"}


@pytest.fixture
def noetl(tmp_path):
    shutil.copytree(ROOT / "examples", tmp_path / "examples")

    def run(*words):
        return subprocess.run(
            [BIN / "noetl", "test", *words], cwd=tmp_path, env=ENV, capture_output=True, check=False
        )

    return run


def test_every_example_passes_its_tests(noetl):
    done = noetl("examples", "-o", "json")
    shown = json.loads(done.stdout)

    assert [case for case in shown["cases"] if not case["passed"]] == []
    assert (done.returncode, done.stderr.decode()) == (0, f"{shown['passed']} cases passed\n")
    assert shown["passed"] > 30


def test_a_failed_case_ends_with_7(noetl, tmp_path):
    test = tmp_path / "examples" / "hello.test.yaml"
    test.write_text(test.read_text().replace("Hello, Ada!", "Hello, Bo!"))
    done = noetl("examples/hello.test.yaml")

    assert done.returncode == 7
    assert 'result/message: expected "Hello, Bo!", found "Hello, Ada!"' in done.stdout.decode()
    assert done.stderr.startswith(b"error[test_failed]: 1 of 2 cases failed\n")
