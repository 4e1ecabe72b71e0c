"""A secret in a file that others may replace: an agent that renews it, a mounted volume."""

from __future__ import annotations

import logging
from typing import TYPE_CHECKING, Final

if TYPE_CHECKING:
    from collections.abc import Callable
    from pathlib import Path

_log: Final = logging.getLogger(__name__)


class SecretFile:
    """What the file holds now; while it cannot be read or is empty, what it held last."""

    def __init__(
        self, path: Path, text: str = "", told: Callable[[str], None] = lambda _: None
    ) -> None:
        """Take what it held last; `told` hears of each text that it has not held before."""
        self._path = path
        self._text = text
        self._told = told
        self._is_told = False

    def __call__(self) -> str:
        """Read it again; a fault is told once, until it is over."""
        try:
            text, reason = self._path.read_text(encoding="utf-8").strip(), "it is empty"
        except OSError as fault:
            text, reason = "", fault.strerror or type(fault).__name__
        except UnicodeDecodeError:
            text, reason = "", "it is not UTF-8 text"
        if not text and not self._is_told:
            about = {"file": str(self._path), "reason": reason}
            _log.warning("the file of a secret cannot be read, its last text counts", extra=about)
        self._is_told = not text
        if text and text != self._text:
            self._told(text)
            self._text = text
        return self._text
