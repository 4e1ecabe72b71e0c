"""The installed `noetl`, run as a process of its own."""

import json
import os
import pty
import shutil
import signal
import statistics
import subprocess
import sys
from pathlib import Path

import pytest

from noetl.cli.app import EXAMPLES as FRONT
from noetl.cli.command import COMMANDS, every, load

ROOT = Path(__file__).parents[2]
BIN = Path(sys.executable).parent
ENV = {"PATH": f"{BIN}:/usr/bin:/bin", "LANG": "C.UTF-8"}
MISSPELT = """\
apiVersion: noetl.io/v2
kind: Playbook
metadata: {name: orders, path: etl/orders}
workflow:
  - step: start
    tool: {kind: noop}
    nxt: {arcs: []}
"""
FINDING = (
    "orders.yaml:7:5: error DSL030: unknown key `nxt` (did you mean `next`?) [/workflow/0/nxt]"
)
HELP = [("--help",), *((name, "--help") for name in COMMANDS)]
OF_GROUPS = [(*name.split(), "--help") for name, _ in every() if " " in name]
# Those of commands that talk to a server: tests/e2e/test_remote_cli.py.
EXAMPLES = [
    *FRONT,
    *load("context").spec.examples,
    *(line for _, one in every() if not one.spec.is_remote for line in one.spec.examples),
]


@pytest.fixture
def folder(tmp_path):
    shutil.copytree(ROOT / "examples", tmp_path / "examples")
    (tmp_path / "orders.yaml").write_text(MISSPELT)
    return tmp_path


@pytest.fixture
def noetl(folder):
    def run(*words, **more):
        env = ENV | more.pop("env", {})
        return subprocess.run(
            [BIN / "noetl", *words], cwd=folder, env=env, capture_output=True, check=False, **more
        )

    return run


def test_a_misspelt_key_is_named_with_file_line_column_and_spelling(noetl):
    done = noetl("validate", "orders.yaml")

    assert done.returncode == 7
    assert done.stdout.decode() == f"{FINDING}\n"
    assert done.stderr.decode() == (
        "error[invalid_playbook]: 1 error in orders.yaml\nhint: run `noetl explain DSL030`\n"
    )


def test_both_names_of_the_command_are_installed():
    for name in ("noetl", "ntl"):
        done = subprocess.run([BIN / name, "--version"], env=ENV, capture_output=True, check=True)
        assert done.stdout.startswith(b"noetl ")


@pytest.mark.parametrize(
    ("code", "words"),
    [
        (0, ("validate", "examples/hello.yaml")),
        (0, ("lint", "examples/hello.yaml")),
        (1, ("validate", "orders.yaml/x")),
        (2, ("validate",)),
        (2, ("validate", "--strct", "x")),
        (2, ("validaate",)),
        (5, ("validate", "nowhere.yaml")),
        (5, ("explain", "step.lop")),
        (5, ("schema", "Playbok")),
        (7, ("validate", "orders.yaml")),
        (7, ("lint", "orders.yaml")),
        (7, ("graph", "orders.yaml")),
        (7, ("migrate", "orders.yaml")),
    ],
)
def test_each_ending_has_its_exit_code_and_json_errors_leave_stdout_empty(noetl, code, words):
    assert noetl(*words).returncode == code
    done = noetl(*words, "-o", "json")

    assert done.returncode == code
    if code:
        assert done.stdout == b""
        assert set(json.loads(done.stderr)) == {"error"}
        assert set(json.loads(done.stderr)["error"]) == {
            "code", "message", "hint", "docs_url", "status", "request_id", "details",
        }  # fmt: skip
    else:
        assert json.loads(done.stdout)["next_cursor"] is None


def test_an_interrupt_ends_with_130(folder):
    os.mkfifo(folder / "slow.yaml")
    # A test run in the background ignores SIGINT, and so would its children.
    heeding = (
        "import os, signal, sys;"
        "signal.signal(signal.SIGINT, signal.SIG_DFL); os.execv(sys.argv[1], sys.argv[1:])"
    )
    words = [sys.executable, "-c", heeding, BIN / "noetl", "validate", "slow.yaml"]
    with (
        subprocess.Popen(words, cwd=folder, env=ENV, stderr=subprocess.PIPE) as process,
        # Opening returns when the command has opened its end: it now waits for text.
        (folder / "slow.yaml").open("wb"),
    ):
        process.send_signal(signal.SIGINT)
        _, err = process.communicate(timeout=20)

    assert process.returncode == 130
    assert err.startswith(b"error[interrupted]: ")


def test_a_reader_that_went_away_ends_quietly_with_0():
    for words in (("schema", "Playbook"), ("--help",), ("validate", "--help")):
        reader, writer = os.pipe()
        os.close(reader)
        done = subprocess.run(
            [BIN / "noetl", *words], env=ENV, stdout=writer, stderr=subprocess.PIPE, check=False
        )
        os.close(writer)
        assert (done.returncode, done.stderr) == (0, b"")


def test_a_full_disk_is_an_error(folder):
    with Path("/dev/full").open("wb") as full:
        done = subprocess.run(
            [BIN / "noetl", "schema", "Playbook"],
            cwd=folder, env=ENV, stdout=full, stderr=subprocess.PIPE, check=False,
        )  # fmt: skip

    assert done.returncode == 1
    assert done.stderr.startswith(b"error[file_unwritable]: the output cannot be written: ")


def test_closed_streams_do_not_break_the_command(folder):
    for closed in (">&-", "2>&-", "<&-"):
        done = subprocess.run(
            ["/bin/bash", "-c", f"noetl validate orders.yaml {closed}"],
            cwd=folder, env=ENV, capture_output=True, check=False,
        )  # fmt: skip
        assert (closed, done.returncode) == (closed, 7)


def test_output_is_utf8_in_every_locale(noetl, folder):
    (folder / "orders.yaml").write_text(MISSPELT.replace("nxt", "größe"), encoding="utf-8")
    for env in ({"LC_ALL": "C"}, {"PYTHONIOENCODING": "latin-1"}, {"LC_ALL": "POSIX"}):
        done = noetl("validate", "orders.yaml", env=env)
        assert "`größe`" in done.stdout.decode("utf-8")


@pytest.mark.parametrize("env", [{}, {"NO_COLOR": "1"}, {"TERM": "dumb"}])
def test_a_pipe_no_color_and_a_dumb_terminal_give_no_escape(noetl, env):
    done = noetl("validate", "orders.yaml", env=env)

    assert b"\x1b" not in done.stdout + done.stderr


def test_always_gives_an_escape_even_in_a_pipe_with_no_color(noetl):
    done = noetl("validate", "orders.yaml", "--color", "always", env={"NO_COLOR": "1"})

    assert b"\x1b[" in done.stdout
    assert b"\x1b[" in done.stderr


@pytest.mark.parametrize(
    ("env", "words", "is_colored"),
    [
        ({"TERM": "xterm"}, (), True),
        ({"TERM": "xterm"}, ("--color", "never"), False),
        ({"TERM": "xterm", "NO_COLOR": ""}, (), False),
        ({"TERM": "dumb"}, (), False),
    ],
)
def test_a_terminal_is_coloured_unless_it_or_the_caller_objects(folder, env, words, is_colored):
    ours, theirs = pty.openpty()
    subprocess.run(
        [BIN / "noetl", "validate", "orders.yaml", *words],
        cwd=folder, env=ENV | env, stdin=theirs, stdout=theirs, stderr=theirs, check=False,
    )  # fmt: skip
    shown = os.read(ours, 65536)
    os.close(ours)
    os.close(theirs)

    assert b"DSL030" in shown
    assert (b"\x1b" in shown) is is_colored


@pytest.mark.parametrize("example", EXAMPLES)
def test_every_example_of_the_help_works(folder, example):
    env = ENV | {"XDG_CONFIG_HOME": str(folder / "config")}
    if example.startswith("noetl gateway"):  # it takes its token from the environment alone
        env["NOETL_INTERNAL_API_TOKEN"] = "of-the-examples"  # noqa: S105 - opens nothing
    done = subprocess.run(
        ["/bin/bash", "-o", "pipefail", "-c", example],
        cwd=folder, env=env, capture_output=True, text=True, check=False,
    )  # fmt: skip

    assert done.returncode == 0, done.stdout + done.stderr


@pytest.mark.parametrize("words", HELP)
def test_help_takes_little_work(words):
    spent = statistics.median(_processor_s(words) for _ in range(3))

    # The target of 150 ms is measured by bench/startup.py, on a machine that does nothing else.
    assert spent < 0.5, f"{spent * 1000:.0f} ms"


def _processor_s(words):
    """What the command took of a processor: how long others kept it waiting does not count."""
    child = subprocess.Popen([BIN / "noetl", *words], env=ENV, stdout=subprocess.DEVNULL)
    _, status, used = os.wait4(child.pid, 0)
    child.returncode = os.waitstatus_to_exitcode(status)
    assert child.returncode == 0
    return used.ru_utime + used.ru_stime


@pytest.mark.parametrize("words", [*HELP, *OF_GROUPS])
def test_help_imports_neither_pydantic_nor_the_language_nor_rich(words):
    code = (
        "import sys; from noetl.cli.app import main; main(sys.argv[1:]);"
        "print(sorted({'pydantic', 'rich', 'yaml', 'ruamel', 'noetl.dsl'} & set(sys.modules)))"
    )
    done = subprocess.run(
        [sys.executable, "-c", code, *words], env=ENV, capture_output=True, text=True, check=True
    )

    assert done.stdout.splitlines()[-1] == "[]"
