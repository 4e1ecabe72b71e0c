"""The real server and worker in one process: memory store and bus, no socket."""

from __future__ import annotations

import asyncio
from contextlib import asynccontextmanager
from dataclasses import dataclass
from typing import TYPE_CHECKING

from noetl.api.client import Client
from noetl.api.http import AsgiTransport
from noetl.blobs.file import FileBlobs
from noetl.blobs.memory import MemoryBlobs
from noetl.bus.memory import MemoryBus
from noetl.dsl.schema import plugin_schemas
from noetl.local.credentials import wallet
from noetl.local.crew import Crew
from noetl.local.overheard import Overheard
from noetl.local.playbooks import Shelf
from noetl.local.restore import restore
from noetl.server.app import create_server
from noetl.server.parts import ServerParts
from noetl.store.memory.store import MemoryStore
from noetl.tools.http.egress import Egress, Guard
from noetl.tools.http.fetching import Fetcher
from noetl.tools.objects.store import Stores
from noetl.tools.sources import Scripts
from noetl.worker.app import WorkerParts

if TYPE_CHECKING:
    from collections.abc import AsyncIterator

    from noetl.local.parts import Parts
    from noetl.local.watch import Watch


@dataclass(frozen=True, slots=True)
class Stack:
    """A server and its workers, running."""

    client: Client
    watch: Watch
    crew: Crew


@asynccontextmanager
async def stack(parts: Parts, text: str) -> AsyncIterator[Stack]:
    """All that a playbook needs to run; it ends with the block, and its first fault is raised."""
    watch, clock, ids = parts.watch, parts.clock, parts.ids
    store = MemoryStore(on_commit=watch.commit)
    store.catalog = shelf = Shelf(store.catalog, parts.folder)
    entry = await shelf.shelve(text)
    if parts.on_line is not None:
        store.output = Overheard(store.output, parts.on_line)
    if parts.log:
        with watch.replaying():
            await restore(store, parts.log, clock, ids)
    blobs = MemoryBlobs() if parts.home is None else FileBlobs(parts.home / "blobs")
    egress = Egress(mode="open")
    fetch = Fetcher(Guard(egress=egress))
    control = ServerParts(
        store=store, bus=MemoryBus(), blobs=blobs, clock=clock, ids=ids, lease_s=parts.lease_s,
        kinds=frozenset(parts.tools) if parts.is_complete else None, tracer=parts.tracer,
        wallet=wallet(clock), fetch=fetch,
        plugins=plugin_schemas({kind: tool.Config for kind, tool in parts.tools.items()}),
    )  # fmt: skip
    server = create_server(control)
    if entry is not None and parts.on_worker:
        server.plane.programs.of(entry).on_worker = parts.on_worker
    client = Client(AsgiTransport(server.asgi))
    stores = Stores(egress)
    scripts = Scripts(egress, (parts.folder.resolve(),), stores)
    work = WorkerParts(
        client=client, tools=parts.tools, clock=clock, ids=ids, worker_id=f"local-{ids.new()}",
        slots=parts.slots, ceiling_s=parts.ceiling_s, redactor=parts.redactor,
        secrets=parts.secrets, blobs=blobs, tracer=parts.tracer,
        stores=stores, scripts=scripts,
    )  # fmt: skip
    try:
        async with server, asyncio.TaskGroup() as group, Crew(group, work) as crew:
            for credential in parts.credentials:
                await client.put_credential(credential)
            watch.on_pool = crew.serve
            for pool in watch.pools:
                crew.serve(pool)
            for run in watch.runs.unfinished():
                server.plane.ingest.nudge(run.execution_id)
            yield Stack(client, watch, crew)
    except BaseExceptionGroup as faults:
        fault: BaseException = faults
        while isinstance(fault, BaseExceptionGroup):
            fault = fault.exceptions[0]
        raise fault from None
    finally:
        await scripts.close()
        await fetch.close()
