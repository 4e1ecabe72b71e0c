"""Credentials that the caller brings along for one run: handed to tools, kept nowhere."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, Final

from noetl.telemetry.redact import Redactor

if TYPE_CHECKING:
    from collections.abc import Iterator, Mapping

# What says where and as whom, not how it is proved: hiding it would make every log unreadable.
_PLAIN: Final = frozenset(
    {"type", "host", "port", "user", "username", "database", "header", "sslmode"}
)


class Credentials:
    """Credentials by name."""

    def __init__(
        self,
        known: Mapping[str, Mapping[str, Any]],
        aliases: Mapping[str, str] | None = None,
    ) -> None:
        """Keep them; a keychain entry may name a credential other than itself (`aliases`)."""
        self._known = known
        self._aliases = aliases or {}

    def redactor(self) -> Redactor:
        """A redactor that knows every secret."""
        return Redactor(secret for fields in self._known.values() for secret in _texts(fields))

    async def keychain(self, names: frozenset[str]) -> dict[str, Mapping[str, Any]]:
        """The credentials of those names; a task that names another one fails."""
        wanted = {name: self._aliases.get(name, name) for name in names}
        return {name: self._known[of] for name, of in wanted.items() if of in self._known}

    async def fields(self, name: str) -> Mapping[str, Any]:
        """One credential; `LookupError` when the caller brought none of that name."""
        return self._known[name]


def _texts(value: object) -> Iterator[str]:
    if isinstance(value, dict):
        for name, item in value.items():
            if name not in _PLAIN:
                yield from _texts(item)
    elif isinstance(value, list):
        for item in value:
            yield from _texts(item)
    elif value is not None and not isinstance(value, bool):
        yield str(value)
