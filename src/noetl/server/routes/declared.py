"""What a route says about itself: the API document and the audit are made from it."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any, Final, Literal

Kind = Literal["text", "number", "flag", "time", "id"]

NOTHING: Final[tuple[Parameter, ...]] = ()


@dataclass(frozen=True, slots=True)
class Parameter:
    """One name of a query."""

    name: str
    about: str
    kind: Kind = "text"
    words: tuple[str, ...] = ()
    """The only values, when they are few."""
    least: int | None = None
    most: int | None = None
    is_repeated: bool = False
    is_required: bool = False


@dataclass(frozen=True, slots=True, kw_only=True)
class Declared:
    """How a route is used."""

    about: str
    """One sentence: what it does."""
    body: Any = None
    """The model of the body, a type that msgspec reads; none: no JSON body is taken."""
    answer: Any = None
    """The model of the answer; none: any JSON."""
    status: int = 200
    """The status of a good answer."""
    media_type: str = "application/json"
    query: tuple[Parameter, ...] = NOTHING
    """Every name that the query may have; another one is refused before the route is asked."""
    audit: str | None = None
    """The action under which a use of the route is kept (`catalog.register`); none: it is not."""
    codes: tuple[str, ...] = ()
    """Codes of problems that are this route's own."""


LIMIT: Final = Parameter("limit", "How many at most.", "number", least=1, most=200)
CURSOR: Final = Parameter("cursor", "Where the page before ended (`next_cursor`).")
