"""Secrets in tests: every entry exists, and every field says which one it is."""

from __future__ import annotations

from noetl.dsl.template import View


class StandIn(View):
    """A keychain entry whose fields are texts that name themselves."""

    __slots__ = ("_name",)

    def __init__(self, name: str) -> None:
        self._name = name

    def lookup(self, key: str) -> object:
        """A field."""
        return f"<keychain {self._name}.{key}>"

    def plain(self) -> object:
        """The entry as a whole."""
        return f"<keychain {self._name}>"


async def stand_ins(names: frozenset[str]) -> dict[str, StandIn]:
    """An entry for each name that a task reads."""
    return {name: StandIn(name) for name in names}
