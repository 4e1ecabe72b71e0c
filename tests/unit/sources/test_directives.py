"""The vectors of the chapter on directives, and that no header reaches further than its rule."""

from __future__ import annotations

import json

import pytest
from hypothesis import given
from hypothesis import strategies as st

from noetl.dsl.parse import parse, read
from noetl.dsl.subscription import Subscription
from noetl.sources.directives import REASONS, Plan, resolve

TEXT = """\
apiVersion: noetl.io/v2
kind: Subscription
metadata: {name: s, path: subscriptions/s}
spec:
  source: nats
  mode: pull
  auth: nats_plant
  stream: READINGS
  consumer: noetl
  runtime: {pool: listeners}
  dispatch: {playbook: default/run, execution_pool: meters}
"""
ROUTE = {"header": "x-noetl-route", "controls": "dispatch.playbook", "allowed": ["a", "b"]}
POOL = {"header": "x-pool", "controls": "dispatch.execution_pool", "allowed": ["iot"]}
PRIORITY = {"header": "x-priority", "controls": "priority", "map": {"high": "fast"}}
PARENT = "00-0af7651916cd43dd8448eb211c80319c-b7ad6b7169203331-01"


def spec(*directives, **headers):
    if directives:
        headers["directives"] = list(directives)
    text = TEXT + (f"  headers: {json.dumps(headers)}\n" if headers else "")
    return read(text, Subscription).spec


def applied(header, controls, value):
    return {"header": header, "controls": controls, "effective_value": value}


def refused(header, controls, reason):
    return {"header": header, "controls": controls, "reason": reason}


def plan(playbook="default/run", execution_pool="meters", **more):
    return Plan(playbook=playbook, execution_pool=execution_pool, **more)


ROUTE_B = applied("x-noetl-route", "dispatch.playbook", "b")
POOL_IOT = applied("x-pool", "dispatch.execution_pool", "iot")
PRIORITY_LOST = refused("x-priority", "priority", "superseded")
VECTORS = {
    "1 no rules": ([], {"x-noetl-route": "a"}, plan()),
    "2 allowed, name in any case": (
        [ROUTE], {"X-NoETL-Route": "b"}, plan("b", applied=(ROUTE_B,)),
    ),
    "3 not allowed": (
        [ROUTE],
        {"x-noetl-route": "c"},
        plan(refused=(refused("x-noetl-route", "dispatch.playbook", "not_allowed"),)),
    ),
    "4 pool beats priority": (
        [PRIORITY, POOL],
        {"x-priority": "high", "x-pool": "iot"},
        plan(execution_pool="iot", applied=(POOL_IOT,), refused=(PRIORITY_LOST,)),
    ),
    "4 in the other order": (
        [POOL, PRIORITY],
        {"x-priority": "high", "x-pool": "iot"},
        plan(execution_pool="iot", applied=(POOL_IOT,), refused=(PRIORITY_LOST,)),
    ),
    "5 the later rule wins": (
        [{**ROUTE, "header": "x-a"}, {**ROUTE, "header": "x-b"}],
        {"x-a": "a", "x-b": "b"},
        plan(
            "b",
            applied=(applied("x-b", "dispatch.playbook", "b"),),
            refused=(refused("x-a", "dispatch.playbook", "superseded"),),
        ),
    ),
    "6 unmapped": (
        [PRIORITY],
        {"x-priority": "urgent"},
        plan(refused=(refused("x-priority", "priority", "unmapped"),)),
    ),
    "7 the last value wins": (
        [{**POOL, "allowed": ["iot", "fast"]}],
        {"x-pool": ["iot", "fast"]},
        plan(
            execution_pool="fast",
            applied=(applied("x-pool", "dispatch.execution_pool", "fast"),),
        ),
    ),
    "8 no text in the list": (
        [POOL],
        {"x-pool": [1, {"a": 2}]},
        plan(refused=(refused("x-pool", "dispatch.execution_pool", "not_text"),)),
    ),
    "9 both apply": (
        [ROUTE, POOL],
        {"x-noetl-route": "b", "x-pool": "iot"},
        plan("b", "iot", applied=(ROUTE_B, POOL_IOT)),
    ),
    "10 a number": (
        [{"header": "x-key", "controls": "idempotency_key"}],
        {"x-key": 42},
        plan(
            idempotency_key="42", applied=(applied("x-key", "idempotency_key", "42"),)
        ),
    ),
}  # fmt: skip


@pytest.mark.parametrize("name", VECTORS)
def test_vector(name):
    rules, headers, expected = VECTORS[name]
    assert resolve(spec(*rules), headers) == expected


def test_vector_11_upper_case_digits_are_no_trace():
    found = resolve(spec(trace={"propagate": "w3c"}), {"traceparent": PARENT.upper()})
    assert found == plan()


def test_vector_12_only_allowed_baggage_crosses_without_its_properties():
    rules = spec(trace={"propagate": "w3c", "baggage_allowlist": ["tenant"]})
    found = resolve(rules, {"baggage": "tenant=a=b;p=1, secret=x"})
    assert found == plan(trace={"baggage": {"tenant": "a=b"}})


def test_vector_13_a_trace_that_nobody_wants_does_not_cross():
    assert resolve(spec(), {"traceparent": PARENT}) == plan()


@pytest.mark.parametrize(
    ("rule", "word"),
    [
        ({"header": "x-a", "controls": "dispatch.playbook"}, "allowed"),
        ({"header": "x-a", "controls": "dispatch.playbook", "allowed": []}, "allowed"),
        ({"header": "x-a", "controls": "priority"}, "map"),
    ],
    ids=["no list", "empty list", "no map"],
)
def test_vector_14_a_rule_that_allows_nothing_is_refused(rule, word):
    faults = parse(TEXT + f"  headers: {json.dumps({'directives': [rule]})}\n").errors
    assert [(fault.code, word in fault.message) for fault in faults] == [
        ("directive_invalid", True)
    ]


@pytest.mark.parametrize(
    ("headers", "words"),
    [
        ({"directives": [{"header": "x-a", "controls": "nothing"}]}, ("priority", "schema_hint")),
        ({"trace": {"propagate": "b3"}}, ("none", "w3c")),
    ],
    ids=["controls", "propagate"],
)
def test_vector_15_an_unknown_word_is_refused_with_the_known_ones(headers, words):
    faults = parse(TEXT + f"  headers: {json.dumps(headers)}\n").errors
    assert [fault.code for fault in faults] == ["directive_invalid"]
    assert all(word in faults[0].message for word in words)


# ---------------------------------------------------------------------------- values


@pytest.mark.parametrize(
    ("value", "expected"),
    [
        ("  a  ", ("a", None)),
        (True, ("true", None)),
        (2.5, ("2.5", None)),
        ("", (None, "empty")),
        ("   ", (None, "empty")),
        ("x" * 1024, ("x" * 1024, None)),
        ("x" * 1025, (None, "too_long")),
        (10**5000, (None, "too_long")),
        ("a\x00b", (None, "not_text")),
        ("a\nb", (None, "not_text")),
        ("\ud800", (None, "not_text")),
        (None, (None, "not_text")),
        ({}, (None, "not_text")),
        ([], (None, "not_text")),
        (float("nan"), (None, "not_text")),
        (["a", 7], ("a", None)),
    ],
    ids=[
        "trimmed", "boolean", "float", "empty", "blank", "longest", "too long", "digits", "zero",
        "line", "surrogate", "none", "object", "no items", "nan", "last text",
    ],
)  # fmt: skip
def test_a_value_is_a_text_or_refused(value, expected):
    found = resolve(spec({"header": "x-key", "controls": "schema_hint"}), {"x-key": value})
    reason = found.refused[0]["reason"] if found.refused else None
    assert (found.schema_hint, reason) == expected


def test_headers_that_differ_in_case_alone_are_one_with_several_values():
    found = resolve(spec(ROUTE), {"X-NOETL-ROUTE": "a", "x-noetl-route": "b"})
    assert found.playbook == "b"


def test_allowed_holds_for_every_control():
    rule = {"header": "x-hint", "controls": "schema_hint", "allowed": ["v1"]}
    found = resolve(spec(rule), {"x-hint": "v2"})
    assert found == plan(refused=(refused("x-hint", "schema_hint", "not_allowed"),))


def test_without_a_pool_of_its_own_a_run_goes_to_the_pool_of_the_listener():
    text = TEXT.replace(", execution_pool: meters", "")
    assert resolve(read(text, Subscription).spec, {}).execution_pool == "listeners"


def test_headers_that_are_not_wanted_steer_nothing():
    rules = spec(normalize=False, trace={"propagate": "w3c"})
    assert resolve(rules, {"traceparent": PARENT}) == plan()


def test_a_plan_survives_its_storing():
    found = resolve(
        spec(ROUTE, PRIORITY, trace={"propagate": "w3c"}),
        {"x-noetl-route": "b", "x-priority": "low", "traceparent": PARENT},
    )
    assert Plan.from_json(json.loads(json.dumps(found.as_json()))) == found


def test_what_headers_have_chosen_is_told():
    found = resolve(spec(ROUTE, PRIORITY), {"x-noetl-route": "b", "x-priority": "high"})
    assert found.route_override == {"playbook": "b", "pool": "fast"}
    assert resolve(spec(), {}).route_override == {"playbook": None, "pool": None}


# ---------------------------------------------------------------------------- any headers

names = st.sampled_from(["x-noetl-route", "X-Pool", "x-pool", "x-priority", "X-PRIORITY", "other"])
scalars = st.one_of(
    st.none(),
    st.booleans(),
    st.integers(),
    st.floats(),
    st.text(),
    st.sampled_from(["a", "b", "iot", "high", "system", "a.b", "*", ">", "system/x"]),
)
values = st.one_of(scalars, st.lists(scalars), st.dictionaries(st.text(), scalars))


@given(
    st.dictionaries(st.one_of(names, st.text()), values), st.permutations([ROUTE, POOL, PRIORITY])
)
def test_12_for_arbitrary_headers_playbook_and_pool_are_always_ones_that_the_document_names(
    headers, rules
):
    found = resolve(spec(*rules), headers)
    assert found.playbook in {"default/run", "a", "b"}
    assert found.execution_pool in {"meters", "iot", "fast"}
    assert all(entry["reason"] in REASONS for entry in found.refused)
    assert Plan.from_json(json.loads(json.dumps(found.as_json()))) == found


@pytest.mark.parametrize("value", ["a.b", "*", ">", "system"])
def test_13_a_header_with_a_pool_that_nobody_allows_is_refused(value):
    found = resolve(spec(POOL), {"x-pool": value})
    assert found == plan(refused=(refused("x-pool", "dispatch.execution_pool", "not_allowed"),))
