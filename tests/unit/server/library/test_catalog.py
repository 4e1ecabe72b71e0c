"""Documents are registered, found, compared, promoted and put away."""

from __future__ import annotations

from base64 import b64encode
from pathlib import Path
from urllib.parse import quote

import msgspec
import pytest

from noetl.api.catalog import CatalogQuery, Register, Removal, Validate
from noetl.api.executions import Execute
from noetl.api.http import AsgiTransport
from noetl.api.problems import Refused
from noetl.server.routes.etags import is_known
from tests.unit.server.rig import HEAD, ONE_STEP, TWO_STEPS, rig, virtually

EXAMPLES = Path(__file__).parents[4] / "examples"
PATH = "demo/it"
FORM = """
inputs:
  text:   {type: string, required: true, title: A text, description: Words}
  whole:  {type: integer, default: 3}
  part:   {type: number, default: 1.5}
  is_on:  {type: boolean, default: true}
  box:    {type: object, properties: {inner: {type: string, default: x}}}
  list:   {type: array, default: [1]}
  choice: {type: string, enum: [a, b]}
  key:    {type: string, secret: true}
  login:  {type: string, credential: "crm_*"}
workload:
  nothing: null
  region: eu      # ui:enum=[eu, us] ui:description=where to run
  token: ""       # ui:secret
  unseen: 1       # ui:hidden
"""


async def ask(r, method, path, body=None, **headers):
    data = b"" if body is None else msgspec.json.encode(body)
    named = {name.replace("_", "-"): value for name, value in headers.items()}
    return await AsgiTransport(r.server.asgi).request(method, path, data, named)


async def told(r, method, path, body=None):
    answer = await ask(r, method, path, body)
    value = msgspec.json.decode(answer.body)
    return answer.status, value.get("code", value)


async def refused(call):
    with pytest.raises(Refused) as caught:
        await call
    return caught.value.problem.status, caught.value.code


def named(path, body=ONE_STEP):
    return HEAD.replace("demo/it", path) + body


# --------------------------------------------------------------------------- register


@virtually
async def test_the_same_text_twice_is_one_version_whatever_its_line_ends() -> None:
    async with rig() as r:
        first = await r.client.register(Register(content=HEAD + ONE_STEP))
        for text in (HEAD + ONE_STEP, (HEAD + ONE_STEP).replace("\n", "\r\n")):
            status, again = await told(r, "POST", "/api/catalog/register", {"content": text})
            assert (status, again["version"], again["changed"]) == (200, 1, False)
            assert again["digest"] == first.digest
        packed = b64encode((HEAD + TWO_STEPS).encode()).decode()
        body = {"content": packed, "encoding": "base64", "message": "two"}
        status, made = await told(r, "POST", "/api/catalog/register", body)
        assert (status, made["version"], made["changed"]) == (201, 2, True)
        older = await r.client.register(Register(content=HEAD + ONE_STEP))
        assert (older.version, older.changed, older.digest) == (3, True, first.digest)
        assert (await r.client.entry(made["catalog_id"])).message == "two"


@virtually
async def test_a_document_that_is_not_valid_is_not_kept() -> None:
    async with rig() as r:
        bad = (HEAD + ONE_STEP).replace("workflow", "worklow")
        answer = await ask(r, "POST", "/api/catalog/register", {"content": bad})
        problem = msgspec.json.decode(answer.body)
        assert (answer.status, problem["code"]) == (422, "invalid_playbook")
        assert [error["code"] for error in problem["errors"]] == ["DSL030"]
        assert problem["errors"][0]["hint"] == "did you mean `workflow`?"
        assert (await r.client.catalog(CatalogQuery(versions="all"))).entries == ()


@virtually
async def test_what_lists_search_is_kept_with_the_document() -> None:
    async with rig() as r:
        about = "{name: demo, path: demo/it, description: Counts sheep, tags: [Night], owner: anna}"
        text = HEAD.replace("{name: demo, path: demo/it}", about) + ONE_STEP
        await r.client.register(Register(content=text))
        await r.client.register(Register(content=named("demo/other")))
        for word in ("SHEEP", "night", "demo/it"):
            page = await r.client.catalog(CatalogQuery(q=word))
            assert [entry.path for entry in page.entries] == [PATH]
        assert page.entries[0].meta["owner"] == "anna"
        assert page.entries[0].content is None


@virtually
async def test_kinds_have_the_words_of_the_catalog() -> None:
    async with rig() as r:
        test = "apiVersion: noetl.io/v2\nkind: PlaybookTest\nmetadata: {name: t, path: demo/t}\n"
        made = await r.client.register(
            Register(content=test + "spec: {playbook: demo/it, cases: [{name: a}]}")
        )
        agent = HEAD.replace("path: demo/it", "path: demo/agent, agent: true") + ONE_STEP
        kinds = [made.kind, (await r.client.register(Register(content=agent))).kind]
        assert kinds == ["playbook_test", "agent"]
        for spelling in ("PlaybookTest", "playbook_test"):
            page = await r.client.catalog(CatalogQuery(resource_type=spelling))
            assert [entry.path for entry in page.entries] == ["demo/t"]


@virtually
async def test_a_version_may_wait_until_it_is_promoted() -> None:
    async with rig() as r:
        triggers = "triggers: [{cron: '@hourly', name: tick}]\n"
        await r.client.register(Register(content=HEAD + ONE_STEP))
        await r.client.register(Register(content=HEAD + triggers + TWO_STEPS, activate=False))
        assert (await r.client.resolve(PATH)).version == 1
        assert await r.store.schedules.next_due() is None
        made = await r.client.promote(PATH, 2)
        assert (made.version, made.previous, made.changed) == (2, 1, True)
        assert (await r.client.resolve(PATH)).version == 2
        assert await r.store.schedules.next_due() is not None
        back = await r.client.promote(PATH, "1")
        assert (back.version, back.previous) == (1, 2)
        assert await r.store.schedules.next_due() is None
        assert not (await r.client.promote(PATH, 1)).changed
        assert (await r.client.execute(Execute(path=PATH))).version == 1
        assert (await r.client.execute(Execute(path=f"{PATH}@2"))).version == 2
        assert await refused(r.client.promote(PATH, 7)) == (404, "unknown_path")
        assert await refused(r.client.promote(PATH, "latest")) == (422, "validation_failed")
        assert await refused(r.client.promote("nowhere", 1)) == (404, "unknown_path")


# ---------------------------------------------------------------------------- removal


@virtually
async def test_what_has_runs_is_archived_and_comes_back() -> None:
    async with rig() as r:
        run = await r.start(ONE_STEP)
        made = await r.client.resolve(PATH)
        gone = await r.client.delete_document(Removal(path=PATH))
        assert (gone.deleted, gone.archived, gone.count) == ((), (1,), 1)
        assert await refused(r.client.execute(Execute(path=PATH))) == (404, "unknown_path")
        assert await refused(r.client.resolve(PATH)) == (404, "unknown_path")
        assert (await r.client.execute(Execute(catalog_id=made.catalog_id))).version == 1
        assert (await r.client.execution(run)).path == PATH
        page = await r.client.versions(PATH)
        assert [(one.archived, one.execution_count) for one in page.items] == [(True, 2)]
        assert await refused(r.client.promote(PATH, 1)) == (404, "unknown_path")
        back = await r.client.restore_document(Removal(path=PATH, version=1))
        assert (back.restored, back.count) == ((1,), 1)
        assert (await r.client.execute(Execute(path=PATH))).version == 1
        assert (await r.client.restore_document(Removal(path=PATH))).count == 0


@virtually
async def test_what_has_no_runs_is_removed() -> None:
    async with rig() as r:
        made = await r.client.register(Register(content=HEAD + ONE_STEP))
        gone = await r.client.delete_document(Removal(path=PATH, version=1))
        assert (gone.deleted, gone.archived, gone.count) == ((1,), (), 1)
        by_id = r.client.execute(Execute(catalog_id=made.catalog_id))
        assert await refused(by_id) == (404, "unknown_path")
        assert await refused(r.client.versions(PATH)) == (404, "unknown_path")
        assert (await r.client.delete_document(Removal(path=PATH))).count == 0
        assert (await r.client.delete_document(Removal(path="nowhere"))).status == "success"
        bad = r.client.delete_document(Removal(path=PATH, version="latest"))
        assert await refused(bad) == (422, "validation_failed")


@virtually
async def test_a_run_that_began_while_its_document_was_removed_goes_on() -> None:
    async with rig() as r:
        await r.client.register(Register(content=HEAD + TWO_STEPS))
        entry = await r.store.catalog.resolve("default", PATH)
        await r.client.delete_document(Removal(path=PATH))
        r.plane.programs._kept.clear()  # noqa: SLF001 - another server has it not at hand
        program = await r.plane.programs.get(entry.catalog_id)
        assert program.playbook.path == PATH


@virtually
async def test_archiving_ends_schedules_and_restoring_brings_them_back() -> None:
    async with rig() as r:
        triggers = "triggers: [{cron: '@hourly', name: tick}]\n"
        await r.client.register(Register(content=HEAD + triggers + ONE_STEP))
        assert (await r.client.archive_document(Removal(path=PATH))).archived == (1,)
        assert await r.store.schedules.next_due() is None
        await r.client.restore_document(Removal(path=PATH))
        assert await r.store.schedules.next_due() is not None


# ---------------------------------------------------------------------------- reading


@virtually
async def test_versions_come_in_pages() -> None:
    async with rig() as r:
        for number in range(5):
            text = HEAD + f"workload: {{n: {number}}}" + ONE_STEP
            await r.client.register(Register(content=text, message=f"m{number}"))
        page = await r.client.versions(PATH, limit=2)
        assert [(one.version, one.active, one.message) for one in page.items] == [
            (5, True, "m4"), (4, False, "m3"),
        ]  # fmt: skip
        rest = await r.client.versions(PATH, limit=3, cursor=page.next_cursor)
        assert ([one.version for one in rest.items], rest.next_cursor) == ([3, 2, 1], None)
        other = r.client.versions("demo/other", cursor=page.next_cursor)
        assert await refused(other) == (422, "bad_cursor")


@virtually
async def test_two_versions_are_compared() -> None:
    async with rig() as r:
        texts = [(EXAMPLES / f"pagination_{way}.yaml").read_text() for way in ("cycle", "pipeline")]
        for text in texts:
            model = text.replace("pagination_pipeline", "pagination_cycle")
            await r.client.register(Register(content=model))
        path = (await r.client.catalog(CatalogQuery())).entries[0].path
        test = "apiVersion: noetl.io/v2\nkind: PlaybookTest\nmetadata: {name: t, path: demo/t}\n"
        spec = f"spec: {{playbook: {path}, cases: [{{name: a, expect: {{calls: {{page: 1}}}}}}]}}"
        await r.client.register(Register(content=test + spec))
        found = await r.client.difference(path)
        assert (found.from_, found.to) == (1, 2)
        assert found.unified.startswith(f"--- {path}@1\n+++ {path}@2\n@@ ")
        assert found.steps.removed == ("page", "sum_up")
        assert found.steps.changed[0].step == "start"
        changes = {one.name: one for one in found.workload}
        assert (changes["most_pages"].to, changes["most_pages"].from_) == (50, msgspec.UNSET)
        assert [(one.code, one.name) for one in found.breaking] == [
            ("input_removed", "pages"),
            ("step_removed", "page"),
        ]
        same = await r.client.difference(path, 2, 2)
        assert (same.unified, same.breaking) == ("", ())
        back = await r.client.difference(path, 2, 1)
        assert back.steps.added == ("page", "sum_up")
        assert await refused(r.client.difference(path, 9)) == (404, "unknown_path")


@virtually
async def test_the_first_version_differs_from_nothing() -> None:
    async with rig() as r:
        await r.client.register(Register(content=HEAD + ONE_STEP))
        found = await r.client.difference(PATH)
        assert (found.from_, found.to, found.unified) == (1, 1, "")


@virtually
async def test_a_form_has_every_kind_of_field() -> None:
    async with rig() as r:
        await r.client.register(Register(content=HEAD + FORM + ONE_STEP))
        form = await r.client.form(PATH)
        fields = {field.name: field for field in form.fields}
        assert {name: field.kind for name, field in fields.items()} == {
            "text": "string", "whole": "integer", "part": "number", "is_on": "boolean",
            "box": "object", "list": "array", "choice": "enum", "key": "string",
            "login": "string", "nothing": "null", "region": "enum", "token": "string",
        }  # fmt: skip
        assert fields["text"].required
        assert (fields["text"].title, fields["text"].description) == ("A text", "Words")
        assert fields["box"].children[0].default == "x"
        assert (fields["choice"].options, fields["region"].options) == (("a", "b"), ("eu", "us"))
        assert fields["region"].description == "where to run"
        assert (fields["key"].secret, fields["token"].secret) == (True, True)
        assert fields["login"].credential_glob == "crm_*"
        assert (form.path, form.version, form.kind, form.title) == (PATH, 1, "playbook", "demo")


@virtually
async def test_the_form_of_a_document_that_no_longer_parses_has_no_fields() -> None:
    async with rig() as r:
        await r.client.register(Register(content=HEAD + ONE_STEP))
        entry = await r.store.catalog.resolve("default", PATH)
        broken = msgspec.structs.replace(
            entry, catalog_id="77", content="kind: Playbook", digest="00" * 32
        )
        await r.store.catalog.add(broken)
        form = await r.client.form(PATH, "latest")
        assert (form.version, form.path, form.fields) == (2, PATH, ())
        assert (await r.client.document_graph(PATH)).nodes == ()


@virtually
async def test_a_graph_has_steps_and_arcs() -> None:
    async with rig() as r:
        text = (EXAMPLES / "branches.yaml").read_text()
        made = await r.client.register(Register(content=text))
        shown = await r.client.document_graph(made.path, 1)
        first = shown.nodes[0]
        assert (first.id, first.kind, first.label, first.is_entry) == (
            "start",
            "step",
            "start",
            True,
        )
        assert {node.kind for node in shown.nodes} <= {"step", "end"}
        assert all(
            {edge.from_, edge.to} <= {node.id for node in shown.nodes} for edge in shown.edges
        )
        assert any(edge.when for edge in shown.edges)
        status, plain = await told(r, "GET", f"/api/catalog/{made.path}/graph")
        assert status == 200
        assert {"from", "to"} <= set(plain["edges"][0])


@virtually
async def test_validating_tells_everything_and_keeps_nothing() -> None:
    async with rig() as r:
        good = await r.client.validate(Validate(content=HEAD + TWO_STEPS))
        assert (good.valid, [node.id for node in good.graph.nodes]) == (True, ["start", "end"])
        bad = await r.client.validate(Validate(content=HEAD + "worklow: []\nnonsense: 1\n"))
        assert not bad.valid
        assert [item["code"] for item in bad.diagnostics if item["severity"] == "error"][:2] == [
            "DSL030",
            "DSL030",
        ]
        assert set(bad.diagnostics[0]) == {
            "code", "severity", "message", "hint", "line", "column", "end_line", "end_column",
            "pointer", "doc",
        }  # fmt: skip
        slow = HEAD + "workflow: [{step: start, tool: {kind: http, url: 'https://a.example'}}]"
        assert "DSL205" in [
            i["code"] for i in (await r.client.validate(Validate(content=slow))).diagnostics
        ]
        assert (await r.client.catalog(CatalogQuery())).entries == ()


# ------------------------------------------------------------------------- paths, tags


@virtually
async def test_a_document_may_be_called_like_a_route() -> None:
    async with rig() as r:
        for path in ("a/versions", "versions", "a/versions/versions", "resource", "delete/run"):
            await r.client.register(Register(content=named(path)))
            page = await r.client.versions(path)
            assert [one.version for one in page.items] == [1]
            assert (await r.client.document_graph(path)).path == path
            assert (await r.client.promote(path, 1)).path == path
        assert await refused(r.client.versions("a")) == (404, "unknown_path")


@pytest.mark.parametrize(
    "path",
    [
        "/demo/it", "demo//it", "demo/../demo/it", "./demo/it", "demo/it/", "demo;it", "demo%2eit",
        "demo it", "d\u00e9mo", "demo/..", "",
    ],
)  # fmt: skip
def test_tricks_with_paths_are_refused(path) -> None:
    async def tried() -> None:
        async with rig() as r:
            await r.client.register(Register(content=HEAD + ONE_STEP))
            for word in ("versions", "diff", "ui_schema", "graph"):
                status, code = await told(r, "GET", f"/api/catalog/{quote(path)}/{word}")
                assert (status, code) == (422, "path_invalid")
            body = {"path": path}
            for word in ("delete", "archive", "restore"):
                assert await told(r, "POST", f"/api/catalog/{word}", body) == (422, "path_invalid")
            assert (await r.client.resolve(PATH)).version == 1

    virtually(tried)()


@virtually
async def test_an_answer_that_is_known_is_not_sent_again() -> None:
    async with rig() as r:
        await r.client.register(Register(content=HEAD + ONE_STEP))
        for path in (
            f"/api/catalog/resource?path={PATH}", "/api/catalog", f"/api/catalog/{PATH}/versions",
            f"/api/catalog/{PATH}/diff", f"/api/catalog/{PATH}/ui_schema",
            f"/api/catalog/{PATH}/graph", "/api/schema", "/api/schema/playbook", "/api/tools",
            "/api/tools/http",
        ):  # fmt: skip
            first = await ask(r, "GET", path)
            assert first.status == 200
            known = await ask(r, "GET", path, if_none_match=f'"x", W/{first.headers["etag"]}')
            assert (known.status, known.body) == (304, b"")
            assert known.headers["etag"] == first.headers["etag"]
        tag = first.headers["etag"]
        await r.client.register(Register(content=HEAD + TWO_STEPS))
        changed = await ask(r, "GET", f"/api/catalog/{PATH}/versions", if_none_match=tag)
        assert changed.status == 200


def test_a_star_names_every_tag() -> None:
    assert is_known("*", '"a"')
    assert is_known('"b", "a"', '"a"')
    assert not is_known("", '"a"')


@virtually
async def test_the_language_is_told_as_schemas() -> None:
    async with rig() as r:
        kinds = await r.client.kinds()
        assert [one.kind for one in kinds.items][:2] == ["Playbook", "Subscription"]
        schema = await r.client.schema("playbooktest")
        assert schema["$id"] == "https://noetl.io/schema/v2/PlaybookTest.json"
        tools = await r.client.tools()
        assert {"python", "http", "wait"} <= {one.kind for one in tools.items}
        tool = await r.client.tool("http")
        assert (tool.schema["title"], tool.description) == ("http", tools.items[1].description)
        assert await refused(r.client.schema("Playbok")) == (404, "not_found")
        assert await refused(r.client.tool("htp")) == (404, "not_found")


@virtually
async def test_a_name_that_no_query_has_is_refused() -> None:
    async with rig() as r:
        for path in ("/api/catalog/a/versions?x=1", "/api/schema?x=1", "/api/catalog?versions=old"):
            status, _ = await told(r, "GET", path)
            assert status == 422
