"""Servers and workers that a peer needs beside itself; standard library alone, as `workload`."""

from __future__ import annotations

import socket
import subprocess
import threading
import time
from contextlib import contextmanager
from typing import TYPE_CHECKING, Final

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator, Mapping, Sequence
    from pathlib import Path

READY_S: Final = 120.0
STOPPED_S: Final = 20.0
_LOOK_AGAIN_S: Final = 0.05


class NotReady(Exception):
    """A child that did not become what was waited for."""


@contextmanager
def child(
    words: Sequence[str | Path], folder: Path, env: Mapping[str, str] | None = None
) -> Iterator[subprocess.Popen[bytes]]:
    """A process that ends with the block; what it says goes to a file of the folder."""
    words = [str(word) for word in words]
    log = folder / f"{words[0].rpartition('/')[2]}-{free_port()}.log"
    with log.open("wb") as said:
        process = subprocess.Popen(
            words, stdout=said, stderr=said, stdin=subprocess.DEVNULL, env=env
        )
        try:
            yield process
        finally:
            process.terminate()
            try:
                process.wait(STOPPED_S)
            except subprocess.TimeoutExpired:
                process.kill()
                process.wait()


def until(what: str, is_so: Callable[[], object], process: subprocess.Popen[bytes]) -> None:
    """Wait for something that a process brings about."""
    ends = time.perf_counter() + READY_S
    pause = threading.Event()
    while not _held(is_so):
        if process.poll() is not None:
            raise NotReady(f"{what}: its process ended with {process.returncode}")
        if time.perf_counter() > ends:
            raise NotReady(f"{what}: not within {READY_S:g} s")
        pause.wait(_LOOK_AGAIN_S)


def free_port() -> int:
    """A port that nothing listens on."""
    with socket.create_server(("127.0.0.1", 0)) as held:
        return int(held.getsockname()[1])


def listens(port: int) -> bool:
    """Whether something answers on a port of this machine."""
    with socket.create_connection(("127.0.0.1", port), timeout=1.0):
        return True


def _held(is_so: Callable[[], object]) -> bool:
    try:
        return bool(is_so())
    except OSError:
        return False
