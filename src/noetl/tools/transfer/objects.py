"""Objects of S3 and Google Cloud Storage as sources and targets, through files.

An object has no transaction: it is seen when its last byte was sent. What a transfer is about to
write, and what it wrote, stands in an object of its own beside it, so that a repeat knows its work.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import msgspec

from noetl.tools.base import ToolError
from noetl.tools.duckdb.objects import fetched, sent
from noetl.tools.objects.store import failing, store_for
from noetl.tools.transfer.files import FileWriter, format_of
from noetl.tools.transfer.files import read as read_file
from noetl.tools.transfer.plan import LEDGER, pairs_of

if TYPE_CHECKING:
    import pyarrow as pa  # type: ignore[import-untyped]  # it has no types

    from noetl.tools.transfer.plan import Source
    from noetl.tools.transfer.work import Work


async def read(
    asked: tuple[str, str | None, str | None],
    auth: Any,  # noqa: ANN401 - an alias or a map
    work: Work,
) -> Source:
    """An object as a source: its address, its form and the path of its rows."""
    uri, form, data_path = asked
    wanted = format_of(form, uri)
    path = work.folder / f"source.{wanted}"
    await fetched(address(uri), auth, path, work.ctx)
    return read_file(path, wanted, data_path, work.plan)


def address(uri: str) -> str:
    """An address as the stores know it."""
    return uri.replace("gcs://", "gs://", 1)


class ObjectTarget:
    """An object, or with a slash at its end a folder to which one is added."""

    def __init__(
        self,
        uri: str,
        auth: Any,  # noqa: ANN401 - an alias or a map
        work: Work,
    ) -> None:
        uri, plan = address(uri), work.plan
        self._form = format_of(None, uri, otherwise="parquet")
        self._base = uri.rpartition("/")[0]
        self.uri = f"{uri}{plan.digest}.{self._form}" if uri.endswith("/") else uri
        if uri.endswith("/") and plan.mode == "replace":
            message = "/target/uri: mode `replace` needs the name of an object, not of a folder"
            raise ToolError("config", "invalid_config", message)
        self._auth = auth
        self._path = work.folder / f"target.{self._form}"
        self._plan = plan
        self._lanes = work.lanes
        self._ctx = work.ctx
        self._writer: FileWriter | None = None
        self._is_ours = False

    async def earlier(self) -> dict[str, Any] | None:
        """What the ledger beside the object says; a word without an end is a broken try."""
        said = await self._ledger()
        if said is None:
            return None
        self._is_ours = said.get("uri") == self.uri
        outcome = said.get("outcome")
        return None if outcome is None else dict(outcome)

    def begin(self, schema: pa.Schema) -> None:
        """Open a file."""
        pairs = pairs_of(schema.names, self._plan)
        self._writer = FileWriter(self._path, self._form, pairs, schema)

    def write(self, batch: pa.RecordBatch) -> None:
        """Add rows to the file."""
        if self._writer is None:
            raise RuntimeError("the target has not begun")
        self._writer.write(batch)

    def stop(self) -> None:
        """Writing a file ends by itself."""

    async def commit(self, said: dict[str, Any]) -> dict[str, Any]:
        """Send the file; an object of somebody else is replaced only when that is the mode."""
        if self._writer is not None:
            await self._lanes.run(self._writer.close)
        if self._plan.mode == "append" and not self._is_ours:
            await self._must_be_new()
        await self._tell({"uri": self.uri})
        await sent(self._path, self.uri, self._auth, self._ctx)
        await self._tell({"uri": self.uri, "outcome": said})
        return said

    async def _must_be_new(self) -> None:
        store, key = await store_for(self.uri, self._auth, self._ctx)
        try:
            with failing(self.uri):
                await store.head_async(key)
        except ToolError as fault:
            if fault.code == "no_such_object":
                return
            raise
        message = (
            f"{self.uri} exists, and an object cannot grow: say `mode: replace`,"
            " or name a folder (with a slash at its end)"
        )
        raise ToolError("client_error", "already_exists", message)

    @property
    def _ledger_uri(self) -> str:
        return f"{self._base}/{LEDGER}/{self._plan.digest}.json"

    async def _ledger(self) -> dict[str, Any] | None:
        store, key = await store_for(self._ledger_uri, self._auth, self._ctx)
        try:
            with failing(self._ledger_uri):
                found = await store.get_async(key)
                raw = bytes(await found.bytes_async())
        except ToolError as fault:
            if fault.code == "no_such_object":
                return None
            raise
        return msgspec.json.decode(raw, type=dict[str, Any])

    async def _tell(self, said: dict[str, Any]) -> None:
        store, key = await store_for(self._ledger_uri, self._auth, self._ctx)
        with failing(self._ledger_uri):
            await store.put_async(key, msgspec.json.encode(said))
