"""Secrets in tests: every entry exists, and every field says which one it is."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from noetl.dsl.template import View

if TYPE_CHECKING:
    from collections.abc import Iterable, Mapping

    from noetl.worker.secrets import Handed


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


class StandIns:
    """The secrets of a command in a test: no keychain is asked."""

    def __init__(self, below: Handed) -> None:
        self._below = below

    async def credential(self, alias: str) -> Mapping[str, Any]:
        """The credential that the caller brought along."""
        return await self._below.credential(alias)

    async def keychain(self, names: Iterable[str]) -> Mapping[str, Any]:
        """An entry for each name that a task reads."""
        return {name: StandIn(name) for name in names}

    async def inputs(self) -> Mapping[str, Any]:
        """The inputs that the case gave."""
        return await self._below.inputs()

    def close(self) -> None:
        """The command has ended."""
        self._below.close()

    async def ahead(self, aliases: Iterable[str]) -> None:
        """A mocked tool asks for none."""
