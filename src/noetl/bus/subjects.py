"""Every name on the bus: subjects, streams, consumers and buckets, for both of their sides."""

from __future__ import annotations

import re
from typing import Final

COMMANDS_STREAM: Final = "NOETL_COMMANDS"
EVENTS_STREAM: Final = "NOETL_EVENTS"
CLIENTS_STREAM: Final = "NOETL_CLIENTS"

COMMANDS: Final = "noetl.commands.>"
EVENTS: Final = "noetl.events.>"
CLIENTS: Final = "noetl.clients.>"
LIVE: Final = "noetl.live.>"
REVOKED: Final = "noetl.gateway.revoked.*"
INGRESS: Final = "noetl.gateway.ingress.*"

FEED_CONSUMER: Final = "gateway-requests"
"""The durable consumer that all gateways share."""

HUB: Final = "noetl.gateway.hub"
"""Where gateways tell each other what concerns a stream that another one holds."""

REQUEST_HEADER: Final = "Noetl-Request"
"""The request that the events of a run belong to."""

SESSIONS_BUCKET: Final = "sessions"
REQUESTS_BUCKET: Final = "requests"
CIRCUITS_BUCKET: Final = "circuits"
SPOOL_STORE: Final = "noetl_spool"

_FOREIGN: Final = re.compile(r"[^A-Za-z0-9_-]")
_COMMANDS_TOKENS: Final = ("noetl", "commands")


def token(name: str) -> str:
    """A name as one token of a subject: what is not in `[A-Za-z0-9_-]` becomes `_`."""
    return _FOREIGN.sub("_", name) or "_"


def commands(pool: str, execution_id: str) -> str:
    """Where hints of a pool are published."""
    return f"noetl.commands.{token(pool)}.{token(execution_id)}"


def commands_of(pool: str) -> str:
    """What the consumer of a pool filters by."""
    return f"noetl.commands.{token(pool)}.>"


def consumer(pool: str) -> str:
    """The durable consumer that all workers of a pool share; autoscalers watch this name."""
    return f"noetl_worker_pool_{token(pool)}"


def events(tenant: str, organization: str, execution_id: str, shard: int) -> str:
    """Where the events of a commit are published."""
    return f"noetl.events.{token(tenant)}.{token(organization)}.{token(execution_id)}.{shard}"


def events_of(execution_id: str) -> str:
    """Where the events of every commit to one run are published."""
    return f"noetl.events.*.*.{token(execution_id)}.*"


def control(pool: str) -> str:
    """Where live workers of a pool are told to cancel or drain."""
    return f"noetl.control.{token(pool)}"


def clients(client_id: str) -> str:
    """Where messages for a connected client are kept."""
    return f"noetl.clients.{token(client_id)}"


def live(client_id: str) -> str:
    """Where the same messages are republished for the gateway that holds the connection."""
    return f"noetl.live.{token(client_id)}"


def revoked(session_id: str) -> str:
    """Where gateways are told that a session ended."""
    return f"noetl.gateway.revoked.{token(session_id)}"


def hook(request_id: str) -> str:
    """Where a gateway waits for the answer of a playbook that signs somebody in."""
    return f"noetl.gateway.hook.{token(request_id)}"


def ingress(listener: str) -> str:
    """Where gateways are told that a listener changed."""
    return f"noetl.gateway.ingress.{token(listener)}"


def key(bucket: str, name: str) -> str:
    """Where a key of a bucket is set."""
    return f"$KV.{bucket}.{name}"


def kept_key(bucket: str, name: str) -> str:
    """Where a key is republished that was set."""
    return f"noetl.keys.{bucket}.{name}"


def pool_of(subject: str) -> str | None:
    """The pool that a hint is for; none for any other subject."""
    tokens = subject.split(".")
    if len(tokens) == 4 and tuple(tokens[:2]) == _COMMANDS_TOKENS:  # noqa: PLR2004 - tokens of `commands`
        return tokens[2]
    return None


def matches(pattern: str, subject: str) -> bool:
    """Whether a subject falls under a pattern (`*` is one token, `>` one or more at the end)."""
    wanted, given = pattern.split("."), subject.split(".")
    for place, part in enumerate(wanted):
        if part == ">":
            return len(given) > place
        if place == len(given) or part not in {"*", given[place]}:
            return False
    return len(wanted) == len(given)
