"""Who this worker is: a name that outlives the process, kept in a folder that only it uses."""

from __future__ import annotations

import fcntl
import os
import platform
import re
from contextlib import contextmanager
from dataclasses import dataclass
from typing import TYPE_CHECKING, Final

from noetl.errors import NoetlError
from noetl.ids import random_key

if TYPE_CHECKING:
    from collections.abc import Iterator
    from pathlib import Path

POOL: Final = re.compile(r"[a-z0-9][a-z0-9_-]{0,62}")
_NAME: Final = re.compile(r"[A-Za-z0-9][A-Za-z0-9._-]{0,127}")
_LOCK: Final = "lock"
_POOL_FILE: Final = "pool"
_RANDOM_DIGITS: Final = 8


class CannotStart(NoetlError):
    """The worker is not started; the reason needs a person."""

    code = "worker.cannot_start"


@dataclass(frozen=True, slots=True)
class Identity:
    """A name and the folder that is its own while the process lives."""

    name: str
    folder: Path


def checked_pool(name: str) -> str:
    """The name of a pool; a worker never joins one by accident."""
    if not POOL.fullmatch(name):
        raise CannotStart(
            f"{name!r} is not the name of a pool" if name else "the pool is missing",
            hint="give --pool or WORKER_POOL_NAME: lower case letters, digits, `_` and `-`",
            code="worker.bad_pool",
        )
    return name


@contextmanager
def identified(home: Path, pool: str, given: str = "") -> Iterator[Identity]:
    """The identity that was given, else the last one of this pool here, else a new one."""
    root = home.absolute() / "worker"
    root.mkdir(parents=True, exist_ok=True, mode=0o700)
    if given and not _NAME.fullmatch(given):
        raise CannotStart(
            f"{given!r} is not the name of a worker",
            hint="WORKER_ID is letters, digits, `.`, `_` and `-`",
            code="worker.bad_id",
        )
    names = [given] if given else [*_known(root, pool), _new_name()]
    for name in names:
        folder = root / name
        lock = _locked(folder)
        if lock is None:
            continue
        try:
            (folder / _POOL_FILE).write_text(pool, "utf-8")
            yield Identity(name, folder)
        finally:
            os.close(lock)
        return
    raise CannotStart(
        f"a worker {given} runs already",
        hint="stop it, or give this one a WORKER_ID of its own",
        code="worker.already_running",
    )


def _known(root: Path, pool: str) -> list[str]:
    """Workers of this pool that lived here before."""
    found = sorted(root.glob(f"*/{_POOL_FILE}"))
    return [file.parent.name for file in found if file.read_text("utf-8") == pool]


def _new_name() -> str:
    host = re.sub(r"[^A-Za-z0-9-]", "-", platform.node()).strip("-") or "worker"
    return f"{host[:60]}-{random_key()[:_RANDOM_DIGITS]}"


def _locked(folder: Path) -> int | None:
    """The lock of a folder, which the kernel lets go of with the process; None when it is held."""
    folder.mkdir(exist_ok=True, mode=0o700)
    file = os.open(folder / _LOCK, os.O_RDWR | os.O_CREAT | os.O_CLOEXEC, 0o600)
    try:
        fcntl.flock(file, fcntl.LOCK_EX | fcntl.LOCK_NB)
    except BlockingIOError:
        os.close(file)
        return None
    return file
