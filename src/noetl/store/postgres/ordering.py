"""In what words the order of a list is said, how far it is looked for, and what that makes."""

from __future__ import annotations

from typing import Final, NamedTuple


class Key(NamedTuple):
    """One of the two ways to say the order of the list; which one says what index may be used."""

    term: str
    sign: str

    def ordered(self, *, is_ascending: bool) -> str:
        """The order, in words of this key."""
        return f"order by {self.term}{'' if is_ascending != bool(self.sign) else ' desc'}"

    def bound(self, comparison: str, value: str) -> str:
        """`execution_id` compared with a value, in words of this key."""
        if self.sign:
            comparison = comparison.translate(str.maketrans("<>", "><"))
        return f"{self.term} {comparison} {self.sign}{value}::bigint"


WALK: Final = Key("execution_id", "")
"""Through all runs."""
OWN: Final = Key("(-execution_id)", "-")
"""Through the runs that one filter finds."""


class Reach(NamedTuple):
    """How far a list is looked for before everything that fits is searched for."""

    rows: int = 5_000
    """The next rows, one by one."""
    with_error: int = 300
    """The same of runs with an error, which lie far from each other."""
    paths: int = 300
    """Paths under a prefix, each from its beginning."""


class Statement(NamedTuple):
    """A text with numbered parameters, and their values."""

    text: str
    values: list[object]
