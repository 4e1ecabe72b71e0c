"""A stack whose processes send their spans to a collector of the test process."""

from __future__ import annotations

from contextlib import ExitStack
from dataclasses import dataclass
from typing import TYPE_CHECKING

import pytest

from noetl.telemetry.traces.collector import Collector
from tests.servers.nats import NatsServer
from tests.servers.stack import LATE_S, FullStack

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator

    from noetl.telemetry.traces.tree import Seen
    from tests.servers.postgres import Server


@dataclass(frozen=True, slots=True)
class TracedStack:
    """The stack, and what it tells of itself."""

    stack: FullStack
    collector: Collector

    def until(self, is_whole: Callable[[list[Seen]], bool]) -> list[Seen]:
        """All spans, once they are what is waited for."""
        for _ in range(int(LATE_S)):
            if is_whole(self.collector.spans):
                return self.collector.spans
            self.collector.quiet(1.0)
        names = sorted(span.name for span in self.collector.spans)
        raise AssertionError(f"the spans never came; there are {names}")


@pytest.fixture(scope="module")
def traced_stack(
    postgres_server: Server, tmp_path_factory: pytest.TempPathFactory
) -> Iterator[TracedStack]:
    """Server and worker processes that export their spans."""
    folder = tmp_path_factory.mktemp("traced")
    nats = NatsServer(folder / "nats")
    name = postgres_server.make()
    with ExitStack() as ending:
        collector = ending.enter_context(Collector())
        ending.callback(postgres_server.drop, name)
        ending.callback(nats.stop)
        nats.start()
        stack = FullStack(
            postgres_server.url_of(name),
            nats.url,
            folder,
            OTEL_EXPORTER_OTLP_ENDPOINT=collector.url,
            OTEL_EXPORTER_OTLP_HEADERS="api-key=a-key-of-a-test",
            NOETL_LOG_LEVEL="debug",
        )
        ending.callback(stack.stop)
        yield TracedStack(stack, collector)
