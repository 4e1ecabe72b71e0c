"""What lies with the bytes of an object: its size, digest and media type, in 256 bytes.

The label and the bytes are written together, so that an object and what is known of it appear
together or not at all.
"""

from __future__ import annotations

import zlib
from typing import Final

from noetl.blobs.base import BlobDamaged, Stat

LABEL_BYTES: Final = 256
_FIELDS: Final = 5
_MAGIC: Final = "noetl-blob-1"


def label_of(stat: Stat) -> bytes:
    """The label of an object."""
    text = f"{_MAGIC} {stat.sha256} {stat.size} {stat.media_type}"
    return f"{zlib.crc32(text.encode()):08x} {text}".encode().ljust(LABEL_BYTES)


def read_label(key: str, label: bytes) -> Stat:
    """What a label tells; `BlobDamaged` when it is not one that was written."""
    try:
        check, magic, digest, size, media_type = label.decode("ascii").split(" ", _FIELDS - 1)
        stat = Stat(key=key, size=int(size), sha256=digest, media_type=media_type.rstrip(" "))
    except ValueError:
        raise BlobDamaged(f"{key}: its label cannot be read") from None
    if magic != _MAGIC or check != label_of(stat)[:8].decode():
        raise BlobDamaged(f"{key}: its label is not the one that was written")
    return stat


def compare(stat: Stat, size: int, digest: str) -> None:
    """Refuse bytes that are not those of the label."""
    if (size, digest) != (stat.size, stat.sha256):
        raise BlobDamaged(f"{stat.key}: the bytes are not those that were put")
