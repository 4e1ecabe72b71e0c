"""Lines of the generated pages about the HTTP APIs and the metrics, from the serving code."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, Final

from noetl import __version__
from noetl.blobs.memory import MemoryBlobs
from noetl.bus.gateway import MemoryGatewayBus
from noetl.bus.memory import MemoryBus
from noetl.clock import SystemClock
from noetl.edge.reading import MOST_BYTES
from noetl.gateway.app import create_gateway
from noetl.gateway.declaring import (
    CALLBACK,
    PERMISSIONS,
    PUBLIC,
    READS_RUNTIME,
    SERVICE,
    SESSION,
    VERIFIED,
)
from noetl.gateway.metrics import GatewayMetrics
from noetl.gateway.parts import GatewayParts
from noetl.gateway.routes.contract import gateway_document
from noetl.gateway.upstream import Upstream
from noetl.ids import Ids
from noetl.intake.metrics import IntakeMetrics
from noetl.server.access.permissions import ROLES, TABLE
from noetl.server.app import create_server
from noetl.server.metrics import ServerMetrics
from noetl.server.parts import ServerParts
from noetl.server.routes.openapi import server_document
from noetl.settings import GatewaySettings
from noetl.store.memory.store import MemoryStore
from noetl.telemetry.metrics import Metrics
from noetl.tools.http.egress import Guard
from noetl.tools.http.fetching import Fetcher
from noetl.worker.metrics import WorkerMetrics
from scripts.operations import operation_lines

if TYPE_CHECKING:
    from collections.abc import Iterator

    from starlette.routing import Route

    from noetl.gateway.app import Gateway
    from noetl.server.app import Server

_MIB: Final = 1024 * 1024
_NOBODYS: Final = "nobody"
"""A token that opens nothing."""
_MARKS: Final = {
    "y": "yes",
    "s": "not under `system/`",
    "o": "its own",
    "g": "by grant",
    "-": "-",
}
_COMMON: Final = (
    "auth_required", "token_expired", "session_expired", "forbidden", "rate_limited", "internal",
    "db_unavailable", "timeout", "unknown_parameter", "bad_value", "draining", "pool_saturated",
    "storage_full", "bad_json", "bad_media_type", "body_too_large", "unknown_field",
    "validation_failed", "invalid_id", "bad_time",
)  # fmt: skip
"""Codes that many routes of the server share."""
_COMMON_OF_GATEWAY: Final = (
    "missing_token", "invalid_session", "csrf_rejected", "auth_unavailable", "rate_limited",
    "forbidden", "not_found", "upstream_unreachable", "upstream_unavailable", "upstream_timeout",
    "internal", "timeout", "unknown_parameter", "bad_value", "bad_json", "bad_media_type",
    "body_too_large", "unknown_field", "validation_failed",
)  # fmt: skip
"""Codes that many routes of the gateway share."""
_CALLERS: Final = {
    PUBLIC: "Anybody.",
    SESSION: "Somebody with a session or an API token; the server says what they may do.",
    CALLBACK: "Whoever shows the callback token of the request, and processes of the platform.",
    VERIFIED: "Whoever the listener verifies.",
    SERVICE: "Processes of the platform, with the internal token.",
    READS_RUNTIME: "Somebody with this permission of the server, and processes of the platform.",
}


def api_lines() -> Iterator[str]:
    """Every route, its body, its answers and its codes, by its group; then the models."""
    yield "Every route of the server, made from the document that it answers itself:"
    yield "`GET /api/openapi.json` (OpenAPI 3.1), and `GET /api/docs` as a page."
    yield "People and browsers come in through the [gateway](gateway-api.md)."
    yield "Send `Authorization: Bearer <token>`; `public` routes ask for none."
    yield "A body over its limit is refused with `body_too_large` before it is read to the end."
    yield "Whoever still sends then has two seconds to read the answer."
    yield "A call that fails is answered with a [problem](errors.md#codes-of-the-api)."
    yield "Every answer has an `X-Request-ID`; one that the caller sends is kept."
    yield ""
    bodies = {(method, _plain(path)): body for method, path, _, body in routes()}
    document = server_document(served())  # type: ignore[arg-type]  # the door takes only ours
    yield from operation_lines(document, _COMMON, bodies)
    yield "The metrics port answers `/health`, `/livez`, `/ready`, `/readyz` and `/metrics`,"
    yield "all of them without a token."
    yield ""
    yield "## Roles"
    yield ""
    yield "A token has roles; the strongest word of any of them counts."
    yield "`by grant`: only on the paths that a grant of a role allows."
    yield ""
    yield f"| permission | {' | '.join(ROLES)} |"
    yield f"|---|{'---|' * len(ROLES)}"
    for permission in sorted({permission for _, _, permission, _ in routes()} & TABLE.keys()):
        marks = (_MARKS[TABLE[permission][role]] for role in ROLES)
        yield f"| `{permission}` | {' | '.join(marks)} |"


def gateway_lines() -> Iterator[str]:
    """Every route of the gateway, and who may call it."""
    yield "Every route of the gateway, made from the document that it answers itself:"
    yield "`GET /openapi.json` (OpenAPI 3.1)."
    yield "`/noetl/{path}` passes on to `/api/{path}` of the [server](api.md)."
    yield "`/ws` and `/graphql` open WebSockets, too; what is said there, on `/events` and on"
    yield "`/rpc`: [protocol of the gateway](../explanation/gateway-protocol.md)."
    yield "A call that fails is answered with a [problem](errors.md#codes-of-the-api)."
    yield "Every answer has an `X-Request-ID`; one that the caller sends is kept."
    yield ""
    yield "| permission | who |"
    yield "|---|---|"
    yield from (f"| `{permission}` | {_CALLERS[permission]} |" for permission in PERMISSIONS)
    yield ""
    yield from operation_lines(gateway_document(gateway().routes), _COMMON_OF_GATEWAY, {})


def metric_lines() -> Iterator[str]:
    """Every series of server, worker, gateway and listener."""
    yield "Prometheus reads them at `/metrics`: the server's API with a token that has"
    yield "`runtime:read`, or its metrics port without one; a worker at `WORKER_METRICS_BIND`;"
    yield "a gateway as a server: with `runtime:read`, or at `GATEWAY_METRICS_BIND` without."
    yield "Every series is there from the start, at 0; one by subscription or pool shows a label"
    yield "as soon as its process knows of it."
    yield "A gateway has the series of a listener as well, for the deliveries that it takes."
    yield "Workers run no modules yet, so `noetl_worker_plugin_*` stay at 0."
    yield "What to look at: [monitor](../how-to/monitor.md)."
    yield ""
    yield from _series_table("Server", ServerMetrics().all)
    worker = WorkerMetrics("shared", ())._metrics  # noqa: SLF001 - the page shows all of them
    yield from _series_table("Worker", worker)
    yield from _series_table("Gateway", GatewayMetrics().all)
    listener = Metrics("subscription", __version__)
    for series in IntakeMetrics(()).series:
        listener.add(series)
    yield from _series_table("Listener of subscriptions", listener)


def _series_table(title: str, metrics: Metrics) -> Iterator[str]:
    yield f"## {title}"
    yield ""
    yield "| series | type | labels | meaning |"
    yield "|---|---|---|---|"
    for series in metrics._series.values():  # noqa: SLF001 - the page shows all that a scraper sees
        labels = ", ".join(f"`{name}`" for name in series.labels) or "-"
        kind = type(series).__name__.lower()
        yield f"| `{series.name}` | {kind} | {labels} | {series.meaning} |"
    yield ""


def routes() -> list[tuple[str, str, str, str]]:
    """Method, path, permission and most bytes of a body, by path."""
    found = ((_method(route), route.path, _permission(route), _body(route)) for route in served())
    return sorted(found, key=lambda row: (row[1], row[0]))


def served() -> tuple[Route, ...]:
    """The route table of a server, which is the one of every server."""
    return _server().asgi.routes


def _server() -> Server:
    """A server on memory backends."""
    clock = SystemClock()
    parts = ServerParts(
        store=MemoryStore(), bus=MemoryBus(), blobs=MemoryBlobs(), clock=clock, ids=Ids(clock, 0)
    )
    return create_server(parts)


def gateway() -> Gateway:
    """A gateway on memory backends; its routes and series are those of every gateway."""
    clock = SystemClock()
    parts = GatewayParts(
        settings=GatewaySettings(internal_token=_NOBODYS, nats_url="nats://memory"),
        clock=clock,
        ids=Ids(clock, 0),
        bus=MemoryGatewayBus(MemoryBus(), clock),
        upstream=Upstream.over(_server().asgi, _NOBODYS, clock),
        fetch=Fetcher(Guard()),
    )
    return create_gateway(parts)


def _plain(path: str) -> str:
    return path.replace(":path}", "}")


def _permission(route: Route) -> str:
    return str(getattr(route, "permission", PUBLIC))


def _method(route: Route) -> str:
    return ", ".join(sorted((route.methods or set()) - {"HEAD"}))


def _body(route: Route) -> str:
    """The limit that the handler of a route names; the common one when it names none."""
    if "GET" in (route.methods or ()):
        return "-"
    exchange: Any = getattr(route.endpoint, "__self__", None)
    handler: Any = exchange._answer  # noqa: SLF001 - whom the route calls
    names = handler.__code__.co_names
    limits = [handler.__globals__[name] for name in names if name.endswith("_BYTES")]
    return f"{max(limits, default=MOST_BYTES) // _MIB} MiB"
