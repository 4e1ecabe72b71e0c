"""Bytes that a process prints, cut into lines of a bounded length."""

from __future__ import annotations

from typing import TYPE_CHECKING, Final

if TYPE_CHECKING:
    from collections.abc import Iterator

LINE_BYTES: Final = 8192
CUT_MARK: Final = " … (cut)"


class LineSplitter:
    """Collects chunks and gives whole lines; what is longer than the limit is cut and marked."""

    def __init__(self) -> None:
        self._rest = b""
        self._is_cutting = False
        self.count_bytes = 0

    def feed(self, chunk: bytes) -> Iterator[str]:
        """The lines that this chunk completes."""
        self.count_bytes += len(chunk)
        *whole, rest = (self._rest + chunk).split(b"\n")
        for line in whole:
            if self._is_cutting:
                self._is_cutting = False
            else:
                yield _shown(line)
        if self._is_cutting:
            rest = b""
        elif len(rest) > LINE_BYTES:
            yield _shown(rest)
            self._is_cutting, rest = True, b""
        self._rest = rest

    def end(self) -> Iterator[str]:
        """The last line, when it was not ended."""
        if self._rest:
            yield _shown(self._rest)
        self._rest, self._is_cutting, self.count_bytes = b"", False, 0


def _shown(line: bytes) -> str:
    text = line[:LINE_BYTES].decode("utf-8", "replace").rstrip("\r")
    return text + CUT_MARK if len(line) > LINE_BYTES else text
