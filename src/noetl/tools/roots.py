"""The folders whose files tools may touch, whatever links a path passes."""

from __future__ import annotations

from pathlib import Path

from noetl.tools.base import ToolError


def inside(path: str, roots: tuple[Path, ...]) -> Path:
    """The real place of a file, which must lie under a data root; relative to the first one."""
    if not roots:
        raise ToolError("storage_access", "no_data_root", "this worker has no data roots")
    if "\0" in path:
        raise ToolError("storage_access", "outside_data_roots", "a path has no NUL")
    wanted = Path(path)
    base = wanted if wanted.is_absolute() else roots[0] / wanted
    real = base.resolve()
    if not any(real.is_relative_to(root.resolve()) for root in roots):
        raise ToolError("storage_access", "outside_data_roots", f"{path} is not under a root")
    return real


def place_for(path: str, roots: tuple[Path, ...]) -> Path:
    """The real place of a file that may be written: its folder exists afterwards."""
    real = inside(path, roots)
    real.parent.mkdir(parents=True, exist_ok=True)
    return real
