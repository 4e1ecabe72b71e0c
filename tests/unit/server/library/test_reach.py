"""Who sees and changes which documents."""

from __future__ import annotations

from dataclasses import replace

import pytest

from noetl.api.catalog import CatalogQuery, Promote, Register, Removal, Resource, RunTests
from noetl.api.executions import Execute
from noetl.errors import NoetlError
from noetl.server.access.entry import Caller
from noetl.store.identity import Grant
from tests.unit.server.access.test_entry import ask, token
from tests.unit.server.rig import HEAD, ONE_STEP, TWO_STEPS, rig, virtually

PATH = "demo/it"
DEVELOPER = Caller("dora", ("developer",))
VIEWER = Caller("vera", ("viewer",))
OPERATOR = Caller("otto", ("operator",))
THEIRS = Caller("tom", ("admin",), tenant_id="acme")
WORKER = Caller("w", ("worker",), "shared")


def named(path: str, body: str = ONE_STEP) -> Register:
    return Register(content=HEAD.replace(PATH, path) + body)


async def code(call) -> str:
    with pytest.raises(NoetlError) as caught:
        await call
    return caught.value.code


@virtually
async def test_the_documents_of_another_tenant_are_not_there() -> None:
    async with rig() as r:
        ours = await r.plane.registration.register(named(PATH), DEVELOPER)
        documents, registration = r.plane.documents, r.plane.registration
        for wanted in (Resource(path=PATH), Resource(catalog_id=ours.catalog_id)):
            assert await code(documents.find(wanted, THEIRS)) == "unknown_path"
        assert await code(documents.versions(THEIRS, PATH, 50, None)) == "unknown_path"
        assert await code(documents.form(THEIRS, PATH, None)) == "unknown_path"
        assert await code(documents.graph(THEIRS, PATH, None)) == "unknown_path"
        assert await code(documents.compared(THEIRS, PATH, None, None)) == "unknown_path"
        assert await code(registration.promote(THEIRS, PATH, Promote(version=1))) == "unknown_path"
        assert await code(r.plane.trials.run(THEIRS, PATH, RunTests())) == "unknown_path"
        for start in (Execute(path=PATH), Execute(catalog_id=ours.catalog_id)):
            assert await code(r.plane.starts.execute(start, THEIRS)) == "unknown_path"
        for change in (registration.remove, registration.archive, registration.restore):
            assert (await change(THEIRS, Removal(path=PATH))).count == 0
        assert (await documents.listed(CatalogQuery(), THEIRS)).entries == ()
        theirs = await registration.register(named(PATH, TWO_STEPS), THEIRS)
        assert (theirs.version, theirs.changed) == (1, True)
        started = await r.plane.starts.execute(Execute(path=PATH), THEIRS)
        assert started.catalog_id == theirs.catalog_id
        assert (await documents.find(Resource(path=PATH), DEVELOPER)).catalog_id == ours.catalog_id


@virtually
async def test_a_cursor_of_one_tenant_is_none_of_another() -> None:
    async with rig() as r:
        for path in ("a", "b"):
            await r.plane.registration.register(named(path), DEVELOPER)
        page = await r.plane.documents.listed(CatalogQuery(limit=1), DEVELOPER)
        query = CatalogQuery(limit=1, cursor=page.next_cursor)
        assert await code(r.plane.documents.listed(query, THEIRS)) == "bad_cursor"
        rest = await r.plane.documents.listed(query, DEVELOPER)
        assert [entry.path for entry in rest.entries] == ["b"]


@virtually
async def test_the_platforms_own_paths_are_reserved() -> None:
    async with rig() as r:
        registration = r.plane.registration
        for path in ("system/x", "System/x", "default/system/x"):
            made = registration.register(named(path), DEVELOPER)
            assert await code(made) == "reserved_namespace"
        await registration.register(named("system/x"))
        promoted = registration.promote(DEVELOPER, "system/x", Promote(version=1))
        assert await code(promoted) == "reserved_namespace"
        gone = registration.remove(OPERATOR, Removal(path="system/x"))
        assert await code(gone) == "reserved_namespace"


@virtually
async def test_the_platforms_own_pool_is_not_named_in_playbooks_of_others() -> None:
    async with rig() as r:
        spec = "executor: {spec: {pool: system}}\ntriggers: [{cron: '@hourly', pool: system}]\n"
        steps = "workflow: [{step: start, spec: {pool: system}, tool: {kind: noop}}]"
        text = HEAD + spec + steps
        with pytest.raises(NoetlError) as caught:
            await r.plane.registration.register(Register(content=text), DEVELOPER)
        assert (caught.value.code, caught.value.status) == ("reserved_pool", 422)
        assert [error["pointer"] for error in caught.value.errors] == [
            "/executor/spec/pool",
            "/triggers/0/pool",
            "/workflow/0/spec/pool",
        ]
        assert (await r.plane.registration.register(Register(content=text))).changed


@virtually
async def test_grants_open_and_close_paths() -> None:
    async with rig() as r:
        for path in ("finance/a", "finance/secret", "open/b"):
            await r.plane.registration.register(named(path), DEVELOPER)
        deny = Grant(effect="deny", actions=("view",), path="finance/secret")
        kept_out = replace(VIEWER, grants=(deny,))
        find = r.plane.documents.find
        assert await code(find(Resource(path="finance/secret"), kept_out)) == "forbidden"
        page = await r.plane.documents.listed(CatalogQuery(), kept_out)
        assert [entry.path for entry in page.entries] == ["finance/a", "open/b"]
        allow = Grant(effect="allow", actions=("catalog:delete",), path="open/*")
        trusted = replace(DEVELOPER, grants=(allow,))
        assert (await r.plane.registration.remove(trusted, Removal(path="open/b"))).count == 1
        other = r.plane.registration.remove(trusted, Removal(path="finance/a"))
        assert await code(other) == "forbidden"


@virtually
async def test_a_worker_reads_what_it_was_told_of_and_looks_for_nothing() -> None:
    async with rig() as r:
        made = await r.plane.registration.register(named(PATH), THEIRS)
        found = await r.plane.documents.find(Resource(catalog_id=made.catalog_id), WORKER)
        assert found.path == PATH
        await r.plane.registration.remove(THEIRS, Removal(path=PATH))
        assert await r.plane.documents.find(Resource(catalog_id=made.catalog_id), WORKER) == found
        assert await code(r.plane.documents.find(Resource(path=PATH), WORKER)) == "forbidden"
        assert await code(r.plane.documents.listed(CatalogQuery(), WORKER)) == "forbidden"
        by_id = Resource(catalog_id=made.catalog_id)
        assert await code(r.plane.documents.find(by_id, THEIRS)) == "unknown_path"


@virtually
async def test_schemas_need_no_login_and_tools_do() -> None:
    async with rig(is_open=False) as r:
        bearer = f"Bearer {await token(r, 'viewer')}"
        for path, anonymous in (("/api/schema", 200), ("/api/schema/Playbook", 200)):
            assert (await ask(r, None, "GET", path))[0] == anonymous
        for path in ("/api/tools", "/api/tools/http", "/api/catalog", "/api/catalog/a/versions"):
            assert (await ask(r, None, "GET", path))[0] == 401
        assert (await ask(r, bearer, "GET", "/api/tools/http"))[0] == 200
        assert await ask(r, bearer, "POST", "/api/catalog/a/promote") == (403, "forbidden")
        assert await ask(r, bearer, "POST", "/api/catalog/delete") == (403, "forbidden")
        assert await ask(r, bearer, "GET", "/api/catalog/a/versions") == (404, "unknown_path")
