"""Where a task's source is: its own fields before those of its credential, hosts by the guard."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, Final

from noetl.bus.address import Address
from noetl.sources.base import SourceError
from noetl.sources.places import NatsPlace, place_of
from noetl.tools.auth import fields_of
from noetl.tools.base import ToolError
from noetl.tools.nats.connections import translated
from noetl.tools.nats.places import stream_of, token_of

if TYPE_CHECKING:
    from collections.abc import Mapping

    from noetl.dsl.tasks import Subscription
    from noetl.sources.places import Place
    from noetl.tools.base import ToolContext

TYPES: Final[Mapping[str, tuple[str, ...]]] = {
    "nats": ("nats",),
    "kafka": ("kafka",),
    "pubsub": ("pubsub", "gcp"),
}
"""Which credentials open a source."""
_FIELDS: Final = (
    "url", "user", "password", "token", "endpoint", "stream", "consumer", "subscription", "brokers",
    "topic", "group",
)  # fmt: skip
_ANY: Final = "any"
"""Stands for a stream where ids name their own."""


async def place_of_task(config: Subscription, ctx: ToolContext, emulator: str) -> Place:
    """The place of a task; its secrets are known to the redactor before anybody uses them."""
    given: dict[str, Any] = {name: getattr(config, name) for name in _FIELDS}
    if config.source == "nats":
        polls = config.operation in {"poll", "drain"}
        given["stream"] = stream_of(config.stream, ctx) if polls else _ANY
        given["consumer"] = token_of(config.consumer, "consumer") if polls else _ANY
    auth: dict[str, Any] = {}
    if config.auth is not None:
        auth = await fields_of(config.auth, ctx, types=TYPES[config.source])
    url = given["url"] or auth.get("url")
    if url and "@" in str(url):
        ctx.redactor.add(str(url))
    try:
        place = place_of(config.source, given, auth, emulator=emulator)
    except SourceError as fault:
        raise translated(fault) from None
    ctx.redactor.add(*_secrets(place))
    return place


def _secrets(place: Place) -> list[str]:
    names = ("password", "token", "account")
    return [text for name in names if (text := getattr(place, name, ""))]


def address_of(place: NatsPlace) -> Address:
    """The broker of a consumer, so that tasks of other kinds share the connection."""
    return Address(
        servers=place.servers, user=place.user, password=place.password, token=place.token
    )


def invalid(field: str, said: str) -> ToolError:
    """The error of a field."""
    return ToolError("config", "invalid_config", f"/{field}: {said}")
