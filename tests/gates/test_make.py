import re
import shutil
import subprocess

import pytest

TARGET = re.compile(r"^(?P<name>[a-z][a-z-]*):(?!=)", re.MULTILINE)


@pytest.fixture(scope="module")
def makefile(root):
    return (root / "Makefile").read_text(encoding="utf-8")


def test_make_alone_lists_every_target_with_one_line(root, makefile):
    listed = [line.split(maxsplit=1) for line in _make(root).stdout.splitlines()]

    assert sorted(name for name, _ in listed) == sorted(TARGET.findall(makefile))
    assert [name for name, sentence in listed if not sentence.strip()] == []


def test_every_target_is_phony(makefile):
    phony = makefile.split(".PHONY:")[1].replace("\\\n", " ").split()

    assert sorted(phony) == sorted(TARGET.findall(makefile))


@pytest.mark.parametrize(
    ("words", "command"),
    [(("up",), "up"), (("up", "ARGS=--detach"), "up --detach"), (("down",), "down")],
)
def test_make_up_and_down_are_those_of_noetl(root, words, command):
    done = _make(root, "--dry-run", "--assume-old=.venv/.ready", *words)

    assert done.stdout.splitlines()[-1].split() == [".venv/bin/noetl", *command.split()]


def test_a_python_that_does_not_work_is_one_clear_sentence(root, tmp_path):
    done = subprocess.run(
        ["/bin/sh", "-c", f"PYTHON=no-such-python sh scripts/venv.sh {tmp_path / 'venv'}"],
        cwd=root,
        capture_output=True,
        text=True,
        check=False,
    )

    assert done.returncode == 2
    assert done.stderr == ("venv: PYTHON=no-such-python is not a working Python 3.11 or newer.\n")


def test_a_machine_without_python_is_one_clear_sentence(root, tmp_path):
    script = root / "scripts" / "venv.sh"
    done = subprocess.run(
        [
            "/bin/sh",
            "-c",
            f"unset PYTHON; PATH={tmp_path}; . {script}",
            "sh",
            str(tmp_path / "venv"),
        ],
        cwd=root,
        capture_output=True,
        text=True,
        check=False,
    )

    assert done.returncode == 2
    assert "no Python 3.11 or newer was found" in done.stderr


@pytest.mark.parametrize(
    ("slowness", "is_whole", "taken"),
    [
        ((400, 390), True, "python3.13"),  # nearly as fast: the newest
        ((400, 300), True, "python3"),
        ((400, 300), False, "python3.13"),  # it would need a package besides
    ],
)
def test_the_fastest_interpreter_is_taken(root, tmp_path, slowness, is_whole, taken):
    for name, took in zip(("python3.13", "python3"), slowness, strict=True):
        script = tmp_path / name
        script.write_text(
            "#!/bin/sh\n"
            'case "$*" in\n'
            f"*perf_counter*) echo {took} ;;\n"
            f"*ensurepip*) exit {0 if is_whole or name == 'python3.13' else 1} ;;\n"
            f"*'-m venv'*) echo made by {name} >&2; exit 3 ;;\n"
            "esac\n"
        )
        script.chmod(0o755)
    (tmp_path / "rm").symlink_to(shutil.which("rm"))
    done = subprocess.run(
        ["/bin/sh", "-c", f"unset PYTHON; PATH={tmp_path}; . {root / 'scripts' / 'venv.sh'}", "sh",
         str(tmp_path / "venv")],
        cwd=root, capture_output=True, text=True, check=False,
    )  # fmt: skip

    assert f"made by {taken}\n" in done.stderr


def test_continuous_integration_runs_make_test(root):
    path = root / ".ci" / "run"
    lines = path.read_text(encoding="utf-8").splitlines()

    assert lines[:2] == ["#!/usr/bin/env bash", "set -euo pipefail"]
    assert [line for line in lines if line.startswith("make")] == ["make test"]
    assert path.stat().st_mode & 0o111


def _make(root, *arguments):
    return subprocess.run(
        ["/usr/bin/env", "make", "--no-print-directory", *arguments],
        cwd=root,
        capture_output=True,
        text=True,
        check=False,
    )
