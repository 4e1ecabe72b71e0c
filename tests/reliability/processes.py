"""Processes that are left over."""

from __future__ import annotations

import os
from pathlib import Path


def strays(folder, roots):
    """Processes that name a folder, and are neither of these nor below one of them."""
    parents, found = {}, []
    for entry in Path("/proc").iterdir():
        if not entry.name.isdigit():
            continue
        try:
            stat = (entry / "stat").read_text()
            told = (entry / "cmdline").read_bytes() + (entry / "environ").read_bytes()
            told += os.fsencode((entry / "cwd").readlink())
        except OSError:
            continue  # it has ended, or is somebody else's
        fields = stat.rpartition(")")[2].split()
        parents[int(entry.name)] = int(fields[1])
        if os.fsencode(folder) in told and fields[0] != "Z":
            found.append(int(entry.name))
    return [pid for pid in found if pid != os.getpid() and roots.isdisjoint(_line(pid, parents))]


def _line(pid, parents):
    """A process, its parent, and so on."""
    while pid in parents:
        yield pid
        pid = parents[pid]
