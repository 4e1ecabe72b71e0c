"""How a child is shut in: namespaces by bubblewrap, else a user of its own, else limits alone."""

from __future__ import annotations

import os
import shutil
import stat
import subprocess
import sys
from dataclasses import dataclass, field
from itertools import count
from pathlib import Path
from typing import TYPE_CHECKING, Final, Literal

if TYPE_CHECKING:
    from collections.abc import Iterator, Mapping

Mode = Literal["prefer", "require", "off"]
Level = Literal["namespaces", "user", "rlimits"]

KEPT_VARIABLES: Final = ("PATH", "LANG", "TZ")
_FIRST_UID, _UIDS = 40_000, 20_000
_PROBE_S: Final = 10.0


@dataclass(frozen=True, slots=True)
class Walls:
    """What one command asks for beyond the usual sandbox."""

    strict: bool = False
    network: bool = True

    @property
    def offline(self) -> bool:
        """Whether the child has no network."""
        return self.strict or not self.network


@dataclass(frozen=True, slots=True, kw_only=True)
class Confinement:
    """How one child is started."""

    prefix: tuple[str, ...] = ()
    uid: int | None = None  # the child itself changes to it
    outer_uid: int | None = None  # the program in front of the child runs as it
    offline: bool = False  # the child itself leaves the network
    is_inner: bool = False  # something else ties its life to its parent


class SandboxMissing(Exception):
    """The machine cannot shut a child in as far as was asked."""


@dataclass(slots=True, kw_only=True)
class Sandbox:
    """What this machine offers, found once."""

    level: Level
    bwrap: str = ""
    hidden: tuple[Path, ...] = ()
    _uids: Iterator[int] = field(default_factory=lambda: count(os.getpid() * 97))

    @classmethod
    def detect(
        cls, mode: Mode = "prefer", *, hidden: tuple[Path, ...] = (), path: str | None = None
    ) -> Sandbox:
        """Try the strongest form first; `require` refuses a machine without namespaces."""
        if mode == "off":
            return cls(level="rlimits", hidden=hidden)
        found = shutil.which("bwrap", path=path)
        if found and _works(found):
            return cls(level="namespaces", bwrap=found, hidden=hidden)
        if mode == "require":
            raise SandboxMissing("NOETL_PYTHON_SANDBOX=require, and bubblewrap does not work here")
        return cls(level="user" if _may_change_user() else "rlimits", hidden=hidden)

    def confine(self, walls: Walls, work: Path) -> Confinement:
        """How to start one child whose work folder is given."""
        uid = self._next_uid() if _may_change_user() and self.level != "rlimits" else None
        if self.level == "namespaces":
            return Confinement(
                prefix=self._bwrap(walls, work), outer_uid=uid, is_inner=True
            )  # fmt: skip
        if walls.strict or (walls.offline and self.level == "rlimits"):
            what = "sandbox: strict" if walls.strict else "network: off"
            raise SandboxMissing(f"`{what}` needs bubblewrap, which does not work on this machine")
        return Confinement(uid=uid, offline=walls.offline)

    def _next_uid(self) -> int:
        return _FIRST_UID + next(self._uids) % _UIDS

    def _bwrap(self, walls: Walls, work: Path) -> tuple[str, ...]:
        folder = str(work)
        hide = [word for path in self.hidden if path.is_dir() for word in ("--tmpfs", str(path))]
        return (
            self.bwrap, "--die-with-parent", "--unshare-user", "--unshare-pid", "--unshare-ipc",
            "--unshare-uts", *(["--unshare-net"] if walls.offline else []), "--cap-drop", "ALL",
            "--ro-bind", "/", "/", "--dev", "/dev", "--proc", "/proc", "--tmpfs", "/tmp",  # noqa: S108 - the child's own
            *hide, "--bind", folder, folder, "--chdir", folder, "--",
        )  # fmt: skip


def clean_environment(environ: Mapping[str, str]) -> dict[str, str]:
    """The few variables that a child keeps."""
    kept = {name: environ[name] for name in KEPT_VARIABLES if name in environ}
    return {"PATH": os.defpath, "LANG": "C.UTF-8"} | kept


def _may_change_user() -> bool:
    """Whether children can have a user of their own: we are root and others may read Python."""
    return (
        sys.platform.startswith("linux")
        and os.geteuid() == 0
        and all(_is_readable_by_all(Path(path)) for path in (sys.prefix, sys.base_prefix, __file__))
    )


def _is_readable_by_all(path: Path) -> bool:
    where = path.resolve()
    above = all(parent.stat().st_mode & stat.S_IXOTH for parent in where.parents)
    return above and bool(where.stat().st_mode & stat.S_IROTH)


def _works(bwrap: str) -> bool:
    """Whether namespaces can be made here, as the user that children would run as."""
    user = _FIRST_UID if _may_change_user() else None
    argv = [bwrap, "--unshare-user", "--unshare-pid", "--unshare-net", "--ro-bind", "/", "/",
            "--dev", "/dev", "--proc", "/proc", "--", "/bin/true"]  # fmt: skip
    try:
        done = subprocess.run(  # noqa: S603 - a fixed command
            argv, user=user, group=user, extra_groups=None if user is None else [],
            capture_output=True, timeout=_PROBE_S, check=False,
        )  # fmt: skip
    except (OSError, subprocess.SubprocessError):
        return False
    return done.returncode == 0
