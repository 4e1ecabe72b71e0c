"""Scripts that are fetched: from files, web servers and object stores, checked and kept.

A script that names its digest is kept for as long as there is room: its text cannot change.
"""

from __future__ import annotations

import asyncio
import hashlib
from collections import OrderedDict
from typing import TYPE_CHECKING, Any, Final
from urllib.parse import unquote, urlsplit

from noetl.secrets.fetch import Ask, Unreached
from noetl.tools.base import ToolError
from noetl.tools.http.auth import auth_headers
from noetl.tools.http.egress import Guard
from noetl.tools.http.fetching import Fetcher
from noetl.tools.objects.store import Stores, failing
from noetl.tools.roots import inside

if TYPE_CHECKING:
    from collections.abc import Mapping
    from pathlib import Path

    from noetl.dsl.tasks.shared import Script, ScriptSource
    from noetl.tools.base import ToolContext
    from noetl.tools.http.egress import Egress

MOST_BYTES: Final = 1 << 20
MOST_KEPT: Final = 64
TIMEOUT_S: Final = 30.0
_TYPES: Final[Mapping[str, str]] = {
    "file": "file", "http": "http", "https": "http", "s3": "s3", "gs": "gcs",
}  # fmt: skip
_SCHEMES: Final = {"s3": "s3", "gcs": "gs"}


class Scripts:
    """Fetches scripts for the tasks of this process."""

    def __init__(self, egress: Egress, roots: tuple[Path, ...], stores: Stores) -> None:
        self._fetch = Fetcher(Guard(egress=egress))
        self._roots = roots
        self._stores = stores
        self._kept: OrderedDict[str, str] = OrderedDict()

    async def load(self, script: Script, ctx: ToolContext) -> str:
        """The text of a script; its digest is what it says, if it says one."""
        if script.sha256 and script.sha256 in self._kept:
            self._kept.move_to_end(script.sha256)
            return self._kept[script.sha256]
        raw = await self._read(script, ctx)
        if len(raw) > MOST_BYTES:
            raise ToolError("limit", "script_too_large", f"/script: more than {MOST_BYTES} bytes")
        digest = hashlib.sha256(raw).hexdigest()
        if script.sha256 and digest != script.sha256:
            raise ToolError("config", "digest_mismatch", "/script/sha256: it is another script")
        try:
            text = raw.decode("utf-8")
        except UnicodeDecodeError:
            raise ToolError("parse", "invalid_text", "/script: it is not UTF-8") from None
        if script.sha256:
            self._kept[digest] = text
            if len(self._kept) > MOST_KEPT:
                self._kept.popitem(last=False)
        return text

    async def close(self) -> None:
        """Close the connections to web servers."""
        await self._fetch.close()

    async def _read(self, script: Script, ctx: ToolContext) -> bytes:
        uri, source = script.uri or "", script.source
        kind = source.type if source is not None else _TYPES.get(urlsplit(uri).scheme, "")
        if not kind and uri and "://" not in uri:
            kind = "file"
        if kind == "inline" and source is not None:
            return (source.code or "").encode()
        if not uri:
            raise ToolError("config", "invalid_config", "/script/uri: where does it lie?")
        if kind == "file":
            return await self._file(uri)
        if kind == "http":
            return await self._web(uri, source, ctx)
        if kind in _SCHEMES:
            return await self._object(uri, _SCHEMES[kind], source, ctx)
        known = ", ".join(sorted({*_TYPES}))
        message = f"/script/uri: {uri[:80]!r} has none of the schemes {known}"
        raise ToolError("config", "unsupported_scheme", message)

    async def _file(self, uri: str) -> bytes:
        path = unquote(urlsplit(uri).path) if uri.startswith("file://") else uri
        place = inside(path, self._roots)
        if not place.is_file():
            raise ToolError("not_found", "no_such_script", f"/script: {path} is no file")
        return await asyncio.to_thread(_beginning, place)

    async def _web(self, uri: str, source: ScriptSource | None, ctx: ToolContext) -> bytes:
        headers = {str(k): str(v) for k, v in (source.headers if source else {}).items()}
        if source is not None and source.auth is not None:
            headers |= await auth_headers(source.auth, ctx)
        if source is not None and source.endpoint and "://" not in uri:
            uri = f"{source.endpoint.rstrip('/')}/{uri.lstrip('/')}"
        ask = Ask(
            method=(source.method if source else None) or "GET",
            url=uri,
            headers=headers,
            timeout_s=_seconds(source),
        )
        try:
            answer = await self._fetch(ask)
        except Unreached as fault:
            if fault.is_refused:
                raise ToolError("egress", "egress_denied", fault.message) from None
            raise ToolError("connection", "CONN_REFUSED", f"/script: {fault.message}") from None
        if not answer.is_ok:
            raise _answered(uri, answer.status)
        return answer.body

    async def _object(
        self, uri: str, scheme: str, source: ScriptSource | None, ctx: ToolContext
    ) -> bytes:
        if "://" not in uri:
            bucket = source.bucket if source is not None else None
            if not bucket:
                message = "/script/source/bucket: an object lies in a bucket"
                raise ToolError("config", "invalid_config", message)
            uri = f"{scheme}://{bucket}/{uri}"
        own: dict[str, str | None] = {}
        if source is not None:
            own = {"endpoint": source.endpoint, "region": source.region}
        auth = source.auth if source is not None else None
        store, key = await self._stores.at(uri, auth, ctx, **own)
        with failing(uri):
            options: Any = {"range": (0, MOST_BYTES + 1)}
            found = await store.get_async(key, options=options)
            return bytes(await found.bytes_async())


def _beginning(place: Path) -> bytes:
    with place.open("rb") as file:
        return file.read(MOST_BYTES + 1)


def _seconds(source: ScriptSource | None) -> float:
    given = source.timeout if source is not None else None
    return TIMEOUT_S if given is None else min(float(given), TIMEOUT_S)


def _answered(uri: str, status: int) -> ToolError:
    kinds = {401: "auth", 403: "auth", 404: "not_found", 429: "rate_limit"}
    kind = kinds.get(status, "server_error" if status >= 500 else "client_error")  # noqa: PLR2004 - the class of answers
    host = urlsplit(uri).hostname
    message = f"/script: {host} answered {status}"
    return ToolError(kind, f"http_{status}", message, status_code=status)
