"""A delivery exactly as it came: the bytes that were signed, and how to look at them."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any, Final
from urllib.parse import parse_qsl

import msgspec

MOST_PARAMETERS: Final = 256


class Doubled(Exception):
    """What must come once came twice."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Raw:
    """A request as it was received; nothing of it is decoded, and nothing is shown."""

    method: str
    path: str
    """As it was asked for, without the query."""
    query: bytes = field(default=b"", repr=False)
    headers: tuple[tuple[bytes, bytes], ...] = field(default=(), repr=False)
    body: bytes = field(default=b"", repr=False)

    def every(self, name: str) -> list[bytes]:
        """The values of a header, by its lower-case name, in order."""
        wanted = name.encode("latin-1", "replace")
        return [value for key, value in self.headers if key.lower() == wanted]

    def one(self, name: str) -> bytes | None:
        """The value of a header that may come once; none when it does not come."""
        found = self.every(name)
        if len(found) > 1:
            raise Doubled(name)
        return found[0] if found else None

    def parameters(self) -> list[tuple[str, str]]:
        """The parameters of the query, in order; none when there are too many."""
        try:
            return parse_qsl(
                self.query.decode("latin-1"),
                keep_blank_values=True,
                errors="surrogateescape",
                max_num_fields=MOST_PARAMETERS,
            )
        except ValueError:
            return []

    def parameter(self, name: str) -> str | None:
        """A parameter that may come once; none when it does not come."""
        found = [value for key, value in self.parameters() if key == name]
        if len(found) > 1:
            raise Doubled(name)
        return found[0] if found else None


def json_of(body: bytes) -> Any:  # noqa: ANN401 - any JSON
    """A body as JSON; none when it is something else."""
    try:
        return msgspec.json.decode(body)
    except (msgspec.DecodeError, UnicodeDecodeError, RecursionError):  # the last: nested too deep
        return None


def text_at(document: Any, path: str) -> str | None:  # noqa: ANN401 - any JSON
    """The text or whole number at a path such as `scan.id`; none when there is no such thing."""
    found = document
    for part in path.split("."):
        if isinstance(found, Mapping):
            found = found.get(part)
        elif isinstance(found, list) and part.isdecimal() and len(part) < len(str(2**31)):
            found = found[int(part)] if int(part) < len(found) else None
        else:
            return None
    if isinstance(found, int) and not isinstance(found, bool):
        return str(found)
    return found if isinstance(found, str) and found else None
