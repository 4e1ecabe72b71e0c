"""The folder of a stack: its places, its secrets, its lock."""

from __future__ import annotations

import fcntl
import hashlib
import os
import secrets
import shutil
from contextlib import contextmanager
from typing import TYPE_CHECKING, Final

from noetl.errors import NoetlError

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator
    from pathlib import Path

FOLDERS: Final = (
    "pg", "nats", "logs", "run", "blobs", "objects", "secrets", "data", "worker", "spool",
)  # fmt: skip
DATA: Final = (
    "pg", "nats", "blobs", "objects", "data", "worker", "spool", "logs", "secrets",
)  # fmt: skip


class HomeUnusable(NoetlError):
    """A folder that a stack cannot use."""

    code = "file_unwritable"


class Home:
    """Everything of a stack under one folder; what is made here is for its owner alone."""

    def __init__(self, path: Path) -> None:
        self.path = path.absolute()

    def make(self) -> None:
        """Make the folders; the mode of one that is there already is not touched."""
        try:
            self.path.mkdir(mode=0o700, parents=True, exist_ok=True)
            for name in FOLDERS:
                (self.path / name).mkdir(mode=0o700, exist_ok=True)
        except OSError as fault:
            raise HomeUnusable(
                f"The folder {self.path} cannot be used: {fault.strerror}.",
                hint="name another with `--home` or NOETL_HOME",
            ) from fault

    def folder(self, name: str) -> Path:
        """One of its folders."""
        return self.path / name

    @property
    def record(self) -> Path:
        """What runs."""
        return self.path / "run" / "stack.json"

    def log(self, part: str) -> Path:
        """Where the words of a part are kept."""
        return self.path / "logs" / f"{part}.log"

    def secret_file(self, name: str) -> Path:
        """Where a secret lies."""
        return self.path / "secrets" / name

    def secret(self, name: str, make: Callable[[], str]) -> str:
        """A secret that is made once and kept, 0600."""
        file = self.secret_file(name)
        if not file.exists():
            self.keep(name, make())
        return file.read_text(encoding="utf-8").strip()

    def keep(self, name: str, value: str) -> Path:
        """Write a secret, 0600; a reader sees the old one or the new one."""
        file = self.secret_file(name)
        beside = file.with_suffix(f"{file.suffix}.{secrets.token_hex(4)}")
        opened = os.open(beside, os.O_WRONLY | os.O_CREAT | os.O_EXCL, 0o600)
        with os.fdopen(opened, "w", encoding="utf-8") as out:
            out.write(value + "\n")
        beside.replace(file)
        return file

    @property
    def digest(self) -> str:
        """Short name of this folder, for what lies or is known outside of it."""
        return hashlib.sha256(str(self.path).encode()).hexdigest()[:8]

    @contextmanager
    def locked(self) -> Iterator[bool]:
        """Hold the folder while a stack runs; false when somebody else does."""
        opened = os.open(self.path / "run" / "lock", os.O_WRONLY | os.O_CREAT, 0o600)
        with os.fdopen(opened, "wb") as file:
            try:
                fcntl.flock(file, fcntl.LOCK_EX | fcntl.LOCK_NB)
            except BlockingIOError:
                yield False
            else:
                yield True

    def wipe(self) -> None:
        """Delete data, logs and secrets."""
        for name in DATA:
            shutil.rmtree(self.path / name, ignore_errors=True)
            if (self.path / name).exists():
                raise HomeUnusable(f"{self.path / name} cannot be deleted.")
