"""`output` of a playbook on the whole stack: where results lie, for how long, and what is told."""

from __future__ import annotations

import asyncio
import gzip
import json
from typing import TYPE_CHECKING, Any

import asyncpg
import msgspec
import pytest
import zstandard

from noetl.api.catalog import Register
from noetl.api.credentials import CredentialPut
from noetl.api.executions import Execute
from noetl.api.problems import Refused
from noetl.ids import random_key

if TYPE_CHECKING:
    from noetl.api.client import Client
    from tests.servers.objects import S3Server
    from tests.servers.stack import FullStack

ENDED = {"COMPLETED", "FAILED"}
POOL = "stored"
CODE = "result = {'text': 'x' * int(size), 'n': 7}"


def playbook(output: str, more: str = "", pool: str = POOL) -> str:
    return f"""
apiVersion: noetl.io/v2
kind: Playbook
metadata: {{name: store, path: tests/{random_key().lower()}}}
workload: {{size: 100000, hours: 2}}
workflow:
  - step: make
    spec: {{pool: {pool}}}
    tool: {{kind: python, code: "{CODE}", input: {{size: "{{{{ workload.size }}}}"}}}}
    output: {output}
{more}
"""


class Ended:
    """A run that has ended, and the rows of its values."""

    def __init__(self, run: str, status: str, error: Any, rows: list[Any]) -> None:
        self.run, self.status, self.error = run, status, error
        self.rows = rows

    @property
    def row(self) -> Any:
        (row,) = [row for row in self.rows if row["source_step"] == "make"]
        return row


async def ran(stack: FullStack, client: Client, text: str, **payload: Any) -> Ended:
    stack.serve(POOL)
    entry = await client.register(Register(content=text))
    run = (await client.execute(Execute(path=entry.path, payload=payload))).execution_id
    async with asyncio.timeout(60):
        while (found := await client.execution(run)).status not in ENDED:  # noqa: ASYNC110 - another process ends it
            await asyncio.sleep(0.1)
    database = await asyncpg.connect(stack.database_url)
    try:
        rows = await database.fetch("select * from noetl.result where execution_id = $1", int(run))
    finally:
        await database.close()
    return Ended(run, found.status, found.error, rows)


async def test_scope_ttl_preview_and_name_reach_the_store(full_stack: FullStack) -> None:
    output = (
        "{scope: permanent, preview_max_bytes: 20, as: report,"
        ' store: {ttl: "{{ workload.hours }}h"}}'
    )
    async with full_stack.client() as client:
        ended = await ran(full_stack, client, playbook(output))
        assert ended.status == "COMPLETED", ended.error
        (row,) = ended.rows
        assert (row["scope"], row["name"], row["source_step"]) == ("permanent", "report", "make")
        assert round((row["expires_at"] - row["created_at"]).total_seconds() / 3600) == 2
        assert "/result/report/" in row["ref"]
        found = await client.step_result(ended.run, "make")
        assert (found["n"], len(found["text"])) == (7, 100_000)
        (item,) = (await client.results(ended.run)).items
        assert (item.name, item.scope) == ("report", "permanent")
        events = await client.events(ended.run, event_type="call.done")
        assert '"preview":"{\\"text\\":\\"xxxxxxxxxxx"' in msgspec.json.encode(events).decode()


async def test_what_all_results_of_a_playbook_are_to_have_is_theirs(full_stack: FullStack) -> None:
    policy = "executor: {spec: {policy: {results: {store: {kind: object}}}}}"
    async with full_stack.client() as client:
        ended = await ran(full_stack, client, playbook("null") + policy)
        assert ended.status == "COMPLETED", ended.error
        assert ended.row["object_key"].split("/")[3] == ended.run


@pytest.mark.parametrize(
    ("store", "size", "in_row"),
    [
        ("{kind: object}", 100_000, False),
        ("{kind: disk, compression: zstd}", 100_000, False),
        ("{kind: object, compression: gzip}", 3_000_000, False),
        ("{kind: db}", 3_000_000, True),
        ("{kind: kv}", 100_000, True),
        ("{kind: auto, compression: zstd}", 3_000_000, False),
    ],
)
async def test_a_result_lies_where_its_author_wants_it(
    full_stack: FullStack, store: str, size: int, *, in_row: bool
) -> None:
    async with full_stack.client() as client:
        ended = await ran(full_stack, client, playbook(f"{{store: {store}}}"), size=size)
        assert ended.status == "COMPLETED", ended.error
        row = ended.row
        assert (row["body"] is not None, row["bytes"] > size) == (in_row, True)
        found = await client.step_result(ended.run, "make")
        assert found == {"text": "x" * size, "n": 7}
        if in_row:
            return
        place = full_stack.objects / f"{row['object_key']}+"
        if "compression" in store:
            assert place.suffix.startswith((".zst", ".gz"))
            assert place.stat().st_size < size // 10
        part = [piece async for piece in client.get_result_stream(f"noetl://{row['ref']}", 10, 19)]
        assert b"".join(part) == json.dumps(found, separators=(",", ":")).encode()[10:20]
        await client.delete_results(ended.run)
        assert not place.exists()


async def test_what_stays_in_its_event_fails_when_it_does_not_fit(full_stack: FullStack) -> None:
    async with full_stack.client() as client:
        text = playbook("{store: {kind: eventlog}}")
        assert (await ran(full_stack, client, text, size=10)).status == "COMPLETED"
        ended = await ran(full_stack, client, text)
        assert (ended.status, ended.error["code"]) == ("FAILED", "inline_limit")


async def test_64_kib_stand_in_the_event_and_one_byte_more_does_not(full_stack: FullStack) -> None:
    around = len('{"text":"","n":7}')
    async with full_stack.client() as client:
        inline = await ran(full_stack, client, playbook("{}"), size=65_536 - around)
        assert (inline.status, inline.rows) == ("COMPLETED", [])
        apart = await ran(full_stack, client, playbook("{}"), size=65_537 - around)
        assert (apart.status, [row["bytes"] for row in apart.rows]) == ("COMPLETED", [65_537])
        both = playbook("{inline_max_bytes: 10}")
        assert len((await ran(full_stack, client, both, size=10)).rows) == 1


async def test_a_result_in_a_bucket_of_the_author_is_read_again_with_its_credential(
    full_stack: FullStack, s3_server: S3Server
) -> None:
    bucket, alias = s3_server.bucket(), f"own_{random_key()[:8].lower()}"
    output = (
        f"{{select: [n], store: {{kind: s3, bucket: {bucket}, prefix: '{{{{ workload.area }}}}/',"
        f" compression: zstd, ttl: 7d, credential: {alias}}}}}"
    )
    more = f"""
    next: {{arcs: [{{step: read}}]}}
  - step: read
    spec: {{pool: {POOL}}}
    tool: {{kind: artifact, action: get, auth: {alias}, input: {{uri: "{{{{ make.uri }}}}"}}}}
    next: {{arcs: [{{step: check}}]}}
  - step: check
    spec: {{pool: {POOL}}}
    tool:
      kind: python
      input: {{n: "{{{{ make.n }}}}", data: "{{{{ read.data }}}}", about: "{{{{ make }}}}"}}
      code: "result = {{'n': n, 'same': data == {{'text': 'x' * 100000, 'n': 7}}, 'about': about}}"
"""
    fields = s3_server.fields
    async with full_stack.client() as client:
        await client.put_credential(CredentialPut(name=alias, type="s3", data=fields))
        ended = await ran(full_stack, client, playbook(output, more), area="reports/day")
        assert ended.status == "COMPLETED", ended.error
        told = await client.step_result(ended.run, "check")
        about = told["about"]
        assert (told["n"], told["same"], about["store"]) == (7, True, "s3")
        assert about["uri"].startswith(f"s3://{bucket}/reports/day/{ended.run}/make/")
        assert about["uri"].endswith(".json.zst")
        assert (about["size"] > 100_000, about["compression"]) == (True, "zstd")
        assert [row for row in ended.rows if row["source_step"] == "make"] == []
        events = await client.events(ended.run)
        assert fields["secret_access_key"] not in str(events)
        lost = playbook(output.replace(alias, "nobody_has_this"))
        failed = await ran(full_stack, client, lost, area="a")
        assert (failed.status, failed.error["kind"]) == ("FAILED", "auth")


async def test_what_is_of_the_workflow_goes_with_the_root_run(full_stack: FullStack) -> None:
    child = playbook("{scope: workflow}")
    parent = f"""
apiVersion: noetl.io/v2
kind: Playbook
metadata: {{name: parent, path: tests/{random_key().lower()}}}
workflow:
  - step: call
    spec: {{pool: {POOL}}}
    tool: {{kind: playbook, path: §}}
"""
    async with full_stack.client() as client:
        path = (await client.register(Register(content=child))).path
        ended = await ran(full_stack, client, parent.replace("§", path))
        assert ended.status == "COMPLETED", ended.error
        assert ("workflow", "make") in {(row["scope"], row["source_step"]) for row in ended.rows}


@pytest.mark.parametrize(
    ("store", "said"),
    [
        ("{kind: memory}", "no other can read"),
        ("{kind: duckdb}", "read by no other"),
        ("{compression: lz4}", "`lz4` is not available"),
        ("{driver: boto}", "one driver"),
        ("{kind: s3, credential: a}", "needs `bucket`"),
        ("{kind: gcs, bucket: a}", "needs `credential`"),
        ("{kind: kv, bucket: a}", "`bucket` means nothing"),
        ("{auth: a}", "`auth` means nothing"),
    ],
)
async def test_a_store_that_there_is_not_is_refused_at_registration(
    full_stack: FullStack, store: str, said: str
) -> None:
    async with full_stack.client() as client:
        with pytest.raises(Refused) as refusal:
            await client.register(Register(content=playbook(f"{{store: {store}}}")))
    assert said in str(refusal.value.problem.errors)


def test_packed_objects_are_read_by_the_usual_programs() -> None:
    from noetl.blobs.packing import packed  # noqa: PLC0415 - of this test alone

    data = bytes(range(256)) * 9000
    assert gzip.decompress(packed(data, "gzip")) == data
    reader = zstandard.ZstdDecompressor().stream_reader(
        packed(data, "zstd"), read_across_frames=True
    )
    assert reader.read() == data
