import shutil
from pathlib import Path

import pytest

import tests.strict

WARNS = """
import warnings

def test_it():
    warnings.warn("old", DeprecationWarning)
"""
PASSES_BY_SURPRISE = """
import pytest

@pytest.mark.xfail
def test_it():
    pass
"""
UNKNOWN_MARKER = """
import pytest

@pytest.mark.slwo
def test_it():
    pass
"""
SKIPS = """
import pytest

def test_it():
    pytest.skip("there is no moon")
"""


@pytest.mark.parametrize(
    ("test", "said"),
    [
        (WARNS, "DeprecationWarning: old"),
        (PASSES_BY_SURPRISE, "[XPASS(strict)]"),
        (UNKNOWN_MARKER, "'slwo' not found in `markers` configuration option"),
    ],
)
def test_a_planted_weakness_of_a_test_fails_the_run(run, tree, test, said):
    (tree / "tests").mkdir()
    (tree / "tests" / "test_planted.py").write_text(test, encoding="utf-8")

    exit_code, output = run("pytest", "-p", "no:cacheprovider", "-p", "no:xdist", cwd=tree)

    assert exit_code != 0
    assert said in output


@pytest.mark.parametrize(("strict", "fails"), [("", False), ("1", True)])
def test_a_skip_fails_the_run_when_all_tests_are_wanted(run, tree, monkeypatch, strict, fails):
    monkeypatch.setenv("STRICT", strict)
    (tree / "tests").mkdir()
    shutil.copy2(Path(tests.strict.__file__), tree / "tests" / "conftest.py")
    (tree / "tests" / "test_planted.py").write_text(SKIPS, encoding="utf-8")

    exit_code, output = run("pytest", "-p", "no:cacheprovider", "-p", "no:xdist", cwd=tree)

    assert (exit_code != 0) is fails
    assert ("STRICT=1, and this test was skipped: Skipped: there is no moon" in output) is fails


def test_tests_run_in_random_order_with_a_time_limit(pytestconfig):
    assert pytestconfig.pluginmanager.hasplugin("randomly")
    assert int(pytestconfig.getini("timeout")) == 60
