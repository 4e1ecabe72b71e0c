"""How a child is shut in: namespaces by bubblewrap, else a user of its own, else limits alone."""

from __future__ import annotations

import os
import shutil
import stat
import subprocess
import sys
from dataclasses import dataclass, field, replace
from itertools import count
from pathlib import Path
from typing import TYPE_CHECKING, Final, Literal

from noetl.tools.interpreter import masks, seccomp

if TYPE_CHECKING:
    from collections.abc import Iterator, Mapping

    from noetl.tools.interpreter.cgroup import Groups

Mode = Literal["prefer", "require", "off"]
Level = Literal["namespaces", "user", "rlimits"]

KEPT_VARIABLES: Final = ("PATH", "LANG", "TZ")
_FIRST_UID, _UIDS = 40_000, 20_000
_PROBE_S: Final = 10.0
_MEMORY_BYTES: Final = str(256 << 20)  # of a child's own /tmp and /dev/shm, each
_ROOT: Final = (
    "--ro-bind", "/", "/", "--dev", "/dev", "--proc", "/proc", "--remount-ro", "/dev",
    "--ro-bind-try", "/proc/sys", "/proc/sys",  # root may write there, with no rights at all
    "--ro-bind-try", "/proc/sysrq-trigger", "/proc/sysrq-trigger",
    "--size", _MEMORY_BYTES, "--tmpfs", "/dev/shm", "--size", _MEMORY_BYTES, "--tmpfs", "/tmp",  # noqa: S108 - the child's own
)  # fmt: skip


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
    filter: bytes = b""  # calls of the system that the child gives up
    parts: bool = True  # the child leaves the keyring, the sockets and the processes of the worker


class SandboxMissing(Exception):
    """The machine cannot shut a child in as far as was asked."""


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


@dataclass(slots=True, kw_only=True)
class Sandbox:
    """What this machine offers, found once."""

    level: Level
    bwrap: str = ""
    hidden: tuple[Path, ...] = ()
    may_nest: bool = False
    """Whether children can make namespaces of their own: an old bubblewrap cannot forbid it."""
    is_off: bool = False
    """Somebody wants no walls at all."""
    is_offline: bool = False
    """No child has a network, whatever a task asks for."""
    groups: Groups | None = None
    has_users: bool = field(default_factory=_may_change_user)
    """Whether every child has a user of its own."""
    _uids: Iterator[int] = field(default_factory=lambda: count(os.getpid() * 97))

    @classmethod
    def detect(
        cls,
        mode: Mode = "prefer",
        *,
        hidden: tuple[Path, ...] = (),
        home: Path | None = None,
        path: str | None = None,
    ) -> Sandbox:
        """Try the strongest form first; `require` refuses a machine without namespaces.

        `hidden` is covered for children besides what always is. `home` is that of somebody who
        runs their own playbooks: children see it, but for what opens other doors.
        """
        if mode == "off":
            return cls(level="rlimits", is_off=True)
        found = shutil.which("bwrap", path=path)
        for may_nest in (False, True) if found else ():
            if _works(str(found), may_nest=may_nest):
                covered = (*hidden, *masks.usual(home))
                return cls(level="namespaces", bwrap=str(found), hidden=covered, may_nest=may_nest)
        if mode == "require":
            raise SandboxMissing("NOETL_PYTHON_SANDBOX=require, and bubblewrap does not work here")
        return cls(level="user" if _may_change_user() else "rlimits")

    def shut_off(self) -> None:
        """Take the network from every child; a machine that cannot do that is refused."""
        if self.level == "rlimits":
            raise SandboxMissing("NOETL_PYTHON_NETWORK=off, and children cannot be shut off here")
        self.is_offline = True

    def confine(self, walls: Walls, work: Path, shown: tuple[Path, ...] = ()) -> Confinement:
        """How to start one child whose work folder is given, and what else it must see."""
        uid = self._next_uid() if self.has_users and self.level != "rlimits" else None
        if self.is_offline:
            walls = replace(walls, network=False)
        if self.level == "namespaces":
            return Confinement(
                prefix=self._bwrap(walls, work, shown, is_other=uid is not None),
                outer_uid=uid,
                is_inner=True,
                filter=_filter() if walls.strict else b"",
            )
        if walls.strict or (walls.offline and self.level == "rlimits"):
            what = "sandbox: strict" if walls.strict else "network: off"
            raise SandboxMissing(f"`{what}` needs bubblewrap, which does not work on this machine")
        return Confinement(uid=uid, offline=walls.offline, parts=not self.is_off)

    def may_reach(self, folder: Path) -> bool:
        """Whether children can read a folder of ours."""
        is_other = self.level != "rlimits" and self.has_users
        return not is_other or _is_readable_by_all(folder)

    def _next_uid(self) -> int:
        return _FIRST_UID + next(self._uids) % _UIDS

    def _bwrap(
        self, walls: Walls, work: Path, shown: tuple[Path, ...], *, is_other: bool
    ) -> tuple[str, ...]:
        folder = str(work)
        covers = masks.words(self.hidden, (*masks.needed(), *shown), is_other=is_other)
        return (
            self.bwrap, *_namespaces(may_nest=self.may_nest),
            *(["--unshare-net"] if walls.offline else []), "--die-with-parent",
            *_ROOT, *covers, "--bind", folder, folder, "--chdir", folder, "--",
        )  # fmt: skip


def _namespaces(*, may_nest: bool) -> tuple[str, ...]:
    return (
        "--unshare-user", *(() if may_nest else ("--disable-userns",)), "--unshare-pid",
        "--unshare-ipc", "--unshare-uts", "--cap-drop", "ALL",
    )  # fmt: skip


def _filter() -> bytes:
    """The filter of strict walls; a machine without one has no strict walls."""
    machine = os.uname().machine
    if not seccomp.is_known(machine):
        raise SandboxMissing(f"`sandbox: strict` is not known on machines of kind {machine}")
    return seccomp.assembled(machine)


def clean_environment(environ: Mapping[str, str]) -> dict[str, str]:
    """The few variables that a child keeps."""
    kept = {name: environ[name] for name in KEPT_VARIABLES if name in environ}
    return {"PATH": os.defpath, "LANG": "C.UTF-8"} | kept


def _works(bwrap: str, *, may_nest: bool) -> bool:
    """Whether namespaces can be made here, as the user that children would run as."""
    user = _FIRST_UID if _may_change_user() else None
    argv = [bwrap, *_namespaces(may_nest=may_nest), "--unshare-net", *_ROOT, "--", "/bin/true"]
    try:
        done = subprocess.run(  # noqa: S603 - a fixed command
            argv, user=user, group=user, extra_groups=None if user is None else [],
            capture_output=True, timeout=_PROBE_S, check=False,
        )  # fmt: skip
    except (OSError, subprocess.SubprocessError):
        return False
    return done.returncode == 0
