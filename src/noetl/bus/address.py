"""Addresses of brokers: where they are, who we are there, and what of it may be shown."""

from __future__ import annotations

from dataclasses import dataclass, field
from importlib.util import find_spec
from typing import TYPE_CHECKING, ClassVar, Final
from urllib.parse import unquote, urlsplit

from noetl.errors import NoetlError

if TYPE_CHECKING:
    from urllib.parse import SplitResult

_SCHEMES: Final = frozenset({"nats", "tls", "ws", "wss"})


class BadAddress(NoetlError):
    """An address that names no broker."""

    code = "invalid_bus_url"
    status: ClassVar[int] = 422


@dataclass(frozen=True, slots=True, kw_only=True)
class Address:
    """Where the broker is and who we are there."""

    servers: tuple[str, ...]
    user: str = ""
    password: str = field(default="", repr=False)
    token: str = field(default="", repr=False)
    creds: str = ""

    @classmethod
    def of(cls, url: str, **given: str) -> Address:
        """Read `nats://[user:password@]host:port`, several separated by commas.

        What is given by name comes before what the URL says; a user without a password is a token.
        """
        servers: list[str] = []
        found: dict[str, str] = {}
        for each in (part.strip() for part in url.split(",")):
            parts = urlsplit(each if "://" in each else f"nats://{each}")
            who, _, where = parts.netloc.rpartition("@")
            if parts.scheme not in _SCHEMES or not parts.hostname or not _has_port(parts):
                raise BadAddress(
                    f"the address of the broker cannot be read: {parts.scheme}://{where}",
                    hint="Write nats://host:4222 or tls://host:4222, several with commas between.",
                )
            servers.append(f"{parts.scheme}://{where}")
            user, has_password, password = who.partition(":")
            if has_password:
                found |= {"user": unquote(user), "password": unquote(password)}
            elif user:
                found["token"] = unquote(user)
        if given.get("creds") and find_spec("nkeys") is None:
            raise BadAddress(
                "a credentials file for the broker needs the package nkeys",
                hint="Install `nats-py[nkeys]`, or give a user and a password.",
            )
        named = {key: value for key, value in given.items() if value}
        if {"user", "token", "creds"} & named.keys():
            found = {}
        return cls(servers=tuple(servers), **(found | named))

    @property
    def shown(self) -> str:
        """Without secrets."""
        return ", ".join(self.servers)


def _has_port(parts: SplitResult) -> bool:
    """Whether the port is a number, or left out."""
    try:
        return parts.port is None or parts.port > 0
    except ValueError:
        return False
