"""Credentials through the API: kept sealed, shown bare, refused when wrong."""

from __future__ import annotations

import msgspec
import pytest

from noetl.api.catalog import Register
from noetl.api.credentials import CredentialPut
from noetl.api.problems import Refused
from tests.unit.server.rig import virtually
from tests.unit.server.wallet.scene import CANARY, HEAD, scene

PG = {"host": "db", "user": "etl", "password": CANARY, "database": "x"}
USES = "workflow:\n  - {step: start, tool: {kind: postgres, auth: pg, command: select 1}}\n"


def put(name="pg", **more):
    return CredentialPut(**({"name": name, "type": "postgres", "data": PG} | more))


async def refused(asking) -> Refused:
    with pytest.raises(Refused) as caught:
        await asking
    return caught.value


@virtually
async def test_a_credential_is_kept_sealed_and_shown_without_its_fields() -> None:
    async with scene() as s:
        made = await s.client.put_credential(put(tags=("a",), description="main", meta={"x": 1}))
        assert (made.name, made.type, made.tags, made.meta) == ("pg", "postgres", ("a",), {"x": 1})
        assert made.data is msgspec.UNSET
        assert await s.client.credential("pg") == made == await s.client.credential(made.id)
        assert (await s.client.credentials()).items == (made,)
        kept = s.r.store.credentials
        row = await kept.get("default", "pg")
        assert CANARY not in str(row) + str(made)
        shown = await s.client.credential("pg", reveal=True)
        assert shown.data == PG
        assert CANARY not in repr(shown) + repr(put())


@virtually
async def test_a_new_version_keeps_the_id_and_the_birth() -> None:
    async with scene() as s:
        first = await s.client.put_credential(put())
        again = await s.client.put_credential(put(data=PG | {"port": 5433}))
        assert (again.id, again.created_at) == (first.id, first.created_at)
        assert (await s.client.credential("pg", reveal=True)).data["port"] == 5433


@virtually
async def test_a_record_opens_in_its_own_row_only_and_plain_text_is_no_record() -> None:
    async with scene() as s:
        await s.client.put_credential(put("one"))
        await s.client.put_credential(put("two", data=PG | {"password": "other-canary-1"}))
        store = s.r.store.credentials
        one, two = [await store.get("default", name) for name in ("one", "two")]
        replace = msgspec.structs.replace
        await store.put(replace(two, data_encrypted=one.data_encrypted))
        fault = await refused(s.client.credential("two", reveal=True))
        assert (fault.problem.status, fault.problem.code) == (500, "record_damaged")
        await store.put(replace(two, data_encrypted=msgspec.json.encode(PG).decode()))
        fault = await refused(s.client.credential("two", reveal=True))
        assert fault.problem.code == "record_damaged"
        assert CANARY not in str(fault.problem)


@virtually
async def test_wrong_fields_are_refused_and_never_repeated() -> None:
    async with scene() as s:
        wrong = {
            "/data/pass_word": put(data={"host": "h", "pass_word": CANARY}),
            "/data/password": put(data={"password": {"inner": CANARY}}),
            "/type": put(type="oracle", data={"password": CANARY}),
            "/name": put("9 lives"),
            "/meta/from": put(meta={"from": {}}),
            "": put(data=None),
        }
        for pointer, body in wrong.items():
            fault = await refused(s.client.put_credential(body))
            assert fault.problem.code == "validation_failed"
            assert pointer in [item["pointer"] for item in fault.problem.errors], fault.problem
            assert CANARY not in str(fault.problem)
        both = put(from_={"env": "X"})
        assert (await refused(s.client.put_credential(both))).problem.status == 422
        assert (await s.client.credentials()).items == ()


@virtually
async def test_lists_are_paged_and_filtered() -> None:
    async with scene() as s:
        for name in ("b", "a", "c"):
            await s.client.put_credential(put(name, description=f"of {name}"))
        await s.client.put_credential(put("d", type="bearer", data={"token": CANARY}))
        page = await s.client.credentials(limit=2)
        assert [item.name for item in page.items] == ["a", "b"]
        rest = await s.client.credentials(limit=2, cursor=page.next_cursor)
        assert [item.name for item in rest.items] == ["c", "d"]
        assert rest.next_cursor is None
        assert [i.name for i in (await s.client.credentials(type="bearer")).items] == ["d"]
        assert [i.name for i in (await s.client.credentials(q="OF C")).items] == ["c"]


@virtually
async def test_a_credential_that_documents_name_is_not_deleted_unless_forced() -> None:
    async with scene() as s:
        made = await s.client.put_credential(put())
        await s.client.register(Register(content=HEAD + USES))
        fault = await refused(s.client.delete_credential("pg"))
        assert (fault.problem.code, "demo/it" in fault.problem.detail) == ("in_use", True)
        gone = await s.client.delete_credential("pg", force=True)
        assert gone.id == made.id
        assert (await refused(s.client.credential("pg"))).problem.code == "not_found"
        assert (await refused(s.client.delete_credential("pg"))).problem.code == "not_found"
        await s.client.put_credential(put("free"))
        assert (await s.client.delete_credential("free")).id


@virtually
async def test_a_document_puts_its_data_into_the_wallet_and_none_into_the_catalog() -> None:
    text = (
        "apiVersion: noetl.io/v2\nkind: Credential\n"
        "metadata: {name: pg, path: credentials/pg, description: main, tags: [t]}\n"
        f"spec: {{type: postgres, data: {{host: db, password: {CANARY}, port: 5432}}}}\n"
    )
    async with scene() as s:
        made = await s.client.register(Register(content=text))
        entry = await s.client.entry(made.catalog_id)
        assert CANARY not in entry.content
        assert '"password": "***"' in entry.content
        shown = await s.client.credential("pg", reveal=True)
        assert shown.data == {"host": "db", "password": CANARY, "port": 5432}
        assert (shown.description, shown.tags) == ("main", ("t",))
        other = text.replace(CANARY, "newer-canary-2")
        assert (await s.client.register(Register(content=other))).changed is False
        shown = await s.client.credential("pg", reveal=True)
        assert "newer-canary-2" in shown.data.values()
        again = await s.client.register(Register(content=entry.content.replace("***", "third-1")))
        assert again.changed is False


@virtually
async def test_without_a_key_nothing_is_kept_and_runs_still_start() -> None:
    async with scene(wallet=None) as s:
        fault = await refused(s.client.put_credential(put()))
        assert (fault.problem.status, fault.problem.code) == (503, "kek_unavailable")
        command = await s.claimed(
            'workflow:\n  - {step: start, tool: {kind: python, code: "return 1"}}\n'
        )
        await s.r.done(command)
        assert await s.r.status(command.execution_id) == "COMPLETED"


@virtually
async def test_a_credential_that_a_tool_of_a_plugin_names_is_in_use() -> None:
    tool = "workflow: [{step: start, tool: {kind: acme_crm, %s}}]\n"
    async with scene(plugins={"acme_crm": {}}) as s:
        for where in ("auth: pg", "source: {credential: pg}"):
            await s.client.put_credential(put())
            await s.client.register(Register(content=HEAD + tool % where))
            fault = await refused(s.client.delete_credential("pg"))
            assert (fault.problem.code, "demo/it" in fault.problem.detail) == ("in_use", True)
