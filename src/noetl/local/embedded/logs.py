"""What the parts say: one file each, and one merged stream for whoever watches."""

from __future__ import annotations

import asyncio
import os
from collections import deque
from typing import TYPE_CHECKING, Final, TextIO

if TYPE_CHECKING:
    from collections.abc import AsyncIterator, Callable, Sequence

    from noetl.local.embedded.home import Home

KEPT_LINES: Final = 20
MOST_BYTES: Final = 16 << 20
_LOOK_AGAIN_S: Final = 0.2
_BLOCK: Final = 1 << 16


class Logs:
    """Takes the lines of all parts; a file that has grown large is put aside once."""

    def __init__(
        self, home: Home, show: Callable[[str, str], None], most_bytes: int = MOST_BYTES
    ) -> None:
        self._most_bytes = most_bytes
        self._home = home
        self._show = show
        self._files: dict[str, TextIO] = {}
        self._last: dict[str, deque[str]] = {}

    def line(self, part: str, text: str) -> None:
        """Keep and show a line."""
        self._last.setdefault(part, deque(maxlen=KEPT_LINES)).append(text)
        file = self._file(part)
        file.write(text + "\n")
        file.flush()
        self._show(part, text)

    def last(self, part: str) -> list[str]:
        """The last lines of a part."""
        return list(self._last.get(part, ()))

    def close(self) -> None:
        """Close the files."""
        for file in self._files.values():
            file.close()
        self._files.clear()

    def _file(self, part: str) -> TextIO:
        path = self._home.log(part)
        file = self._files.get(part)
        if file is not None and file.tell() < self._most_bytes:
            return file
        if file is not None:
            file.close()
            path.replace(path.with_suffix(".log.1"))
        opened = os.open(path, os.O_WRONLY | os.O_CREAT | os.O_APPEND, 0o600)
        self._files[part] = file = os.fdopen(opened, "a", encoding="utf-8", errors="replace")
        return file


def tail(home: Home, parts: Sequence[str], count: int) -> list[tuple[str, str]]:
    """The last lines of each part, part by part."""
    return [(part, line) for part in parts for line in _last_lines(home, part, count)]


def logged(home: Home) -> list[str]:
    """The parts that have said something."""
    return sorted(path.stem for path in home.folder("logs").glob("*.log"))


async def follow(home: Home, parts: Sequence[str]) -> AsyncIterator[tuple[str, str]]:
    """Lines as they come, from the end of each file on; for ever."""
    places = {part: _size(home, part) for part in parts}
    rests = dict.fromkeys(parts, b"")
    while True:
        for part in parts:
            if _size(home, part) < places[part]:  # put aside: the new file is read whole
                places[part] = 0
            more = _read_from(home, part, places[part])
            places[part] += len(more)
            *whole, rests[part] = (rests[part] + more).split(b"\n")
            for line in whole:
                yield part, line.decode(errors="replace")
        await asyncio.sleep(_LOOK_AGAIN_S)


def _size(home: Home, part: str) -> int:
    try:
        return home.log(part).stat().st_size
    except FileNotFoundError:
        return 0


def _read_from(home: Home, part: str, place: int) -> bytes:
    try:
        with home.log(part).open("rb") as file:
            file.seek(place)
            return file.read()
    except FileNotFoundError:
        return b""


def _last_lines(home: Home, part: str, count: int) -> list[str]:
    """Read backwards in blocks until there are enough lines."""
    size = _size(home, part)
    text = b""
    place = size
    while place > 0 and text.count(b"\n") <= count:
        place = max(0, place - _BLOCK)
        text = _read_from(home, part, place)[: size - place]
    lines = text.decode(errors="replace").splitlines()
    return lines[-count:] if count else []
