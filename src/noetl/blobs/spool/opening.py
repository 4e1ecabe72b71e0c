"""From what a subscription says about its spool to the store that it means."""

from __future__ import annotations

import logging
from contextlib import asynccontextmanager
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any, ClassVar, Final

from noetl.blobs.objects import open_store
from noetl.blobs.spool.disk import DiskStore
from noetl.blobs.spool.jetstream import JetStreamStore
from noetl.blobs.spool.objects import BucketStore
from noetl.blobs.spool.retried import Retried
from noetl.errors import NoetlError

if TYPE_CHECKING:
    from collections.abc import AsyncIterator, Callable, Mapping
    from pathlib import Path

    from noetl.blobs.spool.base import SpoolStore
    from noetl.blobs.spool.jetstream import Messages
    from noetl.blobs.spool.rules import Place
    from noetl.dsl.subscription.spool import Spool

LOCAL_DISK: Final = "local_disk"
NATS_OBJECT: Final = "nats_object"
SAFE_COPIES: Final = 3
"""Of so many brokers one may fail without its disk having been written."""
DEFAULT: Final = "nats_object:noetl_spool"
"""Where messages wait when neither a document nor the installation says where."""
SCHEMES: Final = {"s3": "s3", "gcs": "gs"}
_ALIASES: Final = {
    "access_key_id": ("access_key_id", "aws_access_key_id", "access_key"),
    "secret_access_key": ("secret_access_key", "aws_secret_access_key", "secret_key"),
    "session_token": ("session_token", "aws_session_token"),
    "region": ("region", "aws_region"),
    "endpoint": ("endpoint", "endpoint_url"),
    "service_account": ("service_account", "service_account_json"),
}
_log: Final = logging.getLogger(__name__)


class BadSpool(NoetlError):
    """Nobody can open that spool; only its document or the installation can help."""

    code = "spool_invalid"
    status: ClassVar[int] = 422


@dataclass(frozen=True, slots=True, kw_only=True)
class Means:
    """What a process has to open spools with."""

    home: Path
    """What a relative path of `local_disk` begins at."""
    default: str = ""
    """`local_disk:<path>` or `nats_object:<bucket>`, where a document names no backend."""
    fields: Mapping[str, Any] = field(default_factory=dict)
    """Those of the credential that the document names."""
    messages: Callable[[str], Messages] | None = None
    """The messages of a bucket of JetStream, where there is a broker."""


@asynccontextmanager
async def opened(spool: Spool, place: Place, means: Means) -> AsyncIterator[SpoolStore]:
    """The store that a document means, for as long as the block runs.

    `SpoolLocked` when another process uses the same folder.
    """
    backend, where = _meant(spool, means.default)
    if backend == LOCAL_DISK:
        disk = DiskStore(means.home / where)
        try:
            await disk.hold(place.folder)
            yield disk
        finally:
            await disk.close()
        return
    bucket, _, prefix = where.partition("://")[2 if "://" in where else 0].partition("/")
    prefix = prefix.strip("/")
    if backend == NATS_OBJECT:
        if means.messages is None:
            raise BadSpool(
                "a spool of nats_object needs a broker",
                hint="Set NATS_URL, or give the spool a backend of s3, gcs or local_disk.",
            )
        messages = means.messages(bucket)
        await _look_at(messages)
        yield Retried(JetStreamStore(messages, prefix))
        return
    store = open_store(f"{SCHEMES[backend]}://{bucket}", identity(means.fields), retries=0)
    yield Retried(BucketStore(store, backend, prefix))


async def _look_at(messages: Messages) -> None:
    """Warn of a bucket that may lose what it has acknowledged."""
    about = {"bucket": messages.bucket}
    try:
        copies = await messages.copies()
    except NoetlError as fault:  # whoever puts something there is told that it is away
        _log.debug("the copies of a spool are not known", extra={**about, "code": fault.code})
        return
    if copies < SAFE_COPIES:
        _log.warning(
            "the spool may lose what it has acknowledged when the machine of its broker fails",
            extra={
                **about,
                "copies": copies,
                "hint": f"give its stream {SAFE_COPIES} copies, or set `sync_interval: always` "
                "for JetStream in the configuration of the broker",
            },
        )


def _meant(spool: Spool, default: str) -> tuple[str, str]:
    """The backend and its bucket or path."""
    backend, _, where = default.partition(":")
    if spool.backend is not None and spool.backend != backend:
        backend, where = spool.backend, ""
    where = (spool.path if backend == LOCAL_DISK else spool.bucket) or where
    if not where:
        missing = "path" if backend == LOCAL_DISK else "bucket"
        raise BadSpool(
            f"the spool says no {missing}" if backend else "the spool says no backend",
            hint="See `spool.backend`, `spool.bucket`, `spool.path` and NOETL_SPOOL_DEFAULT.",
        )
    return backend, where


def identity(fields: Mapping[str, Any]) -> dict[str, Any]:
    """Who we are at a bucket, under the names that stores know; a service account as it is."""
    if fields.get("type") == "service_account" and "private_key" in fields:
        return {"service_account": dict(fields)}
    found = {
        name: next((fields[one] for one in names if fields.get(one)), None)
        for name, names in _ALIASES.items()
    }
    return {name: value for name, value in found.items() if value is not None}
