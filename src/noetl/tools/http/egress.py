"""Which addresses a request may reach: pure rules, and a resolver whose every answer is judged.

The address that was judged is the one that is connected to, so a name that changes its mind
between the check and the connection changes nothing.
"""

from __future__ import annotations

import asyncio
import re
import socket
import unicodedata
from collections.abc import Awaitable, Callable
from dataclasses import dataclass, field
from functools import cached_property
from ipaddress import (
    IPv4Address,
    IPv4Network,
    IPv6Address,
    IPv6Network,
    ip_address,
    ip_network,
)
from typing import Final, Literal
from urllib.parse import urlsplit

from noetl.tools.base import ToolError, remedied

Address = IPv4Address | IPv6Address
Network = IPv4Network | IPv6Network
Resolve = Callable[[str, int], Awaitable[list[str]]]

SCHEMES: Final = {"http": 80, "https": 443}


def _networks(*rows: tuple[str, str]) -> tuple[tuple[Network, str], ...]:
    return tuple((ip_network(text), reason) for text, reason in rows)


# The first row that holds an address names the reason.
_REFUSED: Final = _networks(
    ("0.0.0.0/8", "unspecified"),
    ("10.0.0.0/8", "private"),
    ("100.64.0.0/10", "shared"),
    ("127.0.0.0/8", "loopback"),
    ("169.254.0.0/16", "link_local"),
    ("172.16.0.0/12", "private"),
    ("192.0.0.0/24", "reserved"),
    ("192.0.2.0/24", "reserved"),
    ("192.88.99.0/24", "reserved"),
    ("192.168.0.0/16", "private"),
    ("198.18.0.0/15", "reserved"),
    ("198.51.100.0/24", "reserved"),
    ("203.0.113.0/24", "reserved"),
    ("224.0.0.0/4", "multicast"),
    ("240.0.0.0/4", "reserved"),
    ("::/128", "unspecified"),
    ("::1/128", "loopback"),
    ("::ffff:0:0/96", "mapped"),
    ("64:ff9b::/96", "nat64"),
    ("64:ff9b:1::/48", "nat64"),
    ("2001::/32", "tunnel"),
    ("2001::/23", "reserved"),
    ("2001:db8::/32", "reserved"),
    ("2002::/16", "tunnel"),
    ("3fff::/20", "reserved"),
    ("fc00::/7", "private"),
    ("fe80::/10", "link_local"),
    ("fec0::/10", "private"),
    ("ff00::/8", "multicast"),
)
_GLOBAL_V6: Final = IPv6Network("2000::/3")

# Where clouds tell a machine its secrets; no setting opens these.
_METADATA: Final = frozenset(
    ip_address(text)
    for text in (
        "169.254.169.254",
        "169.254.170.2",
        "169.254.170.23",
        "100.100.100.200",
        "168.63.129.16",
        "192.0.0.192",
        "fd00:ec2::254",
        "fd00:ec2::23",
        "fd20:ce::254",
    )
)
_METADATA_HOSTS: Final = frozenset(
    {"metadata", "metadata.google.internal", "metadata.goog", "instance-data",
     "instance-data.ec2.internal"}
)  # fmt: skip

_NEVER: Final = frozenset({"metadata", "scheme", "userinfo", "host", "port"})
"""Reasons that no setting opens."""

_NUMBER: Final = re.compile(r"(?:0[xX][0-9a-fA-F]*|[0-9]+)")
_DOTS: Final = str.maketrans("\u3002\uff61", "..")
_NOT_IN_HOSTS: Final = re.compile(r"[\x00-\x20\x7f%/\\?#@<>^|]")


def denied(reason: str, host: str) -> ToolError:
    """The error of a request that may not leave."""
    message = f"requests to {host[:200] or 'this address'} are refused ({reason})"
    if reason not in _NEVER:
        message += "; NOETL_HTTP_ALLOW of the workers may list it"
    details = {"reason": reason, "host": host[:200]}
    return ToolError("egress", "egress_denied", message, details=details)


def host_of(text: str) -> str:
    """The host in its one form: ASCII, lower case, no brackets, no last dot."""
    host = unicodedata.normalize("NFKC", text).translate(_DOTS).strip("[]").lower()
    host = host.removesuffix(".")
    if not host or host.endswith(".") or _NOT_IN_HOSTS.search(host):
        raise denied("host", text)
    if host.isascii():
        return host
    try:
        return host.encode("idna").decode("ascii")
    except UnicodeError:
        raise denied("host", text) from None


def literal(host: str) -> Address | None:
    """The address that a host spells, in any notation that some resolver understands."""
    if ":" in host:
        try:
            return ip_address(host)
        except ValueError:
            raise denied("host", host) from None
    labels = host.split(".")
    if not _NUMBER.fullmatch(labels[-1]):
        return None
    if not all(_NUMBER.fullmatch(label) for label in labels):
        raise denied("host", host)
    try:  # 127.1, 0x7f000001, 017700000001 and 2130706433 are all one address
        return IPv4Address(socket.inet_aton(host))
    except OSError:
        raise denied("host", host) from None


def inner(address: Address) -> IPv4Address | None:
    """The IPv4 address that an IPv6 address carries inside."""
    if isinstance(address, IPv4Address):
        return None
    raw = address.packed
    if address in IPv6Network("2002::/16"):
        return IPv4Address(raw[2:6])
    if address in IPv6Network("2001::/32"):
        return IPv4Address(bytes(byte ^ 0xFF for byte in raw[12:]))
    if address in IPv6Network("64:ff9b:1::/48"):
        return IPv4Address(raw[6:8] + raw[9:11])
    if raw[:12] in _PREFIXES or raw[8:12] in {b"\x00\x00\x5e\xfe", b"\x02\x00\x5e\xfe"}:
        return IPv4Address(raw[12:])
    return None


# Compatible, mapped, translated, NAT64: 96 bits and then an IPv4 address.
_PREFIXES: Final = frozenset(
    IPv6Address(text).packed[:12] for text in ("::", "::ffff:0:0", "::ffff:0:0:0", "64:ff9b::")
)


@dataclass(frozen=True, kw_only=True)
class Egress:
    """What may be reached: all but the refused ranges, or all but the metadata services."""

    mode: Literal["guarded", "open"] = "guarded"
    allow: tuple[str, ...] = ()
    """Hosts (`api.internal`, `*.corp.example`) and CIDRs that are reached although refused."""
    always: tuple[str, ...] = ()
    """Addresses of the server and the gateway."""

    @cached_property
    def _nets(self) -> tuple[Network, ...]:
        return tuple(net for text in self.allow if (net := _network(text)) is not None)

    @cached_property
    def _hosts(self) -> tuple[str, ...]:
        return tuple(text.lower().rstrip(".") for text in self.allow if _network(text) is None)

    @cached_property
    def _ours(self) -> frozenset[tuple[str, int]]:
        found = set()
        for text in self.always:
            parts = urlsplit(text)
            if parts.hostname:
                port = parts.port or SCHEMES.get(parts.scheme, 0)
                found.add((host_of(parts.hostname), port))
        return frozenset(found)

    def refuse_url(self, scheme: str, userinfo: bool, host: str) -> None:  # noqa: FBT001 - a fact, not a switch
        """Refuse what no policy opens: other schemes, user and password in the URL."""
        if scheme.lower() not in SCHEMES:
            raise denied("scheme", host)
        if userinfo:
            raise denied("userinfo", host)
        self.refuse_name(host_of(host))

    def refuse_name(self, host: str) -> None:
        """Refuse names of metadata services before anybody is asked about them."""
        if host in _METADATA_HOSTS:
            raise denied("metadata", host)

    def refusal(self, host: str, port: int, address: Address) -> str | None:
        """Why this address of this host may not be reached; None when it may."""
        carried = inner(address)
        plain = IPv6Address(address.packed) if isinstance(address, IPv6Address) else address
        if plain in _METADATA or carried in _METADATA:
            return "metadata"
        if self.mode == "open" or (host, port) in self._ours or self._is_named(host):
            return None
        if any(plain.version == net.version and plain in net for net in self._nets):
            return None
        for net, reason in _REFUSED:
            if net.version == plain.version and plain in net:
                return reason
        if carried is not None:
            return "mapped"
        is_odd = isinstance(plain, IPv6Address) and plain not in _GLOBAL_V6
        return "reserved" if is_odd else None

    def _is_named(self, host: str) -> bool:
        return any(
            host == name or (name.startswith("*.") and host.endswith(name[1:]))
            for name in self._hosts
        )


def _network(text: str) -> Network | None:
    try:
        return ip_network(text.strip("[]"), strict=False)
    except ValueError:
        return None


async def resolve(host: str, port: int) -> list[str]:
    """The addresses of a name, as the machine resolves it."""
    loop = asyncio.get_running_loop()
    try:
        found = await loop.getaddrinfo(host, port, type=socket.SOCK_STREAM)
    except (socket.gaierror, UnicodeError) as fault:
        raise remedied(ToolError("connection", "DNS_ERROR", f"{host}: {fault}")) from None
    return list(dict.fromkeys(str(row[4][0]) for row in found))


@dataclass(frozen=True, kw_only=True)
class Guard:
    """Answers a host with addresses that may be connected to, or refuses it."""

    egress: Egress = field(default_factory=Egress)
    resolve: Resolve = resolve

    async def addresses(self, name: str, port: int) -> list[str]:
        """Resolve once; one refused address refuses them all."""
        host = host_of(name)
        self.egress.refuse_name(host)
        spelled = literal(host)
        found = [str(spelled)] if spelled is not None else await self.resolve(host, port)
        if not found:
            raise remedied(ToolError("connection", "DNS_ERROR", f"{host}: no address"))
        addresses = [ip_address(text) for text in found]
        for address in addresses:
            reason = self.egress.refusal(host, port, address)
            if reason is not None:
                raise denied(reason, host)
        return [str(address) for address in addresses]
