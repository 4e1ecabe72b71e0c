"""Where a call comes from: the other end of the connection, or whom a trusted proxy names."""

from __future__ import annotations

from ipaddress import ip_address, ip_network
from typing import TYPE_CHECKING, Final

if TYPE_CHECKING:
    from collections.abc import Sequence

    from starlette.requests import HTTPConnection

UNKNOWN: Final = "unknown"
_FORWARDED: Final = "x-forwarded-for"


class Peers:
    """Tells addresses of callers; only proxies that are trusted may name another one."""

    def __init__(self, trusted: Sequence[str] = ()) -> None:
        self._trusted = tuple(ip_network(text, strict=False) for text in trusted)

    def address(self, connection: HTTPConnection) -> str:
        """The address of whoever calls: the last one that is no trusted proxy."""
        client = connection.client
        found = client.host if client is not None else UNKNOWN
        if not self._trusted:
            return found
        named = ",".join(connection.headers.getlist(_FORWARDED)).split(",")
        for text in reversed(named):
            if not self._is_trusted(found) or not _is_address(text.strip()):
                break
            found = text.strip()
        return found

    def _is_trusted(self, text: str) -> bool:
        if not self._trusted or not _is_address(text):
            return False
        address = ip_address(text)
        return any(address.version == net.version and address in net for net in self._trusted)


def _is_address(text: str) -> bool:
    try:
        ip_address(text)
    except ValueError:
        return False
    return True
