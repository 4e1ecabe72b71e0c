"""Names of operations, and which problems they are answered with."""

from __future__ import annotations

import re
from collections import Counter, defaultdict
from typing import TYPE_CHECKING, Final

from noetl.api.codes import PROBLEMS
from noetl.server.access.permissions import PUBLIC

if TYPE_CHECKING:
    from collections.abc import Sequence

    from noetl.server.routes.exchange import Named

_NAME: Final = re.compile(r"{(\w+)(:\w+)?}")
_VERBS: Final = {
    "GET": "get", "POST": "post", "PUT": "put", "PATCH": "change", "DELETE": "delete",
}  # fmt: skip
_READS: Final = "GET"
_EVERY: Final = ("unknown_parameter", "bad_value", "internal", "db_unavailable", "timeout")
_PROTECTED: Final = (
    "auth_required", "token_expired", "session_expired", "forbidden", "rate_limited",
)  # fmt: skip
_INTERNAL: Final = ("internal_token_mismatch", "internal_token_unset")
_WRITES: Final = ("draining", "pool_saturated", "storage_full")
_BODIES: Final = (
    "bad_json", "bad_media_type", "body_too_large", "unknown_field", "validation_failed",
    "invalid_id", "bad_time",
)  # fmt: skip
_QUERIES: Final = ("validation_failed", "invalid_id", "bad_time")
_OF_NAMES: Final = {
    "execution_id": ("unknown_execution", "invalid_id"),
    "path": ("unknown_path", "path_invalid"),
    "event_id": ("unknown_command", "not_found", "invalid_id"),
    "pool": ("unknown_worker", "pool_invalid"),
}
_ANY_NAME: Final = ("not_found", "invalid_id", "validation_failed")


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
    kept = parts[1:] if parts[0] == "api" else ["probe", *parts]
    return re.sub(r"\W+", "_", "_".join(kept)).lower()


def problems_of(route: Named) -> dict[int, list[str]]:
    """Codes of problems by status: those of every such route, and the route's own."""
    declared = route.declared
    codes: list[str] = [*declared.codes, *_EVERY]
    if route.permission != PUBLIC:
        codes += _PROTECTED
    if route.permission == "internal":
        codes += _INTERNAL
    if method_of(route) != _READS:
        codes += _WRITES
    if declared.body is not None or declared.takes is not None:
        codes += _BODIES
    if declared.query:
        codes += _QUERIES
    if any(parameter.name == "cursor" for parameter in declared.query):
        codes.append("bad_cursor")
    for name in names_of(route):
        codes += _OF_NAMES.get(name, _ANY_NAME)
    found: dict[int, list[str]] = defaultdict(list)
    for code in dict.fromkeys(codes):
        found[PROBLEMS[code].status].append(code)
    return dict(sorted(found.items()))
