"""Where objects lie: the address of a store, read strictly (`s3://bucket/prefix?endpoint=…`)."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import TYPE_CHECKING, ClassVar, Final
from urllib.parse import parse_qsl, unquote, urlsplit

from noetl.errors import NoetlError

if TYPE_CHECKING:
    from collections.abc import Mapping

NAMES: Final[Mapping[str, str]] = {"s3": "s3", "gs": "gcs", "memory": "kv", "file": "disk"}
"""The word for a store in references, by the scheme of its address."""
_OPTIONS: Final = frozenset({"endpoint", "region"})


class BadStoreAddress(NoetlError):
    """An address that names no store of objects."""

    code = "bad_object_store"
    status: ClassVar[int] = 422


@dataclass(frozen=True, slots=True, kw_only=True)
class StoreAddress:
    """What an address says."""

    scheme: str
    bucket: str = ""
    path: str = ""
    """The prefix of every key, or the folder of `file://`."""
    options: Mapping[str, str] = field(default_factory=dict)

    @property
    def name(self) -> str:
        """The word for this store in references."""
        return NAMES[self.scheme]


def store_address(url: str) -> StoreAddress:
    """What an address says; anything else is refused."""
    parts = urlsplit(url)
    options = dict(parse_qsl(parts.query))
    path = unquote(parts.path).strip("/")
    if parts.scheme not in NAMES or options.keys() - _OPTIONS or parts.username or parts.fragment:
        raise _bad(url)
    if any(part in {"", ".", ".."} for part in path.split("/") if path):
        raise _bad(url)
    if parts.scheme == "file":
        if parts.netloc or not parts.path.startswith("/") or not path:
            raise _bad(url)
        return StoreAddress(scheme="file", path=f"/{path}")
    if (parts.scheme == "memory") == bool(parts.netloc):
        raise _bad(url)
    return StoreAddress(scheme=parts.scheme, bucket=parts.netloc, path=path, options=options)


def _bad(url: str) -> BadStoreAddress:
    scheme = url.partition(":")[0][:20]
    return BadStoreAddress(
        f"an address with the scheme {scheme!r} is not one of an object store",
        hint="s3://bucket/prefix?endpoint=…&region=…, gs://bucket/prefix or file:///folder",
    )
