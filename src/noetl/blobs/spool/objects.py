"""Waiting messages in a bucket: S3 and those like it, or Google Cloud Storage."""

from __future__ import annotations

from contextlib import contextmanager
from typing import TYPE_CHECKING, Any

from noetl.blobs.base import checked
from noetl.blobs.spool.base import Listed, Size, SpoolError, SpoolTaken

if TYPE_CHECKING:
    from collections.abc import AsyncIterator, Iterator


class BucketStore:
    """Objects of one bucket, below a prefix; the bucket itself must be there."""

    is_shared = True

    def __init__(self, store: Any, name: str, prefix: str = "") -> None:  # noqa: ANN401 - a store of obstore
        self.name = name
        self._store = store
        self._prefix = f"{prefix}/" if prefix else ""

    async def put_new(self, key: str, data: bytes) -> None:
        """Store an object that is not there."""
        import obstore  # noqa: PLC0415 - an extra
        from obstore.exceptions import AlreadyExistsError  # noqa: PLC0415 - an extra

        place = self._prefix + checked(key)
        with self._failing():
            try:
                await obstore.put_async(
                    self._store, place, data, mode="create", use_multipart=False
                )
            except AlreadyExistsError:
                if await self.get(key) != data:
                    raise SpoolTaken(f"{key}: something else lies there") from None

    async def put(self, key: str, data: bytes) -> None:
        """Store an object, whatever was there."""
        import obstore  # noqa: PLC0415 - an extra

        with self._failing():
            place = self._prefix + checked(key)
            await obstore.put_async(self._store, place, data, use_multipart=False)

    async def get(self, key: str) -> bytes | None:
        """The bytes."""
        import obstore  # noqa: PLC0415 - an extra

        try:
            with self._failing():
                found = await obstore.get_async(self._store, self._prefix + checked(key))
                return bytes(await found.bytes_async())
        except FileNotFoundError:
            return None

    async def list(self, folder: str, after: str = "", limit: int = 1000) -> list[Listed]:
        """Objects directly in a folder, by key."""
        found: list[Listed] = []
        if limit > 0:
            async for one in self._listed(folder, after, limit):
                found.append(one)
                if len(found) == limit:
                    break
        return found

    async def delete(self, key: str) -> None:
        """Forget an object."""
        import obstore  # noqa: PLC0415 - an extra

        try:
            with self._failing():
                await obstore.delete_async(self._store, self._prefix + checked(key))
        except FileNotFoundError:
            return

    async def size(self, folder: str) -> Size:
        """What lies directly in a folder."""
        items = size_bytes = 0
        async for one in self._listed(folder, "", 1000):
            items, size_bytes = items + 1, size_bytes + one.size
        return Size(items, size_bytes)

    async def _listed(self, folder: str, after: str, page: int) -> AsyncIterator[Listed]:
        import obstore  # noqa: PLC0415 - an extra

        inside = self._prefix + folder
        offset = self._prefix + after if after else None
        with self._failing():
            rows = obstore.list(
                self._store, inside.rstrip("/"), offset=offset, chunk_size=min(page, 1000)
            )
            async for chunk in rows:
                for row in chunk:
                    name = row["path"].removeprefix(inside)
                    if "/" not in name and folder + name > after:
                        yield Listed(folder + name, row["size"])

    @contextmanager
    def _failing(self) -> Iterator[None]:
        """Say what went wrong in our own words; the texts of a bucket hold addresses and more."""
        from obstore.exceptions import BaseError  # noqa: PLC0415 - an extra

        try:
            yield
        except FileNotFoundError:
            raise
        except BaseError as fault:
            word = type(fault).__name__
            raise SpoolError(f"the bucket of the spool did not do it ({word})") from None
