"""Names of operations, from their methods and paths."""

from __future__ import annotations

import re
from collections import Counter
from typing import TYPE_CHECKING, Final, Protocol

if TYPE_CHECKING:
    from collections.abc import Sequence

    from noetl.edge.declared import Declared

_NAME: Final = re.compile(r"{(\w+)(:\w+)?}")
_VERBS: Final = {
    "GET": "get", "POST": "post", "PUT": "put", "PATCH": "change", "DELETE": "delete",
    "OPTIONS": "options",
}  # fmt: skip
_READS: Final = "GET"


class Named(Protocol):
    """A route that says what it is for."""

    path: str
    permission: str

    @property
    def methods(self) -> set[str] | None:
        """The methods that it answers."""

    @property
    def declared(self) -> Declared:
        """How it is used."""


def method_of(route: Named) -> str:
    """The one method of a route."""
    return next(iter(sorted((route.methods or set()) - {"HEAD"})))


def plain_path(route: Named) -> str:
    """The path as documents write it: names without their kinds."""
    return _NAME.sub(r"{\1}", route.path)


def names_of(route: Named) -> list[str]:
    """The names in a path, in its order."""
    return [found[1] for found in _NAME.finditer(route.path)]


def operation_ids(routes: Sequence[Named]) -> dict[tuple[str, str], str]:
    """A name for each method and path: its fixed words, and a verb where they do not suffice."""
    words = {(method_of(route), route.path): _words(route.path) for route in routes}
    methods = Counter(path for _, path in words)
    holders = {path.rpartition("/{")[0] for _, path in words if path.endswith("}")}
    made = {}
    for (method, path), name in words.items():
        verb = "list" if method == _READS and path in holders else _VERBS[method]
        is_bare = methods[path] == 1 and path not in holders and not path.endswith("}")
        made[method, path] = name if is_bare else f"{name}_{verb}"
    return _unique(made)


def _unique(made: dict[tuple[str, str], str]) -> dict[tuple[str, str], str]:
    """Tell names apart that are equal still, by the names in their paths."""
    often = Counter(made.values())
    for (method, path), name in made.items():
        if often[name] > 1 and (inner := _NAME.findall(path)):
            made[method, path] = f"{name}_of_{inner[-1][0]}"
    return made


def _words(path: str) -> str:
    parts = [part for part in path.strip("/").split("/") if "{" not in part]
    kept = parts[1:] if parts[:1] == ["api"] else ["probe", *parts]
    return re.sub(r"\W+", "_", "_".join(kept)).lower()
