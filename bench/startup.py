"""How long a person waits: for help texts, for a first local run, for the stack, new and known."""

from __future__ import annotations

import subprocess
import tempfile
from pathlib import Path
from typing import Any

from bench.limits import at_most
from bench.sampling import record, timed
from bench.stack import NOETL, environment
from bench.yardstick import start_ms
from noetl.cli.command import COMMANDS

HELLO = str(Path(__file__).resolve().parents[1] / "examples" / "hello.yaml")
HELP_MS = (150.0, 250.0)
RUN_MS = (1_000.0, 2_000.0)
COLD_MS = (8_000.0, 20_000.0)
WARM_MS = (4_000.0, 8_000.0)
RUNS = 10
FULL = 5
"""From so many repeats on, every help text is shown, and as often as the spec asks for."""
FEW = ("run", "exec", "up")


def records(repeat: int) -> list[dict[str, Any]]:
    """Milliseconds: the spec asks for the median of ten help texts, files in the cache."""
    is_full = repeat >= FULL
    lines = [("--help",), *((name, "--help") for name in (COMMANDS if is_full else FEW))]
    often = max(repeat, RUNS) if is_full else repeat
    made = [*(_help(words, often) for words in lines), _run(repeat), *_up(repeat)]
    raw_ms = start_ms()
    return [one | {"ratios": {"raw_start": round(one["p50"] / raw_ms, 2)}} for one in made]


def _help(words: tuple[str, ...], repeat: int) -> dict[str, Any]:
    command = [NOETL, *words]
    first = subprocess.run(command, capture_output=True, check=True)
    samples = timed(
        lambda: subprocess.run(command, capture_output=True, check=True), repeat, scale=1000
    )
    return record(
        "startup.help", samples, unit="ms", correct=b"Examples:" in first.stdout,
        limits=[at_most("p50", *HELP_MS)], params={"line": f"noetl {' '.join(words)}"},
    )  # fmt: skip


def _run(repeat: int) -> dict[str, Any]:
    """A first playbook, without a server."""
    with tempfile.TemporaryDirectory() as folder:
        environ = environment(Path(folder))
        command = [NOETL, "run", HELLO, "-q", "-o", "json"]

        def run() -> bytes:
            done = subprocess.run(command, capture_output=True, check=True, cwd=folder, env=environ)
            return done.stdout

        correct = b"COMPLETED" in run()
        samples = timed(run, repeat, scale=1000)
    return record(
        "startup.run", samples, unit="ms", correct=correct, limits=[at_most("p50", *RUN_MS)],
        params={"line": "noetl run hello.yaml"},
    )  # fmt: skip


def _up(repeat: int) -> list[dict[str, Any]]:
    """The stack in a new folder, and again in the same one with a run in it."""
    found = [_cold_and_warm() for _ in range(min(repeat, FULL))]
    cold, warm, is_right = zip(*found, strict=True)
    return [
        record(
            name, list(samples), unit="ms", correct=all(is_right), params={"line": "noetl up"},
            limits=[at_most("p50", *limits)],
        )
        for name, samples, limits in (
            ("startup.up-cold", cold, COLD_MS),
            ("startup.up-warm", warm, WARM_MS),
        )
    ]  # fmt: skip


def _cold_and_warm() -> tuple[float, float, bool]:
    """Milliseconds of both, and whether the stack ran a playbook each time and kept the first."""
    with tempfile.TemporaryDirectory(prefix="noetl-bench-") as folder:
        environ = environment(Path(folder))

        def up() -> None:
            _noetl(environ, "up", "--detach", "--port=auto")

        try:
            [cold] = timed(up, 1, scale=1000)
            first = _noetl(environ, "exec", HELLO, "--wait", "-o", "json")
            _noetl(environ, "down")
            [warm] = timed(up, 1, scale=1000)
            kept = _noetl(environ, "executions", "list", "-o", "json")
        finally:
            _noetl(environ, "down", "--wipe", "--yes")
    is_right = b"COMPLETED" in first and kept.count(b'"COMPLETED"') == 1
    return cold, warm, is_right


def _noetl(environ: dict[str, str], *words: str) -> bytes:
    done = subprocess.run([NOETL, *words], capture_output=True, check=True, env=environ, cwd="/")
    return done.stdout
