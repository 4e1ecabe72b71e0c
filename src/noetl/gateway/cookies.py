"""Cookies of the gateway: the session in a browser, and what binds a sign-in to it."""

from __future__ import annotations

from dataclasses import dataclass
from ipaddress import ip_address
from typing import TYPE_CHECKING, Final
from urllib.parse import urlsplit

if TYPE_CHECKING:
    from starlette.requests import HTTPConnection

SESSION: Final = "noetl_session"
SIGN_IN: Final = "noetl_sign_in"
OLD: Final = "session_token"
"""Read for pages that set it themselves."""
_HOST: Final = "__Host-"
_PLAIN: Final = frozenset({"http", "ws"})


@dataclass(frozen=True, slots=True)
class Jar:
    """How cookies are named and marked on one connection."""

    is_secure: bool

    @classmethod
    def of(cls, connection: HTTPConnection, public_url: str = "") -> Jar:
        """Secure cookies everywhere but on plain connections within a machine."""
        is_https = public_url.lower().startswith("https://")
        is_plain = connection.scope.get("scheme") in _PLAIN and is_loopback(host_of(connection))
        return cls(is_https or not is_plain)

    def name(self, name: str) -> str:
        """What a cookie is called here."""
        return f"{_HOST}{name}" if self.is_secure else name

    def read(self, connection: HTTPConnection, name: str) -> str:
        """The text of a cookie; empty without one."""
        return connection.cookies.get(self.name(name), "")

    def session(self, connection: HTTPConnection) -> str:
        """The session of a browser."""
        return self.read(connection, SESSION) or connection.cookies.get(OLD, "")

    def kept(self, name: str, text: str, for_s: int) -> str:
        """The header that sets a cookie: no script reads it, no other site sends it along."""
        secure = "; Secure" if self.is_secure else ""
        return f"{self.name(name)}={text}; Path=/; Max-Age={for_s}; HttpOnly; SameSite=Lax{secure}"

    def dropped(self, name: str) -> str:
        """The header that removes a cookie."""
        return self.kept(name, "", 0)


def host_of(connection: HTTPConnection) -> str:
    """The name by which we were asked; empty when it is none."""
    try:
        return urlsplit(f"//{connection.headers.get('host', '')}").hostname or ""
    except ValueError:
        return ""


def is_loopback(host: str) -> bool:
    """Whether a host is this machine."""
    if host == "localhost" or host.endswith(".localhost"):
        return True
    try:
        return ip_address(host).is_loopback
    except ValueError:
        return False
