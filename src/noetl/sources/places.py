"""Where a source is and who we are there: the fields of a document and of its credential, read.

A field of the document comes before the same field of the credential. What is missing or wrong is
told by its name.
"""

from __future__ import annotations

import re
from collections.abc import Awaitable, Callable, Mapping
from dataclasses import dataclass, field
from typing import Any, Final
from urllib.parse import unquote, urlsplit

import msgspec

from noetl.sources.base import SOURCES, SourceError

Addresses = Callable[[str, int], Awaitable[list[str]]]
"""What a host may be reached at."""

MECHANISMS: Final = ("PLAIN", "SCRAM-SHA-256", "SCRAM-SHA-512")
KAFKA_PORT: Final = 9092
_NATS_SCHEMES: Final = frozenset({"nats", "tls"})
_TOPIC: Final = re.compile(r"[A-Za-z0-9._-]{1,249}")
_PATH: Final = re.compile(r"projects/[^/\s]+/subscriptions/[^/\s]+")
_SHORT: Final = re.compile(r"[A-Za-z][A-Za-z0-9._~+%-]{2,254}")
_UNUSED: Final = {
    "nats": ("endpoint",),
    "kafka": ("url", "token", "endpoint"),
    "pubsub": ("url", "user", "password"),
}
"""Fields of a connection that mean nothing to a source."""


async def as_written(host: str, port: int) -> list[str]:
    """Every host: who starts a runtime or a listener of their own says where it listens."""
    del port
    return [host]


@dataclass(frozen=True, slots=True, kw_only=True)
class NatsPlace:
    """A durable consumer of a stream."""

    servers: tuple[str, ...]
    stream: str
    consumer: str
    user: str = ""
    password: str = field(default="", repr=False)
    token: str = field(default="", repr=False)


@dataclass(frozen=True, slots=True, kw_only=True)
class Certificates:
    """Who may sign for the other side, and what we prove ourselves with (PEM)."""

    ca: str = ""
    cert: str = ""
    key: str = field(default="", repr=False)
    passphrase: str = field(default="", repr=False)


@dataclass(frozen=True, slots=True, kw_only=True)
class KafkaPlace:
    """A topic, and the group that reads it."""

    brokers: tuple[tuple[str, int], ...]
    topic: str
    group: str
    mechanism: str = ""
    user: str = ""
    password: str = field(default="", repr=False)
    tls: Certificates | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class PubsubPlace:
    """A subscription of Pub/Sub; without an endpoint it is Google's own."""

    subscription: str
    endpoint: str = ""
    is_open: bool = False
    """An emulator: nobody is asked who they are."""
    token: str = field(default="", repr=False)
    account: str = field(default="", repr=False)
    """The key file of a service account, as JSON."""


Place = NatsPlace | KafkaPlace | PubsubPlace


def place_of(
    kind: str, fields: Mapping[str, Any], auth: Mapping[str, Any], *, emulator: str = ""
) -> Place:
    """Read the place of a source; `SourceError` tells what is missing or wrong."""
    if kind not in SOURCES:
        raise invalid("source", f"`{kind}` is none of {', '.join(SOURCES)}")
    own = {name: value for name, value in fields.items() if value not in (None, "", (), [])}
    for name in _UNUSED[kind]:
        if name in own:
            raise invalid(name, f"the source {kind} has no such field")
    merged = {name: value for name, value in auth.items() if value not in (None, "")} | own
    if kind == "nats":
        return _nats(merged)
    if kind == "kafka":
        return _kafka(merged, own)
    return _pubsub(merged, emulator, is_named=bool(auth))


def invalid(name: str, said: str) -> SourceError:
    """The error of a field."""
    return SourceError("config", "invalid_config", f"/{name}: {said}")


def _missing(said: str) -> SourceError:
    message = f"{said}; there is no default connection"
    return SourceError("config", "connection_missing", message)


def _needed(fields: Mapping[str, Any], name: str, source: str) -> str:
    value = fields.get(name)
    if not isinstance(value, str) or not value:
        raise invalid(name, f"the source {source} needs it")
    return value


def _nats(fields: Mapping[str, Any]) -> NatsPlace:
    stream, consumer = _needed(fields, "stream", "nats"), _needed(fields, "consumer", "nats")
    url = fields.get("url")
    if not url:
        raise _missing("/url: neither the source nor its credential names the broker")
    servers, found = _servers(str(url))
    named = {name: str(fields[name]) for name in ("user", "password", "token") if fields.get(name)}
    if {"user", "token"} & named.keys():
        found = {}
    return NatsPlace(servers=servers, stream=stream, consumer=consumer, **(found | named))


def _servers(url: str) -> tuple[tuple[str, ...], dict[str, str]]:
    """Addresses without secrets, and the secrets that stood in them."""
    servers: list[str] = []
    found: dict[str, str] = {}
    for each in (part.strip() for part in url.split(",")):
        parts = urlsplit(each if "://" in each else f"nats://{each}")
        who, _, where = parts.netloc.rpartition("@")
        if parts.scheme not in _NATS_SCHEMES or not parts.hostname or _port(parts.netloc) is None:
            raise invalid("url", f"{parts.scheme}://{where} is no address like nats://host:4222")
        servers.append(f"{parts.scheme}://{where}")
        user, has_password, password = who.partition(":")
        if has_password:
            found |= {"user": unquote(user), "password": unquote(password)}
        elif user:
            found["token"] = unquote(user)
    return tuple(servers), found


def _port(netloc: str, default: int = 0) -> int | None:
    """The port of an address; None for what is no port."""
    try:
        return urlsplit(f"//{netloc}").port or default
    except ValueError:
        return None


def _kafka(fields: Mapping[str, Any], own: Mapping[str, Any]) -> KafkaPlace:
    topic, group = _needed(fields, "topic", "kafka"), _needed(fields, "group", "kafka")
    if not _TOPIC.fullmatch(topic):
        raise invalid("topic", "has letters, digits, `.`, `_` and `-`, 249 at most")
    brokers = fields.get("brokers")
    if not brokers:
        raise _missing("/brokers: neither the source nor its credential names them")
    user = str(own.get("user") or fields.get("sasl_username") or "")
    password = str(own.get("password") or fields.get("sasl_password") or "")
    mechanism = str(fields.get("sasl_mechanism") or ("PLAIN" if user else "")).upper()
    if mechanism and mechanism not in MECHANISMS:
        raise invalid("sasl_mechanism", f"`{mechanism}` is none of {', '.join(MECHANISMS)}")
    if mechanism and not (user and password):
        raise invalid("sasl_username", f"{mechanism} needs a user and a password")
    return KafkaPlace(
        brokers=_brokers(brokers),
        topic=topic,
        group=group,
        mechanism=mechanism,
        user=user,
        password=password,
        tls=_tls(fields.get("ssl")),
    )


def _brokers(given: Any) -> tuple[tuple[str, int], ...]:  # noqa: ANN401 - a text or a list
    listed = given.split(",") if isinstance(given, str) else given
    found: list[tuple[str, int]] = []
    for each in listed if isinstance(listed, list | tuple) else [None]:
        text = each.strip() if isinstance(each, str) else ""
        host, port = urlsplit(f"//{text}").hostname, _port(text, KAFKA_PORT)
        if not host or port is None or "/" in text or "@" in text:
            raise invalid("brokers", "is a list of host:port")
        found.append((host, port))
    return tuple(found)


def _tls(given: Any) -> Certificates | None:  # noqa: ANN401 - a flag or a map
    if given is None or given is False or str(given).lower() == "false":
        return None
    if not isinstance(given, Mapping):
        if str(given).lower() == "true":
            return Certificates()
        raise invalid("ssl", "is true, false, or a map of ca, cert, key and passphrase")
    names = ("ca", "cert", "key", "passphrase")
    unknown = sorted(set(given) - set(names))
    if unknown:
        raise invalid("ssl", f"`{unknown[0]}` is none of {', '.join(names)}")
    return Certificates(**{name: str(given[name]) for name in names if given.get(name)})


def _pubsub(fields: Mapping[str, Any], emulator: str, *, is_named: bool) -> PubsubPlace:
    name = _needed(fields, "subscription", "pubsub")
    endpoint = str(fields.get("endpoint") or (f"http://{emulator}" if emulator else ""))
    if not endpoint and not is_named and not fields.get("token"):
        raise _missing("/endpoint: the source names neither an endpoint nor a credential")
    account = fields.get("service_account")
    known: Any = account
    if isinstance(account, str):
        try:
            known = msgspec.json.decode(account)
        except msgspec.DecodeError:
            raise invalid("service_account", "is no JSON") from None
    if known is not None and not isinstance(known, Mapping):
        raise invalid("service_account", "is the key file of a service account")
    project = fields.get("project") or (known or {}).get("project_id")
    where, is_open = _endpoint(endpoint)
    return PubsubPlace(
        subscription=_subscription(name, str(project or "")),
        endpoint=where,
        is_open=is_open,
        token=str(fields.get("token") or fields.get("access_token") or ""),
        account=msgspec.json.encode(known).decode() if known else "",
    )


def _subscription(name: str, project: str) -> str:
    if _PATH.fullmatch(name):
        return name
    if project and _SHORT.fullmatch(name):
        return f"projects/{project}/subscriptions/{name}"
    raise invalid("subscription", "is projects/PROJECT/subscriptions/NAME")


def _endpoint(url: str) -> tuple[str, bool]:
    """An endpoint as host:port, and whether it is an emulator, which asks nobody who they are."""
    if not url:
        return "", False
    parts = urlsplit(url if "://" in url else f"https://{url}")
    default = 80 if parts.scheme == "http" else 443
    port = _port(parts.netloc, default)
    if parts.scheme not in {"http", "https"} or not parts.hostname or port is None:
        raise invalid("endpoint", "is an address like https://pubsub.googleapis.com")
    host = f"[{parts.hostname}]" if ":" in parts.hostname else parts.hostname
    return f"{host}:{port}", parts.scheme == "http"
