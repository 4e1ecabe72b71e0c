"""Reads a value at a path such as `$.a.items[0]`."""

from __future__ import annotations

import re
from collections.abc import Mapping
from typing import Any, Final

from noetl.errors import NoetlError

_PART: Final = re.compile(r"""\.?([A-Za-z_][\w-]*)|\[(-?\d+)\]|\[(?:'([^']*)'|"([^"]*)")\]""")


class NoSuchPath(NoetlError):
    """A path that leads nowhere."""

    code = "no_such_path"


def found_at(value: Any, path: str) -> Any:  # noqa: ANN401 - any JSON
    """The value at the path; `$` and an empty path are the value itself."""
    here, at = value, 1 if path.startswith("$") else 0
    while at < len(path):
        match = _PART.match(path, at)
        if match is None:
            raise NoSuchPath(f"`{path}` is no path")
        here = _below(here, match, path)
        at = match.end()
    return here


def _below(here: Any, match: re.Match[str], path: str) -> Any:  # noqa: ANN401 - any JSON
    name, index, *quoted = match.groups()
    if index is not None:
        if isinstance(here, list) and -len(here) <= int(index) < len(here):
            return here[int(index)]
        raise NoSuchPath(f"`{path}`: there is no item {index}")
    key = next(text for text in (name, *quoted) if text is not None)
    if isinstance(here, Mapping) and key in here:
        return here[key]
    raise NoSuchPath(f"`{path}`: there is no `{key}`")
