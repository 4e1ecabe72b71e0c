"""What a route says about itself: the API document and the audit are made from it."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any, Final, Literal

if TYPE_CHECKING:
    from collections.abc import Mapping

Kind = Literal["text", "number", "flag", "time", "id"]

PUBLIC: Final = "public"
"""Anybody may: a permission that has to be declared, too."""
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
    takes: str | None = None
    """The media type of a body that is kept or read as it is, in the place of a model's."""
    answer: Any = None
    """The model of the answer, or several in a tuple; none: any JSON."""
    status: int = 200
    """The status of a good answer; 204 has no body."""
    also: Mapping[int, Any] = field(default_factory=dict)
    """Other statuses that are no problems, with their models; none: they have no body."""
    media_type: str = "application/json"
    follow: str | None = None
    """Another media type of the good answer, when the query asks for one."""
    query: tuple[Parameter, ...] = NOTHING
    """Every name that the query may have; another one is refused before the route is asked."""
    audit: str | None = None
    """The action under which a use of the route is kept (`catalog.register`); none: it is not."""
    services: tuple[str, ...] = ()
    """Of an internal route: the services that may use it beside `system`."""
    codes: tuple[str, ...] = ()
    """Codes of problems that are this route's own."""


EVENTS: Final = "text/event-stream"
ANY_TYPE: Final = "*/*"
UNCHANGED: Final[Mapping[int, Any]] = {304: None}
"""Of an answer with a tag: the caller has it."""
PARTS: Final[Mapping[int, Any]] = {206: bytes, 304: None, 416: None}
"""Of bytes that are answered as a whole or in part."""

LIMIT: Final = Parameter("limit", "How many at most.", "number", least=1, most=200)
CURSOR: Final = Parameter("cursor", "Where the page before ended (`next_cursor`).")
