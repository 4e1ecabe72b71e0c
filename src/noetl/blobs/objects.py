"""Large bytes in an object store: S3 and those like it, Google Cloud Storage, or memory.

An object ends with its label: its digest is known when its last byte was sent, and not before.
The library of the stores is an extra; nothing of it is read before a store is opened.
"""

from __future__ import annotations

import json
from contextlib import contextmanager
from datetime import timedelta
from hashlib import sha256
from pathlib import Path
from typing import TYPE_CHECKING, Any, ClassVar, Final

from noetl.blobs.address import store_address
from noetl.blobs.base import CHUNK_BYTES, JSON, BlobGone, Stat, checked
from noetl.blobs.file import FileBlobs
from noetl.blobs.label import LABEL_BYTES, compare, label_of, read_label
from noetl.blobs.measured import Measured
from noetl.errors import NoetlError

if TYPE_CHECKING:
    from collections.abc import AsyncIterable, AsyncIterator, Iterator, Mapping

    from noetl.blobs.base import Blobs

PART_BYTES: Final = 8 * 1024 * 1024
AT_ONCE: Final = 2
"""So many parts of an upload are in memory and on their way."""
REGION: Final = "us-east-1"
CONNECT_S: Final = 5
IDLE_S: Final = 30
RETRIES: Final = 3


class ObjectsGone(NoetlError):
    """The store of large bytes cannot be reached, or refuses us."""

    code = "object_store_unavailable"
    retryable: ClassVar[bool] = True
    status: ClassVar[int] = 503


class NoObjectLibrary(NoetlError):
    """The library of object stores is not installed."""

    code = "missing_extra"


def open_blobs(url: str) -> Blobs:
    """The store that an address names; credentials are those of the environment."""
    address = store_address(url)
    if address.scheme == "file":
        return FileBlobs(Path(address.path))
    return ObjectBlobs(open_store(url, {}), address.path, address.name)


def open_store(url: str, fields: Mapping[str, Any], *, retries: int = RETRIES) -> Any:  # noqa: ANN401 - a store of obstore
    """A store of the library; the prefix of the address is for its user to add.

    Fields: `access_key_id`, `secret_access_key`, `session_token`, `region`, `endpoint`, or
    `service_account`. Without an identity there, that of the environment is taken.
    """
    address = store_address(url)
    try:
        from obstore import store  # noqa: PLC0415 - an extra
    except ImportError:
        raise NoObjectLibrary(
            "object stores need a library", hint='pip install "noetl[s3]"'
        ) from None
    given = {**address.options, **{name: value for name, value in fields.items() if value}}
    endpoint = str(given.get("endpoint") or "")
    options: dict[str, Any] = {
        "client_options": {
            "allow_http": _is_plain(given, endpoint),
            "connect_timeout": timedelta(seconds=CONNECT_S),
            "timeout": timedelta(days=1),  # a part may be slow; silence is what ends it
            "read_timeout": timedelta(seconds=IDLE_S),
        },
        "retry_config": {"max_retries": retries, "retry_timeout": timedelta(seconds=IDLE_S)},
    }
    if address.scheme == "file":
        return store.LocalStore(address.path, mkdir=True)
    if address.scheme == "memory":
        return store.MemoryStore()
    if address.scheme == "gs":
        return store.GCSStore(address.bucket, **_google(given, endpoint), **options)
    return store.S3Store(address.bucket, **_amazon(given, endpoint), **options)


def _is_plain(given: Mapping[str, Any], endpoint: str) -> bool:
    """Whether a plain connection is meant: by the endpoint, or by the one in a service account."""
    account = given.get("service_account")
    if isinstance(account, str):
        account = json.loads(account)
    inner = account.get("gcs_base_url") if isinstance(account, dict) else None
    return str(inner or endpoint).startswith("http://")


def _amazon(given: Mapping[str, Any], endpoint: str) -> dict[str, Any]:
    region = str(given.get("region") or REGION)
    made: dict[str, Any] = {"region": region}
    if endpoint:
        made["endpoint"] = endpoint
    if given.get("access_key_id"):
        identity = {
            "access_key_id": str(given["access_key_id"]),
            "secret_access_key": str(given.get("secret_access_key") or ""),
            "token": given.get("session_token"),
            "expires_at": None,
        }
        made["credential_provider"] = lambda: identity
        # What the environment says of another identity's store is not meant for this one.
        made.setdefault("endpoint", f"https://s3.{region}.amazonaws.com")
    return made


def _google(given: Mapping[str, Any], endpoint: str) -> dict[str, Any]:
    made: dict[str, Any] = {}
    account = given.get("service_account")
    if account:
        text = account if isinstance(account, str) else json.dumps(account)
        made["service_account_key"] = text
    if endpoint:
        made["base_url"] = endpoint
    return made


@contextmanager
def failing(key: str = "") -> Iterator[None]:
    """Say what went wrong in our own words; the texts of a store hold addresses and more."""
    from obstore.exceptions import BaseError  # noqa: PLC0415 - an extra

    try:
        yield
    except FileNotFoundError:
        raise BlobGone(f"{key}: nothing lies there") from None
    except BaseError as fault:
        word = type(fault).__name__
        raise ObjectsGone(
            f"the object store did not do it ({word})", hint="see NOETL_OBJECT_STORE_URL"
        ) from None


class ObjectBlobs:
    """Objects of one store, below a prefix."""

    def __init__(self, store: Any, prefix: str = "", name: str = "s3") -> None:  # noqa: ANN401 - a store of obstore
        self._store = store
        self._prefix = f"{prefix}/" if prefix else ""
        self._name = name

    @property
    def name(self) -> str:
        """The word for this store in references."""
        return self._name

    async def put(self, key: str, data: bytes, *, media_type: str = JSON) -> None:
        """Keep bytes, all of them or none; what was there before is replaced."""
        import obstore  # noqa: PLC0415 - an extra

        checked(key, media_type)
        stat = Stat(key=key, size=len(data), sha256=sha256(data).hexdigest(), media_type=media_type)
        with failing(key):
            await obstore.put_async(
                self._store,
                self._prefix + key,
                [data, label_of(stat)],
                chunk_size=PART_BYTES,
                max_concurrency=AT_ONCE,
            )

    async def get(self, key: str) -> bytes:
        """All bytes; `BlobGone` when there are none, `BlobDamaged` when they are not the same."""
        import obstore  # noqa: PLC0415 - an extra

        with failing(checked(key)):
            found = await obstore.get_async(self._store, self._prefix + key)
            whole = bytes(await found.bytes_async())
        data = whole[:-LABEL_BYTES]
        compare(read_label(key, whole[-LABEL_BYTES:]), len(data), sha256(data).hexdigest())
        return data

    async def put_stream(
        self, key: str, chunks: AsyncIterable[bytes], *, media_type: str = JSON
    ) -> Stat:
        """Keep bytes as they come; nothing is kept when their source fails."""
        import obstore  # noqa: PLC0415 - an extra

        labelled = _Labelled(checked(key, media_type), chunks, media_type)
        with failing(key):
            await obstore.put_async(
                self._store,
                self._prefix + key,
                labelled.parts(),
                chunk_size=PART_BYTES,
                max_concurrency=AT_ONCE,
            )
        return labelled.stat

    async def get_stream(
        self, key: str, first: int = 0, last: int | None = None
    ) -> AsyncIterator[bytes]:
        """The bytes in chunks; damage is raised at the latest after the last one."""
        import obstore  # noqa: PLC0415 - an extra

        stat = await self.head(key)
        if stat is None:
            raise BlobGone(f"{key}: nothing lies there")
        end = stat.size if last is None else min(last + 1, stat.size)
        digest, size = sha256(), first
        if first < end:
            with failing(key):
                options: Any = {"range": (first, end)}
                found = await obstore.get_async(self._store, self._prefix + key, options=options)
                async for chunk in _chunks(found.stream(min_chunk_size=CHUNK_BYTES)):
                    digest.update(chunk)
                    size += len(chunk)
                    yield chunk
        if first == 0 and last is None:
            compare(stat, size, digest.hexdigest())

    async def head(self, key: str) -> Stat | None:
        """What lies under a key."""
        import obstore  # noqa: PLC0415 - an extra

        options: Any = {"range": {"suffix": LABEL_BYTES}}
        try:
            with failing(checked(key)):
                found = await obstore.get_async(self._store, self._prefix + key, options=options)
                label = bytes(await found.bytes_async())
        except BlobGone:
            return None
        return read_label(key, label)

    async def delete(self, key: str) -> None:
        """Forget a key; one that is not there is forgotten already."""
        import obstore  # noqa: PLC0415 - an extra

        try:
            with failing(checked(key)):
                await obstore.delete_async(self._store, self._prefix + key)
        except BlobGone:
            return

    async def listed(
        self, prefix: str = "", *, after: str = "", limit: int | None = None
    ) -> list[str]:
        """Keys that begin with a text, in order; stores list whole folders."""
        import obstore  # noqa: PLC0415 - an extra

        folder = (self._prefix + prefix).rpartition("/")[0]
        offset = self._prefix + after if after else None
        found: list[str] = []
        with failing(prefix):
            async for page in obstore.list(self._store, folder or None, offset=offset):
                keys = (item["path"].removeprefix(self._prefix) for item in page)
                found += [key for key in keys if key.startswith(prefix) and key > after]
                if limit is not None and len(found) >= limit:
                    break
        return sorted(found)[:limit]


class _Labelled:
    """Bytes on their way, and their label behind them."""

    def __init__(self, key: str, chunks: AsyncIterable[bytes], media_type: str) -> None:
        self._key = key
        self._sent = Measured(chunks)
        self._media_type = media_type

    @property
    def stat(self) -> Stat:
        """What is known when all have gone."""
        return Stat(
            key=self._key,
            size=self._sent.size,
            sha256=self._sent.digest.hexdigest(),
            media_type=self._media_type,
        )

    async def parts(self) -> AsyncIterator[bytes]:
        """The bytes, then the label."""
        async for chunk in self._sent.chunks():
            if chunk:
                yield chunk
        yield label_of(self.stat)


async def _chunks(stream: AsyncIterable[Any]) -> AsyncIterator[bytes]:
    """The same bytes in chunks of one size."""
    rest = bytearray()
    async for part in stream:
        rest += part
        while len(rest) >= CHUNK_BYTES:
            yield bytes(rest[:CHUNK_BYTES])
            del rest[:CHUNK_BYTES]
    if rest:
        yield bytes(rest)
