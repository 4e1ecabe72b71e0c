"""One connection to a NATS server, from its first byte to its end; it never comes back.

Whoever holds one that ended makes a new one, so that nothing of an old connection is trusted on a
new one.
"""

from __future__ import annotations

import asyncio
import ssl
from collections import deque
from typing import TYPE_CHECKING, Final, Protocol
from urllib.parse import urlsplit

from nats.aio.client import Client
from nats.errors import Error, StaleConnectionError

from noetl.sources.base import SourceError

if TYPE_CHECKING:
    from collections.abc import Iterator

    from noetl.sources.places import Addresses

PORT: Final = 4222
CONNECT_S: Final = 5
GRACE_S: Final = 2.0
"""How long after the end of its request a broker may still be silent."""
SCHEMES: Final = frozenset({"nats", "tls"})
MOST_REFUSALS: Final = 64
"""So many of the subjects that a broker has refused last are remembered."""
_REFUSED: Final = "permissions violation"  # the library gives these words in lower case
_ANSWERS: Final = "_inbox."


class Place(Protocol):
    """Where a broker is, and who we are there."""

    @property
    def servers(self) -> tuple[str, ...]:
        """Addresses without secrets."""

    @property
    def user(self) -> str:
        """Name, if there is one."""

    @property
    def password(self) -> str:
        """Password, if there is one."""

    @property
    def token(self) -> str:
        """Token, if there is one."""


class Headers(dict[str, str]):
    """Headers as the library gives them, and each of those that come more than once."""

    pairs: list[tuple[str, str]]


class _Client(Client):
    """A client that keeps every header, and whose end is always told."""

    fault: Exception | None = None
    refused: int = 0
    """How often the broker has refused a subject."""

    def __init__(self) -> None:
        super().__init__()
        self.refusals: deque[tuple[int, str]] = deque(maxlen=MOST_REFUSALS)

    def hear(self, fault: Exception) -> None:
        """Keep what the broker said last, and which subjects it has refused."""
        self.fault = fault
        if _REFUSED in (said := str(fault).lower()):
            self.refused += 1
            self.refusals.append((self.refused, said))

    @property
    def wants_login(self) -> bool:
        """Whether the broker has said that it asks for a login."""
        return bool(self._server_info.get("auth_required"))

    async def _process_headers(self, headers: bytes | None) -> dict[str, str] | None:
        found: dict[str, str] | None = await super()._process_headers(headers)
        if found is None or headers is None:
            return found
        made = Headers(found)
        made.pairs = list(_pairs(headers)) or list(found.items())
        return made

    async def _close(self, status: int, do_cbs: bool = True) -> None:  # noqa: FBT001, FBT002 - as the library has it
        try:
            await super()._close(status, do_cbs)
        except OSError:  # nothing is left to be sent now: the second time it comes to its end
            self._status = Client.DISCONNECTED
            await super()._close(status, do_cbs)


def _pairs(raw: bytes) -> Iterator[tuple[str, str]]:
    """Every header of a block, in its order."""
    for line in raw.split(b"\r\n")[1:]:
        name, sep, value = line.partition(b":")
        if sep:
            yield name.strip().decode("ascii", "replace"), value.strip().decode("utf-8", "replace")


async def connect(place: Place, addresses: Addresses) -> Client:
    """Connect to the first server that answers; `addresses` says what a host may be reached at."""
    fault: SourceError | None = None
    for server in place.servers:
        parts = urlsplit(server)
        if parts.scheme not in SCHEMES:
            message = f"{server}: an address of NATS begins with nats:// or tls://"
            raise SourceError("config", "invalid_config", message)
        host, port = parts.hostname or "", parts.port or PORT
        for address in await addresses(host, port):
            shown = f"[{address}]" if ":" in address else address
            try:
                return await _connected(f"{parts.scheme}://{shown}:{port}", host, place)
            except SourceError as refusal:
                fault = refusal
    raise fault or SourceError("config", "invalid_config", "no server of NATS is named")


async def _connected(url: str, host: str, place: Place) -> Client:
    client = _Client()

    async def failed(fault: Exception) -> None:
        client.hear(fault)

    try:
        async with asyncio.timeout(CONNECT_S):
            await client.connect(
                url,
                user=place.user or None,
                password=place.password or None,
                token=place.token or None,
                tls_hostname=host if url.startswith("tls://") else None,
                name="noetl",
                allow_reconnect=False,
                max_reconnect_attempts=1,
                reconnect_time_wait=0,
                connect_timeout=CONNECT_S,
                error_cb=failed,
            )
    except (OSError, Error, TimeoutError) as fault:
        await end(client)
        raise _refusal(client, client.fault or fault, host) from fault
    except BaseException:
        await end(client)
        raise
    return client


async def end(client: Client) -> None:
    """End a connection, whatever state it is in."""
    try:
        async with asyncio.timeout(GRACE_S):
            await client.close()
    except (OSError, Error, TimeoutError):
        return  # it is of no use to anybody either way


def refusals(client: Client) -> int:
    """How often the broker has refused us a subject so far."""
    return client.refused if isinstance(client, _Client) else 0


def forbidden(client: Client, after: int, *names: str) -> SourceError | None:
    """What the broker refused since it had refused `after` subjects, if it concerns these names."""
    told = client.refusals if isinstance(client, _Client) else ()
    for number, said in told:
        if number > after and any(name.lower() in said for name in (*names, _ANSWERS)):
            return SourceError("auth", "subject_forbidden", f"the broker refuses us: {said}")
    return None


def _refusal(client: _Client, fault: Exception, host: str) -> SourceError:
    """Why there is no connection."""
    said = str(fault) or type(fault).__name__
    message = f"the broker at {host} cannot be reached: {said}"
    # A broker hangs up on those it does not know; its last words may be lost.
    is_cut = isinstance(fault, ConnectionError | StaleConnectionError)
    if (is_cut and client.wants_login) or "authoriz" in said.lower() or "authentic" in said.lower():
        message = f"the broker at {host} does not know us: are user and password right? ({said})"
        return SourceError("auth", "bad_login", message)
    if isinstance(fault, ssl.SSLError):
        return SourceError("connection", "TLS_ERROR", message)
    if isinstance(fault, TimeoutError):
        return SourceError("timeout", "CONN_TIMEOUT", message, retryable=True)
    code = "CONN_REFUSED" if isinstance(fault, ConnectionRefusedError) else "CONN_RESET"
    return SourceError("connection", code, message, retryable=True)
