"""The kind `nats`: keys, objects and streams of a broker; its client comes with the first task."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, ClassVar

from noetl.dsl.tasks import Nats
from noetl.dsl.views import Outcome
from noetl.tools.base import ToolError, Traits, remedied
from noetl.tools.nats.places import place_of

if TYPE_CHECKING:
    from nats.aio.client import Client

    from noetl.clock import Clock
    from noetl.dsl.tasks.task import Task
    from noetl.tools.base import ToolContext
    from noetl.tools.nats.connections import Connections


class NatsTool:
    """The kind `nats`."""

    kind: ClassVar[str] = "nats"
    Config: ClassVar[type[Task]] = Nats
    traits: ClassVar[Traits] = Traits(credentialed=True)

    def __init__(self, connections: Connections, clock: Clock) -> None:
        self._connections = connections
        self._clock = clock

    async def run(self, config: Nats, ctx: ToolContext) -> Outcome:
        """Do one operation."""
        place = await place_of(config.auth, {"url": config.url}, ctx)
        async with self._connections.use(place) as client:
            data = await self._done(config, ctx, client)
        if config.operation == "js_consume" and data["acked"] and data["ack_ids"]:
            ack_ids = data["ack_ids"]
            ctx.after_report(lambda: self._settle(place, ack_ids))
        return Outcome(data=data)

    async def _done(self, config: Nats, ctx: ToolContext, client: Client) -> dict[str, Any]:
        from noetl.tools.nats import keys, objects, streams  # noqa: PLC0415 - see the top
        from noetl.tools.nats.failures import translating  # noqa: PLC0415 - see the top

        table = {
            "kv_get": keys.get,
            "kv_put": keys.put,
            "kv_create": keys.create,
            "kv_update": keys.update,
            "kv_delete": keys.delete,
            "kv_keys": keys.keys,
            "kv_purge": keys.purge,
            "object_get": objects.get,
            "object_put": objects.put,
            "object_delete": objects.delete,
            "object_list": objects.every,
            "object_info": objects.info,
            "js_publish": streams.publish,
            "js_publish_batch": streams.publish_many,
            "js_get_msg": streams.message,
            "js_stream_info": streams.info,
        }
        with translating(config, client):
            if config.operation == "js_consume":
                return await streams.consume(config, ctx, client, self._clock)
            if config.operation == "request":
                return await streams.ask(config, ctx, client)
            return await table[config.operation](config, ctx, client.jetstream())

    async def _settle(self, place: Any, ack_ids: list[str]) -> None:  # noqa: ANN401 - an address
        from noetl.sources.nats import NatsSource  # noqa: PLC0415 - see the top

        async with self._connections.use(place) as client:
            report = await NatsSource(client, "", "", self._clock).ack(ack_ids)
        if report.errors:
            message = f"{len(report.errors)} messages were not acknowledged"
            raise remedied(ToolError("connection", "ack_failed", message))

    async def cancel(self, ctx: ToolContext) -> None:
        """Cancelling the task ends its question; the connection stays."""

    async def close(self) -> None:
        """End every connection."""
        await self._connections.close()
