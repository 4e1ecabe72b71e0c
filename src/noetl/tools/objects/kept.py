"""Large results in a bucket of the author's own (`output.store` of the kinds `s3` and `gcs`).

The platform cannot read them without the credential, so there is no reference to them: what the
author gets in the place of his result is where it lies, and the kind `artifact` reads it again
with the same credential. When it is deleted is up to the rules of the bucket.
"""

from __future__ import annotations

from dataclasses import dataclass
from hashlib import sha256
from typing import TYPE_CHECKING, Any, Final

from noetl.blobs.base import JSON
from noetl.blobs.naming import segment
from noetl.blobs.packing import ENCODINGS, SUFFIXES, packed
from noetl.tools.objects.moving import put_stream
from noetl.tools.objects.store import bucket_of, key_of, store_for

if TYPE_CHECKING:
    from noetl.blobs.packing import Packing
    from noetl.tools.base import ToolContext

SCHEMES: Final = {"s3": "s3", "gcs": "gs"}
PACKED: Final = "noetl-packing"
"""The metadata that tells how an object of ours is packed."""
_TTL: Final = "noetl-ttl-seconds"
_ID_LENGTH: Final = 32


@dataclass(frozen=True, slots=True, kw_only=True)
class Bucket:
    """Where results are to lie."""

    kind: str
    """`s3` or `gcs`."""
    name: str
    credential: str
    prefix: str = ""
    packing: Packing = "none"
    ttl_s: int | None = None


async def put_result(raw: bytes, name: str, bucket: Bucket, ctx: ToolContext) -> dict[str, Any]:
    """Put a result into a bucket; what stands in its place.

    Its key is made of the prefix, the run, the name and its digest: the same result again is the
    same object.
    """
    digest = sha256(raw).hexdigest()
    parts = [*bucket.prefix.strip("/").split("/"), ctx.execution_id, *map(segment, name.split("/"))]
    parts.append(f"{digest[:_ID_LENGTH]}.json{SUFFIXES[bucket.packing]}")
    key = key_of("/".join(part for part in parts if part), "/output/store/prefix")
    uri = f"{SCHEMES[bucket.kind]}://{bucket_of(bucket.name)}/{key}"
    store, _ = await store_for(uri, bucket.credential, ctx)
    attributes = {"Content-Type": JSON}
    if bucket.packing != "none":
        attributes |= {"Content-Encoding": ENCODINGS[bucket.packing], PACKED: bucket.packing}
    if bucket.ttl_s is not None:
        attributes[_TTL] = str(bucket.ttl_s)
    body = packed(raw, bucket.packing)
    await put_stream(store, key, body, uri, attributes=attributes, part_bytes=len(body) + 1)
    told = {"uri": uri, "store": bucket.kind, "size": len(raw), "sha256": digest}
    return {**told, "content_type": JSON, "compression": bucket.packing}
