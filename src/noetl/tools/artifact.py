"""Stored objects as tasks: results by reference, and files under the data roots."""

from __future__ import annotations

import asyncio
import base64
import binascii
import hashlib
import mimetypes
import os
import tempfile
from collections.abc import Mapping
from pathlib import Path
from typing import TYPE_CHECKING, Any, ClassVar, Final
from urllib.parse import unquote, urlsplit

import msgspec

from noetl.blobs.refs import execution_of
from noetl.dsl.paths import NoSuchPath, found_at
from noetl.dsl.tasks import Artifact, ResultFetch
from noetl.dsl.views import Outcome
from noetl.tools.base import ToolError, Traits
from noetl.tools.roots import inside, place_for
from noetl.tools.stored import UNKNOWN, blobs_of, key_for, put_bytes, read_bytes

if TYPE_CHECKING:
    from noetl.dsl.tasks.task import Task
    from noetl.tools.base import ToolContext

MOST_BYTES: Final = 64 << 20
MOST_LISTED: Final = 10_000
_REFS: Final = "noetl"
_FILES: Final = "file"
_OTHERS: Final = ("s3", "gs", "nats-kv", "nats-obj")
_JSON: Final = "application/json"


class ArtifactTool:
    """The kind `artifact`."""

    kind: ClassVar[str] = "artifact"
    Config: ClassVar[type[Task]] = Artifact
    traits: ClassVar[Traits] = Traits()

    def __init__(self, roots: tuple[Path, ...]) -> None:
        self._roots = roots

    async def run(self, config: Artifact, ctx: ToolContext) -> Outcome:
        """Do what `action` says with the object that the input names."""
        uri = _uri_of(ctx.input)
        scheme = urlsplit(uri).scheme if uri else _REFS
        if scheme not in {_REFS, _FILES}:
            known = "is not connected here" if scheme in _OTHERS else "is no scheme of an artifact"
            raise ToolError("config", "unsupported_scheme", f"/input/uri: {scheme} {known}")
        store = _Files(self._roots) if scheme == _FILES else _Stored(ctx)
        data = await getattr(store, f"do_{config.action}")(uri, ctx.input)
        return Outcome(data={"action": config.action, **data})

    async def cancel(self, ctx: ToolContext) -> None:
        """Nothing outlives the task."""


class ResultFetchTool:
    """The kind `result_fetch`."""

    kind: ClassVar[str] = "result_fetch"
    Config: ClassVar[type[Task]] = ResultFetch
    traits: ClassVar[Traits] = Traits(side_effects=False)

    async def run(self, config: ResultFetch, ctx: ToolContext) -> Outcome:
        """The value behind the reference, a part of it, or some of its rows."""
        raw = await read_bytes(config.ref, ctx)
        try:
            value = msgspec.json.decode(raw)
        except (msgspec.DecodeError, UnicodeDecodeError) as fault:
            message = f"{config.ref} is no JSON: {fault}"
            raise ToolError("parse", "invalid_json", message) from None
        try:
            value = found_at(value, config.path or "")
        except NoSuchPath as fault:
            raise ToolError("not_found", "no_such_path", f"/path: {fault}") from None
        return Outcome(data=value if config.rows is None else _some_rows(value, config.rows))

    async def cancel(self, ctx: ToolContext) -> None:
        """Nothing outlives the task."""


def _some_rows(value: Any, wanted: Mapping[str, Any]) -> dict[str, Any]:  # noqa: ANN401 - any JSON
    """Rows from an offset on; `row_count` is how many there are in all."""
    offset, limit = wanted.get("offset") or 0, wanted.get("limit")
    if wanted.keys() - {"offset", "limit"} or not _is_count(offset) or not _is_count(limit or 0):
        message = "/rows: takes `offset` and `limit`, whole numbers from 0"
        raise ToolError("config", "invalid_config", message)
    rows = value.get("rows") if isinstance(value, Mapping) else value
    if not isinstance(rows, list):
        raise ToolError("schema", "no_rows", "/rows: the value has no rows")
    columns = value.get("columns") if isinstance(value, Mapping) else None
    if columns is None:
        columns = list(rows[0]) if rows and isinstance(rows[0], Mapping) else []
    end = None if limit is None else offset + limit
    return {"rows": rows[offset:end], "columns": columns, "row_count": len(rows)}


def _is_count(value: object) -> bool:
    return isinstance(value, int) and not isinstance(value, bool) and value >= 0


# ---------------------------------------------------------------------------- what is given


def _uri_of(given: Mapping[str, Any]) -> str:
    """The name of the object: a text, or a map that has one, such as a result's own."""
    for name in ("uri", "result_ref", "ref"):
        found = given.get(name)
        if isinstance(found, Mapping):
            found = found.get("ref") or found.get("_ref") or found.get("uri")
        if found:
            return str(found)
    return ""


def _payload(given: Mapping[str, Any]) -> tuple[bytes, str]:
    """The bytes to put and their type."""
    media = given.get("content_type")
    if given.get("data_b64") is not None:
        try:
            raw = base64.b64decode(str(given["data_b64"]), validate=True)
        except binascii.Error as fault:
            raise ToolError("config", "invalid_config", f"/input/data_b64: {fault}") from None
        return raw, str(media or UNKNOWN)
    if "data" not in given:
        raise ToolError("config", "invalid_config", "/input/data: there is nothing to put")
    data = given["data"]
    if isinstance(data, str):
        return data.encode(), str(media or "text/plain; charset=utf-8")
    return msgspec.json.encode(data), str(media or _JSON)


def _shown(raw: bytes, media_type: str) -> Any:  # noqa: ANN401 - any artifact
    """The bytes as data: JSON, text, or base64."""
    kind = media_type.partition(";")[0].strip().lower()
    if kind.endswith(("/json", "+json")):
        try:
            return msgspec.json.decode(raw)
        except msgspec.DecodeError as fault:
            raise ToolError("parse", "invalid_json", f"the artifact is no JSON: {fault}") from None
    try:
        return raw.decode("utf-8")
    except UnicodeDecodeError:
        return base64.b64encode(raw).decode("ascii")


def _about(uri: str, raw: bytes, media_type: str) -> dict[str, Any]:
    digest = hashlib.sha256(raw).hexdigest()
    return {"uri": uri, "size_bytes": len(raw), "sha256": digest, "content_type": media_type}


def _too_large(size: int) -> ToolError:
    return ToolError("limit", "output_limit", f"{size} bytes; {MOST_BYTES} is the most")


def _missing(uri: str) -> ToolError:
    return ToolError("not_found", "no_such_artifact", f"{uri} does not exist")


# ---------------------------------------------------------------------------- by reference


class _Stored:
    """Objects of runs; those of others can be read, not changed."""

    def __init__(self, ctx: ToolContext) -> None:
        self._ctx = ctx
        self._blobs = blobs_of(ctx)

    async def do_head(self, uri: str, given: Mapping[str, Any]) -> dict[str, Any]:
        del given
        stat = await self._blobs.head(key_for(uri))
        if stat is None:
            raise _missing(uri)
        return {
            "uri": uri,
            "size_bytes": stat.size,
            "sha256": stat.sha256,
            "content_type": stat.media_type,
        }

    async def do_get(self, uri: str, given: Mapping[str, Any]) -> dict[str, Any]:
        about = await self.do_head(uri, given)
        if about["size_bytes"] > MOST_BYTES:
            raise _too_large(about["size_bytes"])
        raw = await read_bytes(uri, self._ctx)
        return {**about, "data": _shown(raw, about["content_type"])}

    async def do_put(self, uri: str, given: Mapping[str, Any]) -> dict[str, Any]:
        raw, media_type = _payload(given)
        if not uri:  # named by its content: a repeated put is the same object
            stored = await put_bytes(raw, media_type, self._ctx)
            return _about(stored["ref"], raw, stored["content_type"])
        await self._blobs.put(self._own(uri), raw, media_type=media_type)
        return _about(uri, raw, media_type)

    async def do_delete(self, uri: str, given: Mapping[str, Any]) -> dict[str, Any]:
        del given
        key = self._own(uri)
        was_there = await self._blobs.head(key) is not None
        await self._blobs.delete(key)
        return {"uri": uri, "deleted": was_there}

    async def do_list(self, uri: str, given: Mapping[str, Any]) -> dict[str, Any]:
        del given
        own = f"execution/{self._ctx.execution_id}/"
        prefix = uri.removeprefix(f"{_REFS}://") or own
        if not prefix.startswith(own):
            raise self._foreign(uri)
        found = [f"{_REFS}://{key}" for key in await self._blobs.listed(prefix)]
        return {"uri": uri, "items": [{"uri": name} for name in found[:MOST_LISTED]],
                "count": len(found), "truncated": len(found) > MOST_LISTED}  # fmt: skip

    def _own(self, uri: str) -> str:
        key = key_for(uri)
        if execution_of(uri) != self._ctx.execution_id:
            raise self._foreign(uri)
        return key

    def _foreign(self, uri: str) -> ToolError:
        return ToolError("storage_access", "foreign_artifact", f"{uri} belongs to another run")


# ---------------------------------------------------------------------------- files


class _Files:
    """Files under the data roots."""

    def __init__(self, roots: tuple[Path, ...]) -> None:
        self._roots = roots

    def _place(self, uri: str) -> Path:
        return inside(_path_of(uri), self._roots)

    async def do_head(self, uri: str, given: Mapping[str, Any]) -> dict[str, Any]:
        del given
        return _about(uri, await self._read(uri), _media_of(uri))

    async def do_get(self, uri: str, given: Mapping[str, Any]) -> dict[str, Any]:
        del given
        raw, media_type = await self._read(uri), _media_of(uri)
        return {**_about(uri, raw, media_type), "data": _shown(raw, media_type)}

    async def do_put(self, uri: str, given: Mapping[str, Any]) -> dict[str, Any]:
        raw, media_type = _payload(given)
        place = place_for(_path_of(uri), self._roots)
        await asyncio.to_thread(_written, place, raw)
        return _about(uri, raw, media_type)

    async def do_delete(self, uri: str, given: Mapping[str, Any]) -> dict[str, Any]:
        del given
        place = self._place(uri)
        was_there = place.is_file()
        place.unlink(missing_ok=True)
        return {"uri": uri, "deleted": was_there}

    async def do_list(self, uri: str, given: Mapping[str, Any]) -> dict[str, Any]:
        del given
        folder = self._place(uri)
        if not folder.is_dir():
            raise _missing(uri)
        found = await asyncio.to_thread(_files_in, folder)
        items = [{"uri": path.as_uri(), "size_bytes": path.stat().st_size}
                 for path in found[:MOST_LISTED]]  # fmt: skip
        return {"uri": uri, "items": items, "count": len(found),
                "truncated": len(found) > MOST_LISTED}  # fmt: skip

    async def _read(self, uri: str) -> bytes:
        place = self._place(uri)
        if not place.is_file():
            raise _missing(uri)
        if place.stat().st_size > MOST_BYTES:
            raise _too_large(place.stat().st_size)
        return await asyncio.to_thread(place.read_bytes)


def _path_of(uri: str) -> str:
    parts = urlsplit(uri)
    return unquote(f"{parts.netloc}{parts.path}")


def _media_of(uri: str) -> str:
    return mimetypes.guess_type(_path_of(uri))[0] or UNKNOWN


def _written(place: Path, raw: bytes) -> None:
    """Write a file whole: a reader sees the old one or the new one."""
    handle, name = tempfile.mkstemp(dir=place.parent, prefix=".noetl-")
    try:
        with os.fdopen(handle, "wb") as file:
            file.write(raw)
        Path(name).replace(place)
    except BaseException:
        Path(name).unlink(missing_ok=True)
        raise


def _files_in(folder: Path) -> list[Path]:
    return sorted(path for path in folder.rglob("*") if path.is_file() and not path.is_symlink())
