"""The API document: whole, valid, and the same as the route table."""

from __future__ import annotations

import re

import jsonschema_rs
import msgspec
import pytest
from jsonschema import Draft202012Validator
from schemathesis.specs.openapi.definitions import OPENAPI_31

from noetl.api.codes import PROBLEMS
from noetl.api.http import AsgiTransport
from noetl.engine.rows import TOP
from noetl.server.access.permissions import ANYBODY, PERMISSIONS, PUBLIC
from noetl.server.routes.openapi.page import POLICY
from tests.fuzz.api.cases import document, operation, operations
from tests.security.people import INNER, person
from tests.unit.server.rig import rig, virtually

SHUT = {"is_open": False, "internal_tokens": (INNER,)}


async def get(r, path: str, **headers: str):
    named = {key.replace("_", "-"): value for key, value in headers.items()}
    return await AsgiTransport(r.server.asgi).request("GET", path, b"", named)


def test_the_document_is_valid_openapi():
    faults = [
        f"{'/'.join(map(str, error.instance_path))}: {error.message[:200]}"
        for error in jsonschema_rs.validator_for(OPENAPI_31).iter_errors(document())
    ]
    assert faults == []


@pytest.mark.parametrize("name", document()["components"]["schemas"])
def test_every_model_is_a_valid_schema(name):
    Draft202012Validator.check_schema(document()["components"]["schemas"][name])


def test_every_reference_leads_to_a_model():
    text = msgspec.json.encode(document()).decode()
    named = set(re.findall(r'"#/components/schemas/([^"]+)"', text))
    assert named <= document()["components"]["schemas"].keys()


@pytest.mark.parametrize(("public", "told"), [("", "/"), ("https://noetl.example", None)])
def test_the_document_says_where_the_routes_are(public, told):
    @virtually
    async def scene() -> None:
        async with rig(public_url=public) as r:
            found = msgspec.json.decode((await get(r, "/api/openapi.json")).body)
            assert found["servers"] == [{"url": told or public}]

    scene()


@virtually
async def test_the_document_has_every_route_with_its_permission() -> None:
    async with rig() as r:
        served = {
            (method, re.sub(r":\w+}", "}", route.path)): route.permission
            for route in r.server.asgi.routes
            for method in route.methods - {"HEAD"}
        }
    told = {
        (method.upper(), path): one["x-noetl-permission"]
        for path, item in document()["paths"].items()
        for method, one in item.items()
    }
    assert told == served
    assert set(told.values()) <= {*PERMISSIONS, PUBLIC, ANYBODY}


def test_every_operation_says_what_it_does_and_what_it_answers():
    for name in operations():
        one = operation(name)
        assert one["summary"], name
        good = [status for status in one["responses"] if status.startswith("2")]
        assert good, name
        assert (one["security"] == []) == (one["x-noetl-permission"] == PUBLIC), name


def test_ids_of_operations_are_words_and_unique():
    names = [one["operationId"] for item in document()["paths"].values() for one in item.values()]
    assert len(names) == len(set(names))
    assert [name for name in names if not re.fullmatch(r"[a-z][a-z0-9_]+", name)] == []
    assert operations()["catalog_register"] == ("POST", "/api/catalog/register")
    assert operations()["executions_list"] == ("GET", "/api/executions")


def test_an_alias_is_told_like_the_main_route():
    one, other = operation("execute"), operation("run_playbook")
    for key in ("requestBody", "responses", "parameters", "x-noetl-permission"):
        assert one[key] == other[key]


def test_ids_in_paths_are_decimal_strings():
    (parameter,) = [p for p in operation("executions_get")["parameters"] if p["in"] == "path"]
    assert parameter["schema"]["type"] == "string"
    assert re.fullmatch(parameter["schema"]["pattern"], "331204559102443520")
    assert not re.fullmatch(parameter["schema"]["pattern"], "0x10")


def test_a_query_is_told_with_its_kinds_and_bounds():
    found = {p["name"]: p["schema"] for p in operation("executions_list")["parameters"]}
    assert found["limit"] == {"type": "integer", "minimum": 1, "maximum": 200}
    assert found["since"] == {"type": "string", "format": "date-time"}
    assert found["status"]["type"] == "array"


def test_streams_and_bytes_have_their_media_types():
    assert list(operation("stream")["responses"]["200"]["content"]) == ["text/event-stream"]
    assert set(operation("executions_logs")["responses"]["200"]["content"]) == {
        "application/json", "text/event-stream",
    }  # fmt: skip
    assert list(operation("result_resolve")["responses"]["206"]["content"]) == ["*/*"]
    assert "content" not in operation("users_delete")["responses"]["204"]


def test_problems_name_codes_of_the_table():
    for name in operations():
        for status, answer in operation(name)["responses"].items():
            if "application/problem+json" in answer.get("content", {}):
                codes = answer["description"].split("`")[1::2]
                assert [PROBLEMS[code].status for code in codes] == [int(status)] * len(codes)


def test_writes_that_are_audited_say_as_what():
    assert operation("catalog_register")["x-noetl-audit"] == "catalog.register"
    assert "x-noetl-audit" not in operation("execute")


def test_the_row_of_an_event_tells_every_fact_that_stands_by_name():
    assert set(TOP) <= document()["components"]["schemas"]["EventRow"]["properties"].keys()


@virtually
async def test_the_document_is_answered_with_a_tag() -> None:
    async with rig(**SHUT) as r:
        answer = await get(r, "/api/openapi.json")
        assert (answer.status, answer.headers["content-type"]) == (200, "application/json")
        assert msgspec.json.decode(answer.body) == msgspec.to_builtins(document())
        known = await get(r, "/api/openapi.json", if_none_match=answer.headers["etag"])
        assert (known.status, known.body) == (304, b"")


@virtually
async def test_in_production_the_document_and_its_page_ask_for_a_permission() -> None:
    async with rig(**SHUT, env="production") as r:
        viewer = f"Bearer {await person(r, 'viewer')}"
        for path in ("/api/openapi.json", "/api/docs"):
            assert (await get(r, path)).status == 401
            assert (await get(r, path, authorization=viewer)).status == 200


@virtually
async def test_the_page_shows_every_operation_and_loads_nothing() -> None:
    async with rig(**SHUT) as r:
        answer = await get(r, "/api/docs")
    page = answer.body.decode()
    assert answer.headers["content-type"].startswith("text/html")
    assert answer.headers["content-security-policy"] == POLICY
    assert [name for name in operations() if f'<details id="{name}">' not in page] == []
    assert re.findall(r'(?:src|href)="(?!#|/api/)[^"]*"|url\(|@import', page) == []
    assert len(answer.body) < 320_000
