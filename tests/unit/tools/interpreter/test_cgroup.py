"""Control groups over a tree of files that looks like that of the kernel."""

from __future__ import annotations

import os

import pytest

from noetl.tools.interpreter.cgroup import Groups
from noetl.tools.interpreter.limits import Limits


@pytest.fixture
def tree(tmp_path):
    """A group that is ours, with two controllers."""
    base = tmp_path / "unit.slice" / "noetl.service"
    base.mkdir(parents=True)
    (base / "cgroup.controllers").write_text("cpu memory pids\n")
    own = tmp_path / "own"
    own.write_text("1:cpu:/\n0::/unit.slice/noetl.service\n")
    return tmp_path, base, own


def test_the_worker_moves_aside_and_children_get_groups_with_limits(tree):
    root, base, own = tree
    groups = Groups.found(root, own)
    pid = str(os.getpid())
    assert (base / f"noetl-worker-{pid}" / "cgroup.procs").read_text() == pid
    assert (base / "cgroup.subtree_control").read_text() == "+memory +pids"
    group = groups.make()
    group.limit(Limits(memory_mb=64, procs=5))
    found = {file.name: file.read_text() for file in group.folder.iterdir()}
    assert found == {"memory.max": str(64 << 20), "memory.swap.max": "0", "memory.oom.group": "1",
                     "pids.max": "7"}  # fmt: skip
    assert groups.make().folder != group.folder
    assert group.oom_kills() == 0
    (group.folder / "memory.events").write_text("oom 3\noom_kill 2\n")
    assert group.oom_kills() == 2


def test_no_limit_is_written_as_such(tree):
    root, _, own = tree
    group = Groups.found(root, own).make()
    group.limit(Limits(memory_mb=None, procs=None))
    assert (group.folder / "memory.max").read_text() == "max"
    assert (group.folder / "pids.max").read_text() == "max"


def test_a_process_enters_by_the_door(tree):
    root, _, own = tree
    group = Groups.found(root, own).make()
    (group.folder / "cgroup.procs").touch()
    door = group.door()
    os.write(door, b"0")
    os.close(door)
    assert (group.folder / "cgroup.procs").read_text() == "0"


def test_a_machine_that_gives_no_groups_is_left_as_it_was(tree, tmp_path):
    root, base, own = tree
    (base / "cgroup.controllers").write_text("cpu\n")
    assert Groups.found(root, own) is None
    assert not list(base.glob("noetl-*"))
    own.write_text("4:memory:/x\n")
    assert Groups.found(root, own) is None
    assert Groups.found(tmp_path / "nowhere", tmp_path / "missing") is None


def test_a_group_that_others_live_in_is_not_divided(tree):
    root, base, own = tree
    (base / "cgroup.subtree_control").mkdir()  # writing to it fails, as the kernel's does
    assert Groups.found(root, own) is None
    assert (base / "cgroup.procs").read_text() == str(os.getpid())
