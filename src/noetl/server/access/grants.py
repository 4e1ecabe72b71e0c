"""Grants: what roles that were made here allow or deny on paths, and what is kept from all others.

A deny that fits beats everything that any role gives.
"""

from __future__ import annotations

from functools import lru_cache
from typing import TYPE_CHECKING, Final

from noetl.server.access.permissions import PERMISSIONS

if TYPE_CHECKING:
    from collections.abc import Iterable, Mapping

    from noetl.store.identity import Grant

    Rules = Mapping[str, tuple[tuple[str, ...], tuple[str, ...]]]

ANY: Final = "*"
WORDS: Final[Mapping[str, tuple[str, ...]]] = {
    "execute": ("execution:run",),
    "view": ("catalog:read", "execution:read"),
    "modify": ("catalog:write",),
}
"""Words that stand for permissions."""
GRANTABLE: Final = frozenset(
    permission
    for permission in PERMISSIONS
    if permission.partition(":")[0]
    in {"catalog", "execution", "schedule", "subscription", "plugin", "result", "vars"}
)
"""Permissions that are about something with a path; no grant gives or takes another one."""
_PARTS: Final[Mapping[str, tuple[str, ...]]] = {"execution:read": ("result:read", "vars:read")}
"""Who may see a run may see what it returned."""
_PLATFORM: Final = "system"


def is_fit(pattern: str, path: str) -> bool:
    """Whether a path is the one that is meant, or begins as a pattern with `*` at its end."""
    return path.startswith(pattern[:-1]) if pattern.endswith(ANY) else path == pattern


def allowed(grants: tuple[Grant, ...], permission: str) -> tuple[str, ...]:
    """Where grants allow this; a deny may still take some of it away."""
    return _rules(grants).get(permission, ((), ()))[0] if grants else ()


def denied(grants: tuple[Grant, ...], permission: str) -> tuple[str, ...]:
    """Where grants deny this."""
    return _rules(grants).get(permission, ((), ()))[1] if grants else ()


def space_of(path: str, tenant_id: str) -> str:
    """Which permission a path is kept for: `system/` and `<tenant>/system/`; else none."""
    first, _, rest = path.lstrip("/").casefold().partition("/")
    if first == _PLATFORM:
        return "system:write"
    if first == tenant_id.casefold() and rest.partition("/")[0] == _PLATFORM:
        return "tenant:system"
    return ""


@lru_cache(maxsize=4096)
def _rules(grants: tuple[Grant, ...]) -> Rules:
    """Patterns that allow, and that deny, by permission."""
    found: dict[str, tuple[list[str], list[str]]] = {}
    for grant in grants:
        for permission in _meant(grant.actions):
            found.setdefault(permission, ([], []))[grant.effect == "deny"].append(grant.path)
    return {name: (tuple(allow), tuple(deny)) for name, (allow, deny) in found.items()}


def _meant(actions: Iterable[str]) -> set[str]:
    meant: set[str] = set()
    for action in actions:
        meant.update(GRANTABLE if action == ANY else WORDS.get(action, (action,)))
    for whole, parts in _PARTS.items():
        if whole in meant:
            meant.update(parts)
    return meant & GRANTABLE
