"""Lines of the generated pages about the HTTP API and the metrics, from the serving code."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, Final

from noetl import __version__
from noetl.blobs.memory import MemoryBlobs
from noetl.bus.memory import MemoryBus
from noetl.clock import SystemClock
from noetl.edge.reading import MOST_BYTES
from noetl.ids import Ids
from noetl.intake.metrics import IntakeMetrics
from noetl.server.access.permissions import PUBLIC, ROLES, TABLE
from noetl.server.app import create_server
from noetl.server.metrics import ServerMetrics
from noetl.server.parts import ServerParts
from noetl.store.memory.store import MemoryStore
from noetl.telemetry.metrics import Metrics
from noetl.worker.metrics import WorkerMetrics
from scripts.operations import operation_lines

if TYPE_CHECKING:
    from collections.abc import Iterator

    from starlette.routing import Route

_MIB: Final = 1024 * 1024
_MARKS: Final = {
    "y": "yes",
    "s": "not under `system/`",
    "o": "its own",
    "g": "by grant",
    "-": "-",
}
_READERS: Final = ("read", "body_of")


def api_lines() -> Iterator[str]:
    """Every route, its body, its answers and its codes, by its group; then the models."""
    yield "Every route of the server, made from the document that it answers itself:"
    yield "`GET /api/openapi.json` (OpenAPI 3.1), and `GET /api/docs` as a page."
    yield "Send `Authorization: Bearer <token>`; `public` routes ask for none."
    yield "A body over its limit is refused with `body_too_large` before it is read to the end."
    yield "Whoever still sends then has two seconds to read the answer."
    yield "A call that fails is answered with a [problem](errors.md#codes-of-the-api)."
    yield "Every answer has an `X-Request-ID`; one that the caller sends is kept."
    yield ""
    bodies = {(method, _plain(path)): body for method, path, _, body in routes()}
    yield from operation_lines(_served(), bodies)
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


def metric_lines() -> Iterator[str]:
    """Every series of server, worker and listener."""
    yield "Prometheus reads them at `/metrics`: the server's API with a token that has"
    yield "`runtime:read`, or its metrics port without one; a worker at `WORKER_METRICS_BIND`."
    yield "Every series is there from the start, at 0; those of parts that do not exist yet stay."
    yield "What to look at: [monitor](../how-to/monitor.md)."
    yield ""
    yield from _series_table("Server", ServerMetrics().all)
    worker = WorkerMetrics("shared", ())._metrics  # noqa: SLF001 - the page shows all of them
    yield from _series_table("Worker", worker)
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
    found = ((_method(route), route.path, _permission(route), _body(route)) for route in _served())
    return sorted(found, key=lambda row: (row[1], row[0]))


def _served() -> tuple[Route, ...]:
    """The route table of a server on memory backends, which is the one of every server."""
    clock = SystemClock()
    parts = ServerParts(
        store=MemoryStore(), bus=MemoryBus(), blobs=MemoryBlobs(), clock=clock, ids=Ids(clock, 0)
    )
    return create_server(parts).asgi.routes


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
    if not limits and not any(reader in names for reader in _READERS):
        return "-"
    return f"{max(limits, default=MOST_BYTES) // _MIB} MiB"
