"""Whether an answer is one that the document tells of."""

from __future__ import annotations

from copy import deepcopy
from functools import lru_cache
from typing import TYPE_CHECKING, Any

import jsonschema_rs
import msgspec

from tests.fuzz.api.cases import UNKNOWN, document, operation

if TYPE_CHECKING:
    from tests.fuzz.api.cases import Request
    from tests.fuzz.api.stage import Answer

PROBLEM = "application/problem+json"
BROKEN = 500
BODILESS = (204, 304, 416)


def faults(name: str, request: Request, answer: Answer) -> list[str]:
    """What is wrong with an answer."""
    if answer.status >= BROKEN:
        return [f"the status is {answer.status}"]
    told = operation(name)["responses"].get(str(answer.status))
    if told is None:
        return [f"the status {answer.status} is not told"]
    found = []
    if not answer.headers.get("x-request-id"):
        found.append("there is no X-Request-ID")
    kind = answer.headers.get("content-type", "").partition(";")[0]
    content = told.get("content", {})
    if not content:
        return [*found, "there is a body"] if answer.body else found
    known = kind if kind in content else "*/*" if "*/*" in content else None
    if known is None:
        return [*found, f"the media type {kind!r} is not told of {answer.status}"]
    if kind not in {PROBLEM, "application/json"} or known == "*/*":
        return found
    found += _unlike(name, str(answer.status), kind, answer.body)
    if kind == PROBLEM:
        found += _wrong_problem(told, answer, msgspec.json.decode(answer.body))
    elif UNKNOWN in request.query or _has_unknown_field(name, request):
        found.append("an unknown name was taken")
    return found


def _has_unknown_field(name: str, request: Request) -> bool:
    """Whether a body has a field that its model has not; one that is kept as it is has no model."""
    content = operation(name).get("requestBody", {}).get("content", {})
    schema = content.get("application/json", {}).get("schema", {})
    is_read = "$ref" in schema and "*/*" not in content
    return is_read and isinstance(request.body, dict) and UNKNOWN in request.body


def _wrong_problem(told: dict[str, Any], answer: Answer, value: dict[str, Any]) -> list[str]:
    found = []
    if value["status"] != answer.status:
        found.append("the problem has another status")
    if f"`{value['code']}`" not in told["description"]:
        found.append(f"the code {value['code']} of {answer.status} is not told")
    return found


@lru_cache(maxsize=16)
def _unlike(name: str, status: str, kind: str, body: bytes) -> tuple[str, ...]:
    """Where a body is not as its schema says; documents that never change are judged once."""
    value = msgspec.json.decode(body)
    schema = operation(name)["responses"][status]["content"][kind].get("schema", {})
    if not schema:
        return ()
    return tuple(
        f"{'/'.join(map(str, error.instance_path))}: {error.message[:200]}"
        for error in _validator(msgspec.json.encode(schema)).iter_errors(value)
    )


@lru_cache(maxsize=512)
def _validator(schema: bytes) -> Any:
    return jsonschema_rs.validator_for(
        {**msgspec.json.decode(schema), "components": {"schemas": _strict()}}
    )


@lru_cache(maxsize=1)
def _strict() -> dict[str, Any]:
    """The models, without members that the document does not tell of."""
    made = deepcopy(document()["components"]["schemas"])
    for schema in made.values():
        if "properties" in schema:
            schema.setdefault("additionalProperties", False)
    return made
