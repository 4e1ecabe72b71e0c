"""What the machine uses."""

from __future__ import annotations

from typing import TYPE_CHECKING

from noetl.telemetry.machine import Machine

if TYPE_CHECKING:
    from pathlib import Path


def test_shares_are_those_since_the_last_look(tmp_path: Path) -> None:
    (tmp_path / "self" / "fd").mkdir(parents=True)
    (tmp_path / "self" / "fd" / "0").touch()
    (tmp_path / "self" / "statm").write_text("900 256 1 1 0 1 0\n")
    (tmp_path / "meminfo").write_text("MemTotal: 4096 kB\nMemFree: 1 kB\nMemAvailable: 1024 kB\n")
    (tmp_path / "stat").write_text("cpu 10 0 10 80 0 0 0 0 0 0\ncpu0 1\n")
    machine = Machine(tmp_path)
    (tmp_path / "stat").write_text("cpu 40 0 10 150 0 0 0 0 0 0\ncpu0 1\n")
    system, process = machine.system(), machine.process()
    assert (system["cpu_percent"], system["memory_percent"]) == (30.0, 75.0)
    assert (process["rss_mb"] > 0, process["fds"]) == (True, 1)


def test_where_nothing_is_told_nothing_is_invented(tmp_path: Path) -> None:
    machine = Machine(tmp_path / "nowhere")
    assert set(machine.system()) <= {"load_1m"}
    assert set(machine.process()) == {"pid"}
