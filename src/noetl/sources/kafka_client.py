"""A member of a Kafka group: its connection, its certificates and its faults in our words."""

from __future__ import annotations

import asyncio
import ssl
import tempfile
from pathlib import Path
from typing import TYPE_CHECKING, Any, Final

from aiokafka import AIOKafkaConsumer, errors  # type: ignore[import-untyped] # it has no types
from aiokafka.client import AIOKafkaClient  # type: ignore[import-untyped] # as above

from noetl.sources.base import SourceError
from noetl.sources.places import invalid

if TYPE_CHECKING:
    from noetl.sources.places import Addresses, Certificates, KafkaPlace

OPEN_S: Final = 20.0
CLOSE_S: Final = 5.0
SESSION_MS: Final = 30_000
"""A member that was not heard of for so long is gone."""
_REQUEST_MS: Final = 10_000
_FETCH_MS: Final = 200
"""A fetch waits so long at a broker that has nothing; other questions wait behind it."""
_FETCH_BYTES: Final = 16 * 1024 * 1024
_FOR_EVER_MS: Final = 24 * 3_600_000
"""Whoever holds messages back may do so: that we live is told by heartbeats."""
_LOGIN: Final = (
    errors.AuthenticationFailedError,
    errors.AuthenticationMethodNotSupported,
    errors.SaslAuthenticationFailed,
    errors.UnsupportedSaslMechanismError,
    errors.IllegalSaslStateError,
)
_FORBIDDEN: Final = (
    errors.TopicAuthorizationFailedError,
    errors.GroupAuthorizationFailedError,
    errors.ClusterAuthorizationFailedError,
)
_SLOW: Final = (errors.KafkaTimeoutError, errors.RequestTimedOutError, TimeoutError)


class _Client(AIOKafkaClient):  # type: ignore[misc] # the library has no types
    """A client that asks before it follows a cluster to another host."""

    addresses: Addresses
    refusal: Exception | None = None

    async def _get_conn(self, node_id: Any, **more: Any) -> Any:  # noqa: ANN401 - as the library has it
        broker = self.cluster.broker_metadata(node_id)
        if broker is not None:
            try:
                await self.addresses(broker.host, broker.port)
            except Exception as fault:  # noqa: BLE001 - told by whoever waits for the connection
                self.refusal = fault
                return None
        return await super()._get_conn(node_id, **more)


class Member(AIOKafkaConsumer):  # type: ignore[misc] # the library has no types
    """A consumer whose every connection obeys the guard."""

    def __init__(self, addresses: Addresses, link: dict[str, Any], **more: Any) -> None:  # noqa: ANN401 - as the library has it
        super().__init__(**link, **more)
        self._client = _Client(**link)
        self._client.addresses = addresses

    async def judge(self) -> None:
        """Have the guard look at every broker that the cluster leads to."""
        for broker in self._client.cluster.brokers():
            await self._client.addresses(broker.host, broker.port)

    def check(self) -> None:
        """Raise what kept us from a broker, once."""
        refusal, self._client.refusal = self._client.refusal, None
        if refusal is not None:
            raise refusal


async def join(place: KafkaPlace, addresses: Addresses, session_ms: int = SESSION_MS) -> Member:
    """A member that has a connection and no topic yet."""
    servers = [at for broker in place.brokers for at in await _at(broker, place, addresses)]
    scheme = f"{'SASL_' if place.mechanism else ''}{'SSL' if place.tls else 'PLAINTEXT'}"
    link: dict[str, Any] = {
        "bootstrap_servers": servers,
        "client_id": "noetl",
        "request_timeout_ms": _REQUEST_MS,
        "security_protocol": scheme,
        "ssl_context": None if place.tls is None else context_of(place.tls),
    }
    if place.mechanism:
        link |= {
            "sasl_mechanism": place.mechanism,
            "sasl_plain_username": place.user,
            "sasl_plain_password": place.password,
        }
    member = Member(
        addresses,
        link,
        group_id=place.group,
        enable_auto_commit=False,
        auto_offset_reset="earliest",
        fetch_max_wait_ms=_FETCH_MS,
        fetch_max_bytes=_FETCH_BYTES,
        session_timeout_ms=session_ms,
        heartbeat_interval_ms=session_ms // 10,
        max_poll_interval_ms=_FOR_EVER_MS,
    )
    try:
        async with asyncio.timeout(OPEN_S):
            await member.start()
            await member.judge()
    except (errors.KafkaError, OSError, TimeoutError) as fault:
        await leave(member)
        member.check()
        raise fault_of(fault, place) from fault
    except BaseException:
        await leave(member)
        raise
    return member


async def leave(member: Member) -> None:
    """Leave the group; the others need not wait until we are missed."""
    try:
        async with asyncio.timeout(CLOSE_S):
            await member.stop()
    except (errors.KafkaError, OSError, TimeoutError):
        return  # the group misses us soon enough


async def _at(broker: tuple[str, int], place: KafkaPlace, addresses: Addresses) -> list[str]:
    """Where a broker is reached; with TLS under its name, which the certificate proves."""
    host, port = broker
    found = await addresses(host, port)
    names = [host] if place.tls is not None else found
    return [f"[{name}]:{port}" if ":" in name else f"{name}:{port}" for name in names]


def context_of(tls: Certificates) -> ssl.SSLContext:
    """The roots of the machine, or those that are named; our own certificate, if there is one."""
    try:
        context = ssl.create_default_context(cadata=tls.ca or None)
    except (ssl.SSLError, ValueError):
        raise invalid("ssl", "`ca` is no certificate in PEM") from None
    if tls.cert:
        with tempfile.TemporaryDirectory(
            prefix="noetl-tls-"
        ) as folder:  # OpenSSL reads files alone
            cert, key = Path(folder) / "cert.pem", Path(folder) / "key.pem"
            cert.write_text(tls.cert, encoding="utf-8")
            key.write_text(tls.key, encoding="utf-8")
            try:
                context.load_cert_chain(cert, key, lambda: tls.passphrase)
            except (OSError, ValueError):
                said = "`cert` and `key` are no certificate in PEM with its private key"
                raise invalid("ssl", said) from None
    return context


def fault_of(fault: BaseException, place: KafkaPlace) -> SourceError:
    """A fault of the client in our words."""
    said = str(fault) or type(fault).__name__
    where = ", ".join(f"{host}:{port}" for host, port in place.brokers)
    if isinstance(fault, SourceError):
        return fault
    if isinstance(fault, _LOGIN):
        message = f"the brokers at {where} do not know us: are user and password right? ({said})"
        return SourceError("auth", "bad_login", message)
    if isinstance(fault, _FORBIDDEN):
        message = f"we may not read {place.topic} as {place.group}: {said}"
        return SourceError("auth", "topic_forbidden", message)
    if isinstance(fault, _SLOW):
        message = f"the brokers at {where} did not answer: {said}"
        return SourceError("timeout", "tool_timeout", message, retryable=True)
    if isinstance(fault, errors.KafkaConnectionError | OSError):
        message = f"the brokers at {where} cannot be reached: {said}"
        return SourceError("connection", "CONN_RESET", message, retryable=True)
    message = f"the brokers at {where} refuse: {said}"
    is_retryable = bool(getattr(fault, "retriable", False))
    return SourceError("client_error", "source_refused", message, retryable=is_retryable)


def no_topic(place: KafkaPlace) -> SourceError:
    """The error of a topic that is not there."""
    message = f"there is no topic {place.topic}, or we may not see it"
    return SourceError("not_found", "topic_not_found", message)
