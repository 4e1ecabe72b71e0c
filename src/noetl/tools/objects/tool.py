"""The kinds `s3` and `gcs`: objects of a bucket read, written, listed, copied and shared."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from datetime import timedelta
from typing import TYPE_CHECKING, Any, ClassVar, Final

from noetl.dsl.tasks import Objects
from noetl.dsl.views import Outcome
from noetl.tools.base import ToolError, Traits
from noetl.tools.objects.moving import got, put_stream, whole_or_stream
from noetl.tools.objects.store import address_of, bucket_of, failing, key_of, store_for
from noetl.tools.roots import inside
from noetl.tools.stored import UNKNOWN, about, chunks_of, payload, stream

if TYPE_CHECKING:
    from collections.abc import AsyncIterable
    from pathlib import Path

    from noetl.dsl.tasks.task import Task
    from noetl.tools.base import ToolContext

MOST_LISTED: Final = 10_000
_MIB: Final = 1 << 20


class _ObjectsTool:
    """What both kinds do."""

    kind: ClassVar[str]
    scheme: ClassVar[str]
    Config: ClassVar[type[Task]] = Objects
    traits: ClassVar[Traits]

    def __init__(self, roots: tuple[Path, ...]) -> None:
        self._roots = roots

    async def run(self, config: Objects, ctx: ToolContext) -> Outcome:
        """Do what `operation` says."""
        bucket = f"{self.scheme}://{bucket_of(config.bucket)}"
        needs_key = config.operation != "list"
        if needs_key and not config.key_:
            raise ToolError("config", "invalid_config", f"/key: `{config.operation}` needs one")
        key_of(config.prefix or "", "/prefix")
        uri = f"{bucket}/{key_of(config.key_ or '')}"
        where: dict[str, str | None] = {"endpoint": config.endpoint, "region": config.region}
        store, key = await store_for(uri, config.auth, ctx, **where)
        asked = _Asked(config, ctx, store, key, uri, self._roots)
        data = await getattr(asked, f"do_{config.operation}")()
        return Outcome(data={"status": "ok", "operation": config.operation, **data})

    async def cancel(self, ctx: ToolContext) -> None:
        """Cancelling the task ends its transfer; an upload that is not whole is never seen."""


class S3Tool(_ObjectsTool):
    """The kind `s3`."""

    kind: ClassVar[str] = "s3"
    scheme: ClassVar[str] = "s3"
    traits: ClassVar[Traits] = Traits(credentialed=True, extra="s3")


class GcsTool(_ObjectsTool):
    """The kind `gcs`."""

    kind: ClassVar[str] = "gcs"
    scheme: ClassVar[str] = "gs"
    traits: ClassVar[Traits] = Traits(credentialed=True, extra="gcs")


@dataclass(frozen=True, slots=True)
class _Asked:
    """One call."""

    config: Objects
    ctx: ToolContext
    store: Any
    key: str
    uri: str
    roots: tuple[Path, ...]

    async def do_get(self) -> dict[str, Any]:
        return await got(self.store, self.key, self.uri, self.ctx, self.config.range)

    async def do_head(self) -> dict[str, Any]:
        with failing(self.uri):
            found = await self.store.get_async(self.key, options={"head": True})
        return told(self.uri, found.meta, found.attributes)

    async def do_put(self) -> dict[str, Any]:
        config = self.config
        part_bytes = int(config.multipart_mb) * _MIB
        given = [name for name in ("ref", "data", "path") if getattr(config, name) is not None]
        if len(given) != 1:
            message = "/data: `put` takes exactly one of `ref`, `data` and `path`"
            raise ToolError("config", "invalid_config", message)
        if config.path is not None:
            place = inside(config.path, self.roots)
            if not place.is_file():
                raise ToolError("not_found", "no_such_file", f"/path: {config.path} is no file")
            size, media_type = place.stat().st_size, config.content_type or UNKNOWN
            with place.open("rb") as file:
                body = await whole_or_stream(size, chunks_of(file), part_bytes)
                return await self._put(body, size, media_type, part_bytes)
        if config.ref is not None:
            stat = await about(config.ref, self.ctx)
            media_type = config.content_type or stat.media_type
            body = await whole_or_stream(stat.size, stream(config.ref, self.ctx), part_bytes)
            return await self._put(body, stat.size, media_type, part_bytes)
        raw, media_type = payload({"data": config.data, "content_type": config.content_type}, "")
        return await self._put(raw, len(raw), media_type, part_bytes)

    async def _put(
        self,
        body: bytes | AsyncIterable[Any],
        size: int,
        media_type: str,
        part_bytes: int,
    ) -> dict[str, Any]:
        attributes = {"Content-Type": media_type, **_texts(self.config.metadata)}
        is_new = bool(self.config.if_none_match)
        made = await put_stream(
            self.store, self.key, body, self.uri,
            attributes=attributes, part_bytes=part_bytes, is_new=is_new,
        )  # fmt: skip
        return {"uri": self.uri, "size": size, "etag": made, "content_type": media_type}

    async def do_list(self) -> dict[str, Any]:
        import obstore  # noqa: PLC0415 - an extra

        prefix, after = self.config.prefix or "", self.config.key_ or None
        folder = prefix.rpartition("/")[0] or None  # stores list whole folders
        items: list[dict[str, Any]] = []
        with failing(self.uri):
            async for page in obstore.list(self.store, folder, offset=after):
                items += [_item(one) for one in page if one["path"].startswith(prefix)]
                if len(items) > MOST_LISTED:
                    break
        items = sorted(items, key=lambda one: str(one["key"]))
        shown = items[:MOST_LISTED]
        following = shown[-1]["key"] if len(items) > MOST_LISTED else None
        bucket = self.uri.split("/")[2]
        return {"bucket": bucket, "prefix": prefix, "items": shown,
                "count": len(shown), "next": following}  # fmt: skip

    async def do_delete(self) -> dict[str, Any]:
        with failing(self.uri):
            try:
                await self.store.head_async(self.key)
            except FileNotFoundError as fault:
                if "NoSuchBucket" in str(fault):
                    raise
                return {"uri": self.uri, "deleted": False}
            await self.store.delete_async(self.key)
        return {"uri": self.uri, "deleted": True}

    async def do_copy(self) -> dict[str, Any]:
        bucket, key = _source(self.config.source, self.config.bucket)
        scheme = self.uri.partition(":")[0]
        from_uri = f"{scheme}://{bucket}/{key}"
        address_of(from_uri)
        if bucket == self.config.bucket:
            with failing(from_uri):
                await self.store.copy_async(key, self.key)
                found = await self.store.head_async(self.key)
            size, etag = found["size"], found["e_tag"]
        else:
            size, etag = await self._copied_across(from_uri)
        return {"uri": self.uri, "source": from_uri, "size": size, "etag": etag}

    async def _copied_across(self, from_uri: str) -> tuple[int, str | None]:
        """Copy between buckets: the bytes pass through this worker."""
        config = self.config
        where: dict[str, str | None] = {"endpoint": config.endpoint, "region": config.region}
        other, key = await store_for(from_uri, config.auth, self.ctx, **where)
        part_bytes = int(config.multipart_mb) * _MIB
        with failing(from_uri):
            found = await other.get_async(key)
            body = await whole_or_stream(
                found.meta["size"], found.stream(min_chunk_size=_MIB), part_bytes
            )
            etag = await put_stream(
                self.store, self.key, body, self.uri,
                attributes=dict(found.attributes), part_bytes=part_bytes,
            )  # fmt: skip
        return found.meta["size"], etag

    async def do_sign(self) -> dict[str, Any]:
        import obstore  # noqa: PLC0415 - an extra

        seconds = int(self.config.expires)
        with failing(self.uri):
            url = await obstore.sign_async(self.store, "GET", self.key, timedelta(seconds=seconds))
        if self.ctx.redactor.redact(url) != url:
            message = (
                "/auth: the link would show a secret of the credential, such as its session token, "
                "or a key id under another name than `access_key_id`"
            )
            raise ToolError("auth", "link_shows_secret", message)
        return {"uri": self.uri, "url": url, "expires": seconds}


def told(uri: str, meta: Mapping[str, Any], attributes: Mapping[str, Any]) -> dict[str, Any]:
    """What is known of an object."""
    own = {str(name): value for name, value in attributes.items()}
    return {
        "uri": uri,
        "size": meta["size"],
        "etag": meta["e_tag"],
        "last_modified": meta["last_modified"].isoformat().replace("+00:00", "Z"),
        "content_type": own.pop("Content-Type", None) or UNKNOWN,
        "metadata": own,
    }


def _item(meta: Mapping[str, Any]) -> dict[str, Any]:
    return {
        "key": meta["path"],
        "size": meta["size"],
        "etag": meta["e_tag"],
        "last_modified": meta["last_modified"].isoformat().replace("+00:00", "Z"),
    }


def _texts(metadata: Mapping[str, Any]) -> dict[str, str]:
    made = {}
    for name, value in metadata.items():
        text = str(value)
        if not (name.isascii() and text.isascii() and (name + text).isprintable()):
            message = f"/metadata: {name[:80]!r} has a sign that a header cannot hold"
            raise ToolError("config", "invalid_config", message)
        made[name] = text
    return made


def _source(given: Any, bucket: str) -> tuple[str, str]:  # noqa: ANN401 - a text or a map
    """Bucket and key of the object to copy."""
    if isinstance(given, Mapping) and given.get("key"):
        return str(given.get("bucket") or bucket), key_of(str(given["key"]), "/source")
    if isinstance(given, str) and "://" in given:
        _, other, key = address_of(given)
        return other, key_of(key, "/source")
    if isinstance(given, str) and given:
        return bucket, key_of(given, "/source")
    message = "/source: a key, an address, or a map of `bucket` and `key`"
    raise ToolError("config", "invalid_config", message)
