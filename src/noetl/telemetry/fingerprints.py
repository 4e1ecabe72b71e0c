"""Secrets that pass through a process, known by fingerprints, so that no sink shows one.

A server sees the secrets of all tenants. It keeps no value for this: of every form in which a
secret may reach a sink it keeps the length and two hashes, and finds it in a text by the hash of
six characters. What a text costs depends on its length, and not on how many secrets are known.
"""

from __future__ import annotations

from collections import Counter, OrderedDict
from typing import TYPE_CHECKING, Final

from noetl.telemetry.forms import MASK, SHORT, forms_of

if TYPE_CHECKING:
    from collections.abc import Iterator

    _Mark = tuple[int, int, int]
    """Hash of the first characters, length, hash of the whole."""

MOST: Final = 10_000
"""Secrets that are known at once: those that were used last."""
MOST_FORMS: Final = 200_000


class Fingerprints:
    """Covers secrets that were seen lately."""

    def __init__(self, most: int = MOST, most_forms: int = MOST_FORMS) -> None:
        self._most = most
        self._most_forms = most_forms
        self._known: OrderedDict[int, tuple[_Mark, ...]] = OrderedDict()
        self._starts: dict[int, Counter[tuple[int, int]]] = {}
        self._count = 0

    def __len__(self) -> int:
        """How many secrets are known."""
        return len(self._known)

    def add(self, *secrets: str) -> None:
        """Know secrets; short ones are no use, since any text holds them."""
        for secret in secrets:
            if len(secret) < SHORT:
                continue
            key = hash(secret)
            if key in self._known:
                self._known.move_to_end(key)
            else:
                self._learn(key, secret)

    def masked(self, text: str) -> str:
        """The text with every known secret replaced."""
        starts = self._starts
        if not starts:
            return text
        found = [
            at
            for at in range(len(text) - SHORT + 1)
            if hash(text[at : at + SHORT]) in starts
        ]  # fmt: skip
        return "".join(self._parts(text, found)) if found else text

    def within(self, text: str) -> tuple[str, ...]:
        """The known secrets that a text holds, as they stand there."""
        found = (
            text[at : at + self._length(text, at)]
            for at in range(len(text) - SHORT + 1)
            if hash(text[at : at + SHORT]) in self._starts
        )
        return tuple(dict.fromkeys(filter(None, found)))

    def _parts(self, text: str, found: list[int]) -> Iterator[str]:
        """The text in parts; of two secrets that overlap, the first hides both."""
        done = 0
        for at in found:
            length = self._length(text, at)
            if not length or at + length <= done:
                continue
            if at >= done:
                yield text[done:at]
                yield MASK
            done = at + length
        yield text[done:]

    def _length(self, text: str, at: int) -> int:
        """How long the longest secret is that begins here; 0: none does."""
        marks = self._starts[hash(text[at : at + SHORT])]
        fit = (length for length, whole in marks if hash(text[at : at + length]) == whole)
        return max(fit, default=0)

    def _learn(self, key: int, secret: str) -> None:
        marks = tuple({
            (hash(form[:SHORT]), len(form), hash(form))
            for form in forms_of(secret)
            if len(form) >= SHORT
        })  # fmt: skip
        self._known[key] = marks
        self._count += len(marks)
        for start, length, whole in marks:
            self._starts.setdefault(start, Counter())[length, whole] += 1
        while len(self._known) > self._most:
            self._forget()
        while len(self._known) > 1 and self._count > self._most_forms:
            self._forget()

    def _forget(self) -> None:
        """Forget the secret that was not used for the longest time."""
        _, marks = self._known.popitem(last=False)
        self._count -= len(marks)
        for start, length, whole in marks:
            known = self._starts[start]
            known[length, whole] -= 1
            if not known[length, whole]:
                del known[length, whole]
            if not known:
                del self._starts[start]
