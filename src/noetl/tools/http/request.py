"""A task's keys as a request: address, headers, body, and what a redirect makes of them."""

from __future__ import annotations

import re
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, Any, Final
from urllib.parse import parse_qsl, urlencode

import httpx
import msgspec

from noetl import __version__
from noetl.api.gateway import CALLBACK_HEADER
from noetl.telemetry.traces.context import onward
from noetl.tools.base import ToolError
from noetl.tools.http.auth import proof_of
from noetl.tools.http.bodies import Streamed, body_of, invalid, pairs, text_of
from noetl.tools.http.encodings import ACCEPTED

if TYPE_CHECKING:
    from collections.abc import Mapping
    from pathlib import Path

    from noetl.dsl.tasks import Http
    from noetl.tools.base import ToolContext
    from noetl.tools.http.auth import Google
    from noetl.tools.http.tls import Tls

CONNECT_S: Final = 10.0
READ_S: Final = 60.0
MOST_PORT: Final = 65_535
_CONTROL: Final = re.compile(r"[\x00-\x08\x0a-\x1f\x7f]")
_HEADER: Final = re.compile(r"[!#$%&'*+.^_`|~0-9a-z-]+")
KEYED: Final = frozenset({"POST", "PATCH"})
_COMPUTED: Final = frozenset({"content-length", "transfer-encoding", "connection", "upgrade"})
_OF_BODY: Final = frozenset({"content-type", "content-encoding", "content-language"})
_OWN: Final = frozenset({"authorization", "cookie", "proxy-authorization", CALLBACK_HEADER})
_TO_GET: Final = frozenset({301, 302})
_SEE_OTHER: Final = 303


@dataclass(frozen=True, slots=True, kw_only=True)
class Request:
    """One request, ready to be sent."""

    method: str
    url: httpx.URL
    headers: Mapping[str, str]
    content: bytes | Streamed | None
    timeout: Mapping[str, float]
    verify: bool
    follows: bool
    secret_headers: frozenset[str]
    tls: Tls | None = None

    @property
    def raw_headers(self) -> list[tuple[bytes, bytes]]:
        """The headers as they go over the wire."""
        made = [(name.encode("ascii"), value.encode()) for name, value in self.headers.items()]
        if isinstance(self.content, Streamed):  # known ahead, so it need not be sent in chunks
            made.append((b"content-length", str(self.content.size).encode()))
        return made

    def at(self, url: httpx.URL) -> Request:
        """The same request to another address; what is secret stays with its origin."""
        if _origin(url) == _origin(self.url):
            return replace(self, url=url)
        dropped = _OWN | self.secret_headers | {"host"}
        kept = {name: value for name, value in self.headers.items() if name not in dropped}
        return replace(self, url=url, headers=kept, tls=None)

    def redirected(self, status: int, location: str) -> Request:
        """The request that an answer asks for instead."""
        moved = self.at(joined(self.url, location))
        becomes_get = (status == _SEE_OTHER and self.method != "HEAD") or (
            status in _TO_GET and self.method == "POST"
        )
        if not becomes_get:
            return moved
        kept = {name: text for name, text in moved.headers.items() if name not in _OF_BODY}
        kept.pop("idempotency-key", None)
        return replace(moved, method="GET", content=None, headers=kept)

    def with_params(self, more: Mapping[str, Any]) -> Request:
        """The request with these parameters in place of those of the same names."""
        kept = [pair for pair in parse_qsl(self.url.query.decode(), keep_blank_values=True)
                if pair[0] not in more]  # fmt: skip
        query = urlencode([*kept, *pairs(more)])
        return replace(self, url=self.url.copy_with(query=query.encode() or None))

    def with_json(self, body: object) -> Request:
        """The request with another JSON body."""
        headers = {"content-type": "application/json", **self.headers}
        return replace(self, content=msgspec.json.encode(body), headers=headers)

    def with_header(self, name: str, value: str) -> Request:
        """The request with one more header."""
        return replace(self, headers={**self.headers, name: value})


async def request_of(
    config: Http, ctx: ToolContext, google: Google, roots: tuple[Path, ...] = ()
) -> Request:
    """The first request of a task."""
    method = config.method.upper()
    url = parsed(config.url.strip())
    content, kind = await body_of(config, ctx, roots)
    given = _headers(config.headers)
    proof = await proof_of(config.auth, ctx, url, google)
    twice = sorted(proof.headers.keys() & given.keys())
    if twice:
        raise invalid("/headers", f"{', '.join(twice)} is set by `auth` as well")
    called = await _callback(ctx, url)
    headers = {
        "accept": "*/*",
        "accept-encoding": ACCEPTED,
        "user-agent": f"noetl/{__version__}",
        **({"content-type": kind} if kind else {}),
        **({"idempotency-key": ctx.idempotency_key} if method in KEYED else {}),
        **onward(ctx.trace),
        **called,
        **given,
        **proof.headers,
    }
    request = Request(
        method=method,
        url=url,
        headers=_checked(headers),
        content=content,
        timeout=_timeout(config.timeout),
        verify=config.verify not in {False, "false"},
        follows=config.follow_redirects not in {False, "false"},
        secret_headers=frozenset(proof.headers),
        tls=proof.tls,
    )
    return _queried(request, config.params)


async def _callback(ctx: ToolContext, url: httpx.URL) -> dict[str, str]:
    """What the gateway of the run's client is shown; nobody else is."""
    callback = ctx.callback
    if callback is None:
        return {}
    try:
        is_there = _origin(parsed(callback.url)) == _origin(url)
    except ToolError:
        return {}
    token = await callback.token() if is_there else None
    return {} if token is None else {CALLBACK_HEADER: token}


def parsed(text: str) -> httpx.URL:
    """The address as the one parser of it reads it."""
    if "\\" in text:  # some readers take it for a slash, others do not
        raise invalid("/url", "has a backslash")
    try:
        url = httpx.URL(text)
    except (httpx.InvalidURL, ValueError, UnicodeError) as fault:
        raise invalid("/url", str(fault)) from None
    if not url.scheme:
        raise invalid("/url", "has no scheme; write http:// or https://")
    if url.scheme in {"http", "https"} and not url.host:
        raise invalid("/url", "has no host")
    if url.port is not None and not 0 < url.port <= MOST_PORT:
        raise invalid("/url", f"{url.port} is no port")
    return url.copy_with(fragment=None)


def joined(base: httpx.URL, text: str) -> httpx.URL:
    """An address relative to another."""
    try:
        return parsed(str(base.join(text)))
    except (httpx.InvalidURL, ValueError, UnicodeError) as fault:
        raise ToolError("parse", "invalid_location", f"{text[:200]}: {fault}") from None


def _origin(url: httpx.URL) -> tuple[str, str, int]:
    return url.scheme, url.host, url.port or (443 if url.scheme == "https" else 80)


def _queried(request: Request, params: Any) -> Request:  # noqa: ANN401 - a map, pairs or text
    """Parameters come after those that the address has itself."""
    if params in (None, "", [], {}):
        return request
    more = params.lstrip("?") if isinstance(params, str) else urlencode(pairs(params))
    query = request.url.query.decode()
    both = "&".join(part for part in (query, more) if part)
    return replace(request, url=request.url.copy_with(query=both.encode() or None))


def _headers(given: Mapping[str, Any]) -> dict[str, str]:
    """The author's headers in lower case, without those that are null."""
    made = {str(name).lower(): text_of(value) for name, value in given.items() if value is not None}
    computed = sorted(_COMPUTED & made.keys())
    if computed:
        raise invalid(f"/headers/{computed[0]}", "is set by the transport")
    return made


def _checked(headers: Mapping[str, str]) -> dict[str, str]:
    for name, value in headers.items():
        if not _HEADER.fullmatch(name):
            raise invalid("/headers", f"{name[:80]!r} is no name of a header")
        if _CONTROL.search(value):
            raise invalid(f"/headers/{name}", "has a line break or another control character")
    return {name: value.strip(" \t") for name, value in headers.items()}


def _timeout(given: Any) -> dict[str, float]:  # noqa: ANN401 - a Timeout, a number or null
    connect = getattr(given, "connect", None)
    read = getattr(given, "read", None)
    connect_s = CONNECT_S if connect is None else float(connect)
    read_s = READ_S if read is None else float(read)
    if isinstance(given, (int, float)):  # who waits so long for all of it waits for its begin
        read_s = max(READ_S, float(given))
    return {"connect": connect_s, "read": read_s, "write": read_s, "pool": connect_s}
