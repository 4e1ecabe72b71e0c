"""Packages that steps ask for: environments made by uv, kept by what is in them.

Only wheels of the configured index are taken, so that installing runs no code of a package. An
environment is made once, however many commands and workers of a home ask for it at the same time.
"""

from __future__ import annotations

import asyncio
import contextlib
import fcntl
import hashlib
import os
import re
import shutil
import subprocess
import sys
from pathlib import Path
from typing import TYPE_CHECKING, Final

from noetl.tools.interpreter.runner import Died

if TYPE_CHECKING:
    from collections.abc import Iterator, Mapping, Sequence

BUILD_S: Final = 600.0
TAIL_LINES, TAIL_BYTES = 8, 2000
MOST_REQUIREMENTS: Final = 100
_READY: Final = ".noetl-ready"
_FORM: Final = re.compile(
    r"[A-Za-z0-9][A-Za-z0-9._-]*\s*(\[[A-Za-z0-9._,\s-]*\])?\s*([<>=!~(][^@;]*)?(;.*)?\Z", re.DOTALL
)
_SECRET: Final = re.compile(r"(?<=://)[^/@\s]+(?=@)")


class Environments:
    """The environments of one home."""

    def __init__(
        self, folder: Path, environ: Mapping[str, str], *, python: str = sys.executable
    ) -> None:
        """`environ` is what uv itself is given: its settings name the index."""
        self._folder = folder
        self._environ = {"UV_CACHE_DIR": str(folder / "cache"), **environ}
        self._python = python
        self._making: dict[str, asyncio.Task[Path]] = {}

    async def made(self, requirements: Sequence[str]) -> Path:
        """The folder of an environment that holds these packages."""
        wanted = checked(requirements)
        digest = digest_of(wanted, self._python)
        making = self._making.get(digest)
        if making is None:
            making = asyncio.create_task(
                asyncio.to_thread(self._make, wanted, self._folder / digest)
            )
            self._making[digest] = making
            making.add_done_callback(lambda _: self._making.pop(digest, None))
        return await asyncio.shield(making)

    async def close(self) -> None:
        """Wait for what is being made: a thread cannot be stopped, and is bounded."""
        if self._making:
            await asyncio.wait(self._making.values())

    def _make(self, wanted: tuple[str, ...], folder: Path) -> Path:
        """Make it, unless somebody has; runs in a thread."""
        if (folder / _READY).exists():
            return folder
        self._folder.mkdir(parents=True, exist_ok=True, mode=0o755)
        with _locked(folder.with_name(f"{folder.name}.lock")):
            if (folder / _READY).exists():
                return folder
            shutil.rmtree(folder, ignore_errors=True)  # half of one, from a worker that died
            program = _uv(self._environ)
            base = ["--quiet", "--no-progress"]
            self._run([program, "venv", *base, "--python", self._python, str(folder)])
            python = str(folder / "bin" / "python")
            self._run([program, "pip", "install", *base, "--no-build", "--compile-bytecode",
                       "--python", python, "--", *wanted])  # fmt: skip
            (folder / _READY).write_text("\n".join(wanted), "utf-8")
        return folder

    def _run(self, argv: list[str]) -> None:
        try:
            done = subprocess.run(  # noqa: S603 - our own program; the words were looked at
                argv, env=dict(self._environ), stdin=subprocess.DEVNULL, stdout=subprocess.PIPE,
                stderr=subprocess.STDOUT, timeout=BUILD_S, check=False, cwd=self._folder,
                umask=0o022,  # children may run as somebody else
            )  # fmt: skip
        except subprocess.TimeoutExpired:
            raise _failed(f"uv did not end within {BUILD_S:g} s") from None
        except OSError as fault:
            raise _failed(f"uv cannot be started: {fault.strerror}") from None
        if done.returncode != 0:
            raise _failed(_tail(done.stdout.decode("utf-8", "replace")))


def checked(requirements: Sequence[str]) -> tuple[str, ...]:
    """Requirements in order, each once; a path, an address or an option is none."""
    wanted = tuple(sorted({text.strip() for text in requirements}))
    if len(wanted) > MOST_REQUIREMENTS:
        raise Died("config", "invalid_config", f"/requirements: over {MOST_REQUIREMENTS} packages")
    for text in wanted:
        if not _FORM.match(text):
            message = f"/requirements: {text[:80]!r} is not a package of an index with its versions"
            raise Died("config", "invalid_config", message)
    return wanted


def digest_of(wanted: Sequence[str], python: str = sys.executable) -> str:
    """The name of an environment: its packages, and the Python that they are for."""
    told = "\n".join((sys.version, sys.implementation.cache_tag, python, *wanted))
    return hashlib.sha256(told.encode()).hexdigest()[:32]


def copied(folder: Path, to: Path) -> None:
    """The environment in another place, by links where that is the same disk."""
    shutil.copytree(folder, to, symlinks=True, copy_function=_linked)
    to.chmod(0o755)


def _linked(source: str, target: str) -> None:
    try:
        os.link(source, target)
    except OSError:
        shutil.copy2(source, target)


@contextlib.contextmanager
def _locked(file: Path) -> Iterator[None]:
    """Hold a lock that the kernel lets go of with the process."""
    handle = os.open(file, os.O_RDWR | os.O_CREAT | os.O_CLOEXEC, 0o600)
    try:
        fcntl.flock(handle, fcntl.LOCK_EX)
        yield
    finally:
        os.close(handle)


def _uv(environ: Mapping[str, str]) -> str:
    own = Path(sys.prefix) / "bin" / "uv"
    found = str(own) if own.exists() else shutil.which("uv", path=environ.get("PATH"))
    if found is None:
        raise _failed("uv is not installed beside this worker, nor on its PATH")
    return found


def _tail(said: str) -> str:
    """The last lines of what uv said, without the passwords of addresses."""
    lines = [line.rstrip() for line in _SECRET.sub("***", said).splitlines() if line.strip()]
    return "\n".join(lines[-TAIL_LINES:])[-TAIL_BYTES:] or "uv said nothing"


def _failed(message: str) -> Died:
    return Died("config", "requirements_failed", f"the packages cannot be installed: {message}")
