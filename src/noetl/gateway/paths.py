"""What may be asked through `/noetl/`: one pure function, because paths are where tricks are."""

from __future__ import annotations

import re
from dataclasses import dataclass
from typing import Final
from urllib.parse import quote, unquote_to_bytes

from noetl.edge.errors import NotFound
from noetl.gateway.errors import BadPath
from noetl.gateway.shards import id_of

PREFIX: Final = "/noetl/"
_MIB: Final = 1 << 20
MOST_BYTES: Final = 10 * _MIB
_MOST: Final = {"plugins": 16 * _MIB, "result": 64 * _MIB}
_OF_RUNS: Final = frozenset({"executions", "vars", "result"})
_EVENTS: Final = frozenset({("events",), ("events", "batch")})
_STARTS: Final = frozenset({("execute",), ("execute", "batch"), ("run", "playbook")})
_ESCAPE: Final = re.compile(r"%[0-9A-Fa-f]{2}")
_PLAIN: Final = re.compile(r"[A-Za-z0-9_.~-]+(?:/[A-Za-z0-9_.~-]+)*\Z")
_QUERY: Final = re.compile(r"[!-~]+\Z")
_DOTS: Final = frozenset({".", ".."})
_SAFE: Final = "/!$&'()*+,:=@"
_SPACE: Final = 0x20
_DELETE: Final = 0x7F


@dataclass(frozen=True, slots=True)
class Target:
    """Where a request goes."""

    path: str
    """At the server, quoted anew."""
    execution_id: str | None = None
    """The run that the path names."""
    most_bytes: int = MOST_BYTES
    has_events: bool = False
    """The run is named in the body."""
    is_start: bool = False
    """A run is begun there."""


def target_of(raw: str) -> Target:
    """The server's path for what stands behind `/noetl/`, as it came: still quoted."""
    text = raw if _PLAIN.match(raw) else _decoded(raw)
    parts = text.split("/")
    if not parts[-1] and len(parts) > 1:
        parts.pop()  # one slash at the end says nothing else
    if not all(parts) or not _DOTS.isdisjoint(parts):
        if text == "":
            raise NotFound("no route of the server is named")
        raise BadPath("the path has an empty part, `.` or `..`")
    first = parts[0]
    if first.casefold() == "internal":
        raise NotFound("there is no such route")
    named = id_of(parts[1]) if first in _OF_RUNS and len(parts) > 1 else None
    return Target(
        path="/api/" + (text if text is raw else quote(text, safe=_SAFE)),
        execution_id=named,
        most_bytes=_MOST.get(first, MOST_BYTES),
        has_events=tuple(parts) in _EVENTS,
        is_start=tuple(parts) in _STARTS or (named is not None and parts[2:] == ["rerun"]),
    )


def query_of(text: str) -> str:
    """A query behind its `?`, as it came; one that is not quoted is refused."""
    if not text:
        return ""
    if not _QUERY.match(text):
        raise BadPath("the query has characters that are not quoted")
    return f"?{text}"


def _decoded(raw: str) -> str:
    """A path decoded once; one that would change if it were decoded again is refused."""
    if not raw.isascii():
        raise BadPath("the path has characters that are not quoted")
    if raw.count("%") != len(_ESCAPE.findall(raw)):
        raise BadPath("the path has a `%` without two digits")
    lowered = raw.lower()
    if "%2f" in lowered or "%5c" in lowered:
        raise BadPath("the path has a quoted slash")
    try:
        text = unquote_to_bytes(raw).decode()
    except UnicodeDecodeError:
        raise BadPath("the path is not UTF-8") from None
    if _ESCAPE.search(text):
        raise BadPath("the path is quoted twice")
    if "\\" in text or ";" in text:
        raise BadPath("the path has a `\\` or a `;`")
    if any(ord(letter) < _SPACE or ord(letter) == _DELETE for letter in text):
        raise BadPath("the path has a control character")
    return text
