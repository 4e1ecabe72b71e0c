"""Kinds of plug-ins: known while a worker that has them lives, and judged by their own schema."""

from __future__ import annotations

import pytest

from noetl.api.catalog import Register, Validate
from noetl.api.problems import Refused
from noetl.api.runtime import WorkerEntry
from noetl.dsl.schema import plugin_schemas
from noetl.dsl.shape import Text, key, model, whole
from noetl.dsl.tasks.task import Task
from tests.unit.server.rig import HEAD, rig, virtually

STEP = "workflow: [{step: start, tool: {kind: acme_crm, object: lead, limit: %s}}]\n"


@model
class AcmeCrm(Task):
    """Reads a customer database."""

    object: str = key(Text(), "what to read")
    limit: int = key(whole(1, 10), "how many", default=1)


async def joined(r) -> None:
    told = {"kinds": ["acme_crm"], "plugins": plugin_schemas({"acme_crm": AcmeCrm})}
    await r.client.register_worker(
        WorkerEntry(name="w", capacity=4, runtime={"pool": "shared"}, capabilities=told)
    )


@virtually
async def test_a_kind_that_no_worker_has_is_refused_with_the_nearest_names():
    async with rig() as r:
        with pytest.raises(Refused) as refusal:
            await r.client.register(Register(content=HEAD + STEP % 3))
        assert refusal.value.problem.code == "invalid_playbook"
        assert refusal.value.problem.errors[0]["code"] == "DSL050"


@virtually
async def test_a_kind_of_a_worker_is_taken_and_its_commands_are_given_to_it():
    async with rig() as r:
        await joined(r)
        await r.start(STEP % 3)
        (command,) = await r.claim()
        assert command.action == "acme_crm"


@virtually
async def test_its_keys_are_judged_by_its_schema():
    async with rig() as r:
        await joined(r)
        for limit, codes in (
            ("11", ["DSL054"]),
            ("many", ["DSL054"]),
            ("'{{ workload.n }}'", ["DSL054"]),
            ("3", []),
        ):
            told = await r.client.validate(Validate(content=HEAD + STEP % limit))
            assert [d["code"] for d in told.diagnostics if d["severity"] == "error"] == codes
