"""Values that lie apart, put back where a person looks for them."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, Final

import msgspec

from noetl.dsl.views import Reference

if TYPE_CHECKING:
    from noetl.api.client import Client
    from noetl.local.steps import Run, StepRun

MOST_OUTPUT: Final = 8 << 20
_SCHEME: Final = "noetl://"


async def inlined(client: Client, run: Run, most_bytes: int) -> None:
    """Replace the references of a run's results by their values, up to a size in all."""
    loader = Loader(client, most_bytes)
    holders: list[Run | StepRun] = [run, *run.steps.values()]
    for holder in holders:
        value = holder.result
        if holder.reference is not None:
            value = msgspec.to_builtins(holder.reference)
        holder.result = await loader.whole(value)
        holder.reference = None


class Loader:
    """Fetches values by reference, each once and up to a size in all."""

    def __init__(self, client: Client, most_bytes: int) -> None:
        self.known: dict[str, Any] = {}
        self._client = client
        self._left = most_bytes

    async def whole(self, value: Any) -> Any:  # noqa: ANN401 - a value of the author's own
        """The value with every reference in it resolved that there is room for."""
        if isinstance(value, Reference):
            return await self.whole(msgspec.to_builtins(value))
        if isinstance(value, list):
            return [await self.whole(item) for item in value]
        if not isinstance(value, dict):
            return value
        ref, size = value.get("ref"), value.get("size")
        if isinstance(ref, str) and ref.startswith(_SCHEME) and isinstance(size, int):
            return await self._loaded(ref, size, value)
        return {key: await self.whole(item) for key, item in value.items()}

    async def _loaded(self, ref: str, size: int, shown: dict[str, Any]) -> Any:  # noqa: ANN401 - as above
        if ref not in self.known:
            if size > self._left:
                return shown
            self._left -= size
            self.known[ref] = msgspec.json.decode(await self._client.get_result(ref))
        return self.known[ref]
