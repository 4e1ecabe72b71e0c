"""Secrets in bytes that come piece by piece: found and covered across the ends of pieces.

Bytes are searched for what texts are, in UTF-8; so text of every encoding that agrees with ASCII
is served, as long as the secret is ASCII. A form of some length holds eight bytes that begin at a
multiple of eight, wherever it stands: bytes with none of those eights hold none of those forms.
"""

from __future__ import annotations

import re
import sys
from typing import TYPE_CHECKING, Final

from noetl.telemetry.forms import MASK, SHORT

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator, Sequence

MOST_OVERLAPPING: Final = 1000
"""Secrets, each reaching into the next one, that are looked at before they count as one."""
_EIGHT: Final = 8
_MASK: Final = MASK.encode()
_WORD: Final = rb"\w"
_LAST: Final = re.compile(_WORD + rb"*\Z")
_FIRST: Final = re.compile(_WORD + rb"*")


class Cover:
    """Some texts, as bytes that are looked for."""

    def __init__(self, forms: Sequence[str], words: Sequence[str]) -> None:
        """Look for `forms`, the longest first, and for `words` that stand alone."""
        self._forms = tuple(form.encode("utf-8", "surrogatepass") for form in forms)
        short = b"|".join(re.escape(word.encode("utf-8", "surrogatepass")) for word in words)
        alone = rb"(?<!" + _WORD + rb")(?:" + short + rb")(?!" + _WORD + rb")"
        self._words = re.compile(alone) if words else None
        self._reach = max(map(len, self._forms), default=0) + 2 * SHORT
        self._brief = tuple(form for form in self._forms if len(form) < 2 * _EIGHT - 1)
        self._eights = {
            int.from_bytes(form[at : at + _EIGHT], sys.byteorder)
            for form in self._forms[: len(self._forms) - len(self._brief)]
            for at in range(_EIGHT)
        }

    @property
    def has_words(self) -> bool:
        """Whether something counts only where it stands alone."""
        return self._words is not None

    def is_in(self, pieces: Iterable[bytes]) -> bool:
        """Whether the pieces hold something to cover; at their ends a word may seem to be one."""
        held = b""
        for piece in pieces:
            held = held[-self._reach :] + piece
            if any(form in held for form in self._likely(held)):
                return True
            if self._words is not None and self._words.search(held):
                return True
        return False

    def covered(self, pieces: Iterable[bytes]) -> Iterator[bytes]:
        """The same bytes without what is looked for."""
        held = b""
        for piece in pieces:
            held += piece
            cut, rest = self._cut(held)
            if rest > 0:
                yield self._clean(held[:cut]) + (_MASK if cut < rest else b"")
                held = held[rest:]
        yield self._clean(held)

    def _clean(self, data: bytes) -> bytes:
        for form in self._likely(data):
            data = data.replace(form, _MASK)
        return data if self._words is None else self._words.sub(_MASK, data)

    def _likely(self, data: bytes) -> tuple[bytes, ...]:
        """The forms that the bytes may hold."""
        eights = memoryview(data)[: len(data) // _EIGHT * _EIGHT].cast("Q")
        return self._brief if self._eights.isdisjoint(eights) else self._forms

    def _cut(self, held: bytes) -> tuple[int, int]:
        """Up to where the bytes can be judged without those that come, and where those begin."""
        cut = last = len(held) - self._reach
        for _ in range(MOST_OVERLAPPING):
            if cut <= 0:
                return 0, 0
            start = self._start(held, cut)
            if start == cut:
                return cut, cut
            cut = start
        return cut, last

    def _start(self, held: bytes, cut: int) -> int:
        """Where the first secret begins that a cut would divide; else the cut."""
        found = [cut]
        for form in self._forms:
            size = len(form) - 1
            at = held.find(form, max(0, cut - size), cut + size)
            if at >= 0:
                found.append(at)
        if self._words is not None:
            found.append(_outside(held, cut))
            for match in self._words.finditer(held, max(0, cut - SHORT)):
                if match.start() >= cut:
                    break
                if match.end() > cut:
                    found.append(match.start())
        return min(found)


def _outside(held: bytes, cut: int) -> int:
    """A place near the cut where no part of a long word looks like a short one."""
    last = _LAST.search(held[max(0, cut - SHORT) : cut])
    first = _FIRST.match(held, cut, cut + SHORT)
    before, after = len(last[0]) if last else 0, len(first[0]) if first else 0
    if not before or not after or min(before, after) >= SHORT:
        return cut
    return cut - before
