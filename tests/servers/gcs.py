"""A fake of Google Cloud Storage: as much of its XML API as the library of object stores speaks."""

from __future__ import annotations

import threading
from contextlib import contextmanager
from dataclasses import dataclass, field
from hashlib import md5
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from typing import TYPE_CHECKING
from urllib.parse import parse_qs, unquote, urlsplit
from xml.etree import ElementTree as ET
from xml.sax.saxutils import escape

import pytest

from noetl.ids import random_key

if TYPE_CHECKING:
    from collections.abc import Iterator

MOMENT = "Mon, 16 Nov 2026 00:00:00 GMT"
STAMP = "2026-11-16T00:00:00.000Z"
META = "x-goog-meta-"


@dataclass
class Kept:
    """One object."""

    data: bytes
    media_type: str
    meta: dict[str, str] = field(default_factory=dict)
    number: int = 1

    @property
    def tag(self) -> str:
        return f'"{md5(self.data).hexdigest()}"'  # noqa: S324 - a tag


@dataclass
class Buckets:
    """What a fake holds."""

    objects: dict[str, dict[str, Kept]] = field(default_factory=dict)
    uploads: dict[str, dict[int, bytes]] = field(default_factory=dict)
    heads: dict[str, tuple[str, dict[str, str]]] = field(default_factory=dict)
    lock: threading.Lock = field(default_factory=threading.Lock)


class Handler(BaseHTTPRequestHandler):
    """One request."""

    protocol_version = "HTTP/1.1"
    buckets: Buckets

    def log_message(self, *_: object) -> None:
        """Say nothing."""

    def _asked(self) -> tuple[str, str, dict[str, str], bytes]:
        parts = urlsplit(self.path)
        bucket, _, key = parts.path.lstrip("/").partition("/")
        query = {k: v[0] for k, v in parse_qs(parts.query, keep_blank_values=True).items()}
        body = self.rfile.read(int(self.headers.get("content-length") or 0))
        return unquote(bucket), unquote(key), query, body

    def _answer(self, status: int, body: bytes = b"", **headers: str) -> None:
        self.send_response(status)
        for name, value in headers.items():
            self.send_header(name.replace("_", "-"), value)
        if self.command != "HEAD":
            self.send_header("content-length", str(len(body)))
        self.end_headers()
        if self.command != "HEAD":
            self.wfile.write(body)

    def _missing(self, code: str) -> None:
        self._answer(404, f"<Error><Code>{code}</Code></Error>".encode())

    def _told(self, kept: Kept) -> dict[str, str]:
        return {"etag": kept.tag, "last-modified": MOMENT, "x-goog-generation": str(kept.number)}

    def _about(self) -> tuple[str, dict[str, str]]:
        meta = {k.lower(): v for k, v in self.headers.items() if k.lower().startswith(META)}
        return self.headers.get("content-type") or "application/octet-stream", meta

    def do_PUT(self) -> None:
        bucket, key, query, body = self._asked()
        with self.buckets.lock:
            if not key:
                self.buckets.objects[bucket] = {}
                return self._answer(200)
            found = self.buckets.objects.get(bucket)
            if found is None:
                return self._missing("NoSuchBucket")
            if "uploadId" in query:
                self.buckets.uploads[query["uploadId"]][int(query["partNumber"])] = body
                return self._answer(200, etag=f'"{md5(body).hexdigest()}"')  # noqa: S324 - a tag
            if self.headers.get("x-goog-if-generation-match") == "0" and key in found:
                return self._answer(412)
            source = self.headers.get("x-goog-copy-source")
            if source is not None:
                of, _, name = unquote(source).partition("/")
                if name not in self.buckets.objects.get(of, {}):
                    return self._missing("NoSuchKey")
                found[key] = self.buckets.objects[of][name]
            else:
                found[key] = Kept(body, *self._about())
            return self._answer(200, **self._told(found[key]))

    def do_POST(self) -> None:
        bucket, key, query, body = self._asked()
        with self.buckets.lock:
            if bucket not in self.buckets.objects:
                return self._missing("NoSuchBucket")
            if "uploads" in query:
                name = random_key()
                self.buckets.uploads[name], self.buckets.heads[name] = {}, self._about()
                return self._answer(200, _xml("InitiateMultipartUploadResult", UploadId=name))
            name = query["uploadId"]
            parts = self.buckets.uploads.pop(name)
            numbers = [int(one.text or 0) for one in ET.fromstring(body).iter()  # noqa: S314 - from our own client
                       if one.tag.endswith("PartNumber")]  # fmt: skip
            data = b"".join(parts[number] for number in numbers)
            kept = Kept(data, *self.buckets.heads.pop(name))
            self.buckets.objects[bucket][key] = kept
            made = _xml("CompleteMultipartUploadResult", ETag=kept.tag)
            return self._answer(200, made, **self._told(kept))

    def do_DELETE(self) -> None:
        bucket, key, query, _ = self._asked()
        with self.buckets.lock:
            if "uploadId" in query:
                self.buckets.uploads.pop(query["uploadId"], None)
                return self._answer(204)
            if self.buckets.objects.get(bucket, {}).pop(key, None) is None:
                return self._missing("NoSuchKey")
            return self._answer(204)

    def do_HEAD(self) -> None:
        self.do_GET()

    def do_GET(self) -> None:
        bucket, key, query, _ = self._asked()
        with self.buckets.lock:
            found = self.buckets.objects.get(bucket)
            if found is None:
                return self._missing("NoSuchBucket")
            if not key:
                return self._list(found, query)
            kept = found.get(key)
        if kept is None:
            return self._missing("NoSuchKey")
        size = len(kept.data)
        told = {**self._told(kept), **kept.meta, "content-type": kept.media_type}
        asked = self.headers.get("range")
        if asked is None:
            if self.command == "HEAD":
                told["content-length"] = str(size)
            return self._answer(200, kept.data, **told)
        first, _, last = asked.removeprefix("bytes=").partition("-")
        start = int(first) if first else max(0, size - int(last))
        end = min(int(last), size - 1) if first and last else size - 1
        told["content-range"] = f"bytes {start}-{end}/{size}"
        return self._answer(206, kept.data[start : end + 1], **told)

    def _list(self, found: dict[str, Kept], query: dict[str, str]) -> None:
        after = max(query.get("start-after", ""), query.get("continuation-token", ""))
        prefix = query.get("prefix", "")
        keys = sorted(key for key in found if key.startswith(prefix) and key > after)
        most = int(query.get("max-keys", 1000))
        rows = "".join(
            f"<Contents><Key>{escape(key)}</Key><Size>{len(found[key].data)}</Size>"
            f"<LastModified>{STAMP}</LastModified><ETag>{escape(found[key].tag)}</ETag></Contents>"
            for key in keys[:most]
        )
        token = keys[most - 1] if len(keys) > most else ""
        more = f"<NextContinuationToken>{escape(token)}</NextContinuationToken>" if token else ""
        self._answer(200, f"<ListBucketResult>{rows}{more}</ListBucketResult>".encode())


def _xml(name: str, **fields: str) -> bytes:
    inner = "".join(f"<{key}>{escape(value)}</{key}>" for key, value in fields.items())
    return f"<{name}>{inner}</{name}>".encode()


class GcsServer:
    """One server; each test takes a bucket of its own."""

    def __init__(self, url: str, buckets: Buckets) -> None:
        self.url = url
        self._buckets = buckets

    @property
    def fields(self) -> dict[str, object]:
        """What a credential for it holds."""
        account = {"gcs_base_url": self.url, "disable_oauth": True, "client_email": "",
                   "private_key": "", "private_key_id": ""}  # fmt: skip
        return {"service_account": account}

    def bucket(self) -> str:
        """A new bucket."""
        name = f"g-{random_key()[:20].lower()}"
        with self._buckets.lock:
            self._buckets.objects[name] = {}
        return name


@contextmanager
def serving() -> Iterator[GcsServer]:
    """A server for as long as the block runs."""
    buckets = Buckets()
    handler = type("OneHandler", (Handler,), {"buckets": buckets})
    server = ThreadingHTTPServer(("127.0.0.1", 0), handler)
    server.daemon_threads = True
    thread = threading.Thread(target=server.serve_forever)
    thread.start()
    try:
        yield GcsServer(f"http://127.0.0.1:{server.server_port}", buckets)
    finally:
        server.shutdown()
        thread.join()
        server.server_close()


@pytest.fixture(scope="session")
def gcs_server() -> Iterator[GcsServer]:
    """A server for all tests of a process."""
    with serving() as made:
        yield made
