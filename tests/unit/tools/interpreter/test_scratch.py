"""Work folders of processes that are gone are removed, and no others."""

import os
import subprocess
import sys
import tempfile

from noetl.tools.interpreter import scratch


def gone_pid():
    child = subprocess.Popen([sys.executable, "-c", ""])
    child.wait()
    return child.pid


def test_only_folders_of_processes_that_are_gone_are_swept(tmp_path, monkeypatch):
    monkeypatch.setattr(tempfile, "tempdir", str(tmp_path))
    mine = scratch.made(0o711)
    left = tmp_path / f"noetl-{gone_pid()}-abc"
    (left / "inside").mkdir(parents=True)
    for name in ("noetl-tool", "other-1-x", "noetl-x-1"):
        (tmp_path / name).mkdir()
    link = tmp_path / f"noetl-{gone_pid()}-link"
    link.symlink_to(mine)
    assert mine.name.startswith(f"noetl-{os.getpid()}-")
    assert scratch.sweep() == 1
    assert not left.exists()
    assert {path.name for path in tmp_path.iterdir()} == {
        mine.name, "noetl-tool", "other-1-x", "noetl-x-1", link.name,
    }  # fmt: skip
    assert scratch.sweep() == 0
