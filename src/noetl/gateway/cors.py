"""Pages of other origins: which of them may read answers, and what pages of ours may load."""

from __future__ import annotations

from typing import TYPE_CHECKING, Final
from urllib.parse import urlsplit

from noetl.gateway.errors import OriginRefused

if TYPE_CHECKING:
    from collections.abc import Iterable, Sequence

    from starlette.requests import HTTPConnection

    Headers = Iterable[tuple[bytes, bytes]]

METHODS: Final = "GET, POST, PUT, PATCH, DELETE, OPTIONS"
ALLOWED: Final = (
    "Content-Type", "Authorization", "X-Session-Token", "X-Session-Id", "X-User-Id",
    "X-Request-Id", "X-Execution-ID", "Idempotency-Key", "Last-Event-ID", "traceparent",
    "tracestate",
)  # fmt: skip
MCP_PREFIX: Final = "mcp-"
EXPOSED: Final = "X-Request-Id, Retry-After, ETag, Content-Disposition"
MAX_AGE_S: Final = 600
POLICY: Final = (
    "default-src 'self'; script-src 'self'; style-src 'self'; img-src 'self' data: blob:; "
    "connect-src 'self'; worker-src 'self' blob:; object-src 'none'; base-uri 'none'; "
    "form-action 'self'; frame-ancestors 'none'"
)
HSTS: Final = "max-age=31536000; includeSubDomains"
_PORTS: Final = {"http": 80, "https": 443}
_SCHEMES: Final = {"ws": "http", "wss": "https"}


class Cors:
    """The origins that may, and the headers that say so."""

    def __init__(
        self, origins: Sequence[str], *, with_credentials: bool, own: Sequence[str] = ()
    ) -> None:
        self._any = "*" in origins
        self._known = frozenset(filter(None, map(plain_origin, origins)))
        self._own = frozenset(filter(None, map(plain_origin, own)))
        self._with_credentials = with_credentials

    def is_listed(self, origin: str) -> bool:
        """Whether a page of another origin may read answers."""
        return self._any or plain_origin(origin) in self._known

    def is_own(self, origin: str, host: str, scheme: str) -> bool:
        """Whether a page is the gateway's own: by its public address, or by where it was asked."""
        found = plain_origin(origin)
        if not found:
            return False
        return found in self._own or found == plain_origin(f"{scheme}://{host}")

    def is_trusted(self, origin: str, host: str, scheme: str) -> bool:
        """Whether a page may act for whoever looks at it; `*` trusts none."""
        return plain_origin(origin) in self._known or self.is_own(origin, host, scheme)

    def trusts(self, connection: HTTPConnection, origin: str) -> bool:
        """Whether the page that asks is trusted, at the address where it asks."""
        scheme: str = connection.scope.get("scheme", "http")
        host = connection.headers.get("host", "")
        return self.is_trusted(origin, host, _SCHEMES.get(scheme, scheme))

    def must_trust(self, connection: HTTPConnection) -> None:
        """Refuse a page that is not trusted; whoever says not where he comes from is no page."""
        origin = connection.headers.get("origin")
        if origin is not None and not self.trusts(connection, origin):
            raise OriginRefused("the origin is not one that may connect")

    def headers(self, origin: str | None) -> list[tuple[bytes, bytes]]:
        """What an answer says about who may read it."""
        vary = (b"vary", b"Origin")
        if origin is None or not self.is_listed(origin):
            return [] if self._any or not self._known else [vary]
        value = "*" if self._any else origin
        made = [
            (b"access-control-allow-origin", value.encode("latin-1")),
            (b"access-control-expose-headers", EXPOSED.encode()),
            vary,
        ]
        if self._with_credentials and not self._any:
            made.append((b"access-control-allow-credentials", b"true"))
        return made

    def preflight(self, origin: str, asked: str) -> list[tuple[bytes, bytes]]:
        """What a browser is told that asks before it sends; nothing for a stranger."""
        made = self.headers(origin)
        if not self.is_listed(origin):
            return made
        wanted = [name.strip() for name in asked.split(",") if name.strip()]
        more = [name for name in wanted if name.lower().startswith(MCP_PREFIX)]
        names = ", ".join((*ALLOWED, *filter(str.isascii, more)))
        return [
            *made,
            (b"access-control-allow-methods", METHODS.encode()),
            (b"access-control-allow-headers", names.encode("latin-1", "ignore")),
            (b"access-control-max-age", str(MAX_AGE_S).encode()),
        ]


def page_headers(*, is_https: bool) -> dict[str, str]:
    """What every page carries: nothing from elsewhere, no script in the page, in no frame."""
    made = {
        "Content-Security-Policy": POLICY,
        "Referrer-Policy": "no-referrer",
        "X-Content-Type-Options": "nosniff",
        "X-Frame-Options": "DENY",
    }
    return {**made, "Strict-Transport-Security": HSTS} if is_https else made


def plain_origin(text: str) -> str:
    """An origin in its one form; empty when it is none."""
    try:
        parts = urlsplit(text.strip())
        port = parts.port
    except ValueError:
        return ""
    if parts.scheme not in _PORTS or not parts.hostname or parts.path.strip("/"):
        return ""
    if parts.query or parts.fragment or "@" in parts.netloc:
        return ""
    host = f"[{parts.hostname}]" if ":" in parts.hostname else parts.hostname
    is_usual = port is None or port == _PORTS[parts.scheme]
    return f"{parts.scheme}://{host}" if is_usual else f"{parts.scheme}://{host}:{port}"
