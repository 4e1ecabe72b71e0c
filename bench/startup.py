"""How long `noetl --help` and every `noetl COMMAND --help` take, as a person waits for them."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path
from typing import Any

from bench.sampling import record, timed
from noetl.cli.command import COMMANDS

LIMIT_MS = 150
RUNS = 10


def records(repeat: int) -> list[dict[str, Any]]:
    """One record per help text, files in the cache; the spec asks for the median of ten."""
    lines = [("--help",), *((name, "--help") for name in COMMANDS)]
    return [_record(words, max(repeat, RUNS)) for words in lines]


def run() -> dict[str, Any]:
    """All medians, and the slowest of them against the limit."""
    found = {made["params"]["line"]: made["p50"] for made in records(RUNS)}
    slowest = max(found.values())
    return {"help_ms": slowest, "limit_ms": LIMIT_MS, "is_met": slowest <= LIMIT_MS, "lines": found}


def _record(words: tuple[str, ...], repeat: int) -> dict[str, Any]:
    command = [Path(sys.executable).parent / "noetl", *words]
    first = subprocess.run(command, capture_output=True, check=True)
    assert b"Examples:" in first.stdout
    samples = timed(
        lambda: subprocess.run(command, capture_output=True, check=True), repeat, scale=1000
    )
    line = f"noetl {' '.join(words)}"
    return record("startup.help", samples, unit="ms", limit=LIMIT_MS, params={"line": line})
