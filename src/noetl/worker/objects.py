"""Values by reference, fetched when they are touched and kept while there is room."""

from __future__ import annotations

import asyncio
import hashlib
from collections import OrderedDict
from typing import TYPE_CHECKING, Any, Final

import msgspec

from noetl.api.problems import Refused
from noetl.tools.base import ToolError
from noetl.worker.patience import patiently

if TYPE_CHECKING:
    from noetl.api.client import Client
    from noetl.dsl.views import Reference

KEPT_BYTES: Final = 256 << 20
WITHIN_S: Final = 30.0
_GONE: Final = frozenset({404, 410})


class Objects:
    """The values that commands of this worker read lately."""

    def __init__(self, client: Client, kept_bytes: int = KEPT_BYTES) -> None:
        self._client = client
        self._most = kept_bytes
        self._kept: OrderedDict[str, tuple[int, Any]] = OrderedDict()
        self._size = 0
        self._loading: dict[str, asyncio.Task[Any]] = {}

    async def get(self, reference: Reference) -> Any:  # noqa: ANN401 - any JSON
        """The value; commands that want the same one share a fetch."""
        ref = reference.ref
        if ref in self._kept:
            self._kept.move_to_end(ref)
            return self._kept[ref][1]
        loading = self._loading.get(ref)
        if loading is None:
            loading = asyncio.get_running_loop().create_task(self._load(reference))
            self._loading[ref] = loading
            loading.add_done_callback(lambda _: self._loading.pop(ref, None))
        return await asyncio.shield(loading)

    async def _load(self, reference: Reference) -> Any:  # noqa: ANN401 - any JSON
        try:
            raw = await patiently(lambda: self._client.get_result(reference.ref), within_s=WITHIN_S)
        except Refused as fault:
            code = "result_gone" if fault.problem.status in _GONE else fault.code
            message = f"{reference.ref}: {fault.message}"
            raise ToolError("storage_access", code, message) from None
        if reference.sha256 and hashlib.sha256(raw).hexdigest() != reference.sha256:
            message = f"{reference.ref}: the stored bytes are others than those that were put"
            raise ToolError("storage_access", "digest_mismatch", message)
        value = msgspec.json.decode(raw)
        self._keep(reference.ref, len(raw), value)
        return value

    def _keep(self, ref: str, size: int, value: object) -> None:
        if size > self._most:
            return
        self._kept[ref] = (size, value)
        self._size += size
        while self._size > self._most:
            _, (gone, _) = self._kept.popitem(last=False)
            self._size -= gone
