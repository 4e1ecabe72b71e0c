"""Large bytes of tools, kept by the server: what one worker writes, any other can read."""

from __future__ import annotations

from contextlib import contextmanager
from hashlib import sha256
from typing import TYPE_CHECKING, Final
from urllib.parse import unquote

from noetl.api.http import NoAnswer
from noetl.api.problems import Refused
from noetl.blobs.base import JSON, BlobDamaged, BlobGone, InvalidKey, Stat, checked
from noetl.blobs.measured import Measured
from noetl.blobs.naming import SCHEME, InvalidRef, parsed
from noetl.tools.base import ToolError
from noetl.worker.patience import is_passing, patiently

if TYPE_CHECKING:
    from collections.abc import AsyncIterable, AsyncIterator, Iterator

    from noetl.api.client import Client
    from noetl.blobs.naming import Name

PAGE: Final = 200
WITHIN_S: Final = 30.0
_GONE: Final = frozenset({404, 410})
_TOO_LARGE: Final = 413


class ServerBlobs:
    """The values of runs as a store of bytes; a key is a reference without its scheme."""

    def __init__(self, client: Client) -> None:
        self._client = client

    @property
    def name(self) -> str:
        """The word for this store; where the server keeps a value is its own affair."""
        return "server"

    async def put(self, key: str, data: bytes, *, media_type: str = JSON) -> None:
        """Keep bytes, all of them or none; what was there before is replaced."""
        name, last = _named(key, media_type)

        async def put() -> None:
            await self._client.put_result(
                name.execution_id, name.name, data, media_type, name=name.name, id=last
            )

        with _failing(key):
            await patiently(put, within_s=WITHIN_S)

    async def get(self, key: str) -> bytes:
        """All bytes."""
        _named(key)
        with _failing(key):
            return await patiently(lambda: self._client.get_result(SCHEME + key), within_s=WITHIN_S)

    async def put_stream(
        self, key: str, chunks: AsyncIterable[bytes], *, media_type: str = JSON
    ) -> Stat:
        """Keep bytes as they come; a chunk is in memory, and what is on its way."""
        name, last = _named(key, media_type)
        sent = Measured(chunks)
        with _failing(key):
            kept = await self._client.put_result_stream(
                name.execution_id, name.name, sent.chunks(), media_type, id=last
            )
        if (kept.size, kept.sha256) != (sent.size, sent.digest.hexdigest()):
            raise BlobDamaged(f"{key}: the server has other bytes than those that were sent")
        return Stat(key=key, size=kept.size, sha256=kept.sha256, media_type=media_type)

    async def get_stream(
        self, key: str, first: int = 0, last: int | None = None
    ) -> AsyncIterator[bytes]:
        """The bytes in chunks; damage is raised at the latest after the last one."""
        stat = await self.head(key)
        if stat is None:
            raise BlobGone(f"{key}: nothing lies there")
        end = stat.size - 1 if last is None else min(last, stat.size - 1)
        if first > end:
            return
        is_whole = first == 0 and last is None
        digest = sha256()
        with _failing(key):
            part = (first, None) if is_whole else (first, end)
            async for chunk in self._client.get_result_stream(SCHEME + key, *part):
                if is_whole:
                    digest.update(chunk)
                yield chunk
        if is_whole and digest.hexdigest() != stat.sha256:
            raise BlobDamaged(f"{key}: the bytes are not those that were put")

    async def head(self, key: str) -> Stat | None:
        """What lies under a key."""
        _named(key)
        try:
            with _failing(key):
                told = await patiently(
                    lambda: self._client.head_result(SCHEME + key), within_s=WITHIN_S
                )
        except BlobGone:
            return None
        headers = told.headers
        total = headers.get("content-range", "").rpartition("/")[2]
        return Stat(
            key=key,
            size=int(total) if total else len(told.body),
            sha256=headers.get("etag", "").strip('"'),
            media_type=headers.get("content-type", JSON),
        )

    async def delete(self, key: str) -> None:
        """Forget a key; one that is not there is forgotten already."""
        name, _ = _named(key)
        try:
            with _failing(key):
                await patiently(
                    lambda: self._client.delete_results(name.execution_id, ref=SCHEME + key),
                    within_s=WITHIN_S,
                )
        except BlobGone:
            return

    async def listed(
        self, prefix: str = "", *, after: str = "", limit: int | None = None
    ) -> list[str]:
        """Keys of one run that begin with a text, in order."""
        parts = prefix.split("/")
        if len(parts) < 3 or parts[0] != "execution":  # noqa: PLR2004 - `execution/<run>/`
            raise InvalidKey(f"{prefix[:80]!r} names no run")
        found: list[str] = []
        asked: dict[str, str | int] = {"limit": PAGE}
        while limit is None or len(found) < limit:
            with _failing(prefix):
                page = await self._client.results(parts[1], **asked)
            keys = (item.ref.removeprefix(SCHEME) for item in page.items)
            found += [key for key in keys if key.startswith(prefix) and key > after]
            if page.next_cursor is None:
                break
            asked["cursor"] = page.next_cursor
        return found[:limit]


def _named(key: str, media_type: str = JSON) -> tuple[Name, str]:
    """What a key names, and the last part of it."""
    try:
        name = parsed(SCHEME + checked(key, media_type))
    except InvalidRef as fault:
        raise InvalidKey(fault.message) from None
    return name, unquote(key.rpartition("/")[2])


@contextmanager
def _failing(key: str) -> Iterator[None]:
    """Say in the words of tools what the server said."""
    try:
        yield
    except NoAnswer as fault:
        raise ToolError("connection", "CONN_RESET", f"the server is away: {fault}") from None
    except Refused as fault:
        status = fault.problem.status
        if status in _GONE:
            raise BlobGone(f"{key}: {fault.message}") from None
        if status == _TOO_LARGE:
            raise ToolError("storage_quota", fault.code, f"{key}: {fault.message}") from None
        if is_passing(fault):
            raise ToolError("server_error", fault.code, f"{key}: {fault.message}") from None
        raise ToolError("storage_access", fault.code, f"{key}: {fault.message}") from None
