"""The effective workload: defaults under the payload, rendered once, data never a template."""

import json

import pytest

from noetl.dsl.parse import read
from noetl.dsl.playbook import Playbook
from noetl.dsl.template import TemplateFailure, UndefinedName
from noetl.dsl.workload import _Scope, effective

ABOUT = {"execution_id": "7"}


def book(defaults: object, inputs: object = None) -> Playbook:
    """A playbook with these defaults; JSON is YAML."""
    head = {"apiVersion": "noetl.io/v2", "kind": "Playbook", "metadata": {"name": "a"}}
    body = {"workload": defaults, "inputs": inputs or {}, "workflow": [{"step": "s"}]}
    return read(json.dumps(head | body), Playbook)


def values(defaults: dict[str, object], payload: dict[str, object]) -> dict[str, object]:
    return effective(book(defaults), payload, ABOUT)[0]


def test_a_default_of_an_input_is_data_and_gives_way_to_the_payload() -> None:
    playbook = book(
        {"n": "{{ limit + 1 }}"}, {"limit": {"default": 20}, "t": {"default": "{{ x }}"}}
    )
    assert effective(playbook, {}, ABOUT)[0] == {"limit": 20, "t": "{{ x }}", "n": 21}
    assert effective(playbook, {"limit": 5, "n": 0}, ABOUT)[0] == {
        "t": "{{ x }}", "n": 0, "limit": 5,
    }  # fmt: skip


def test_maps_merge_and_everything_else_is_replaced() -> None:
    defaults = {"a": {"x": 1, "y": {"z": 2}}, "b": [1, 2], "c": 3, "d": {"k": 1}}
    payload = {"a": {"y": {"w": 5}}, "b": [9], "c": None, "d": 4, "e": "new"}
    assert values(defaults, payload) == {
        "a": {"x": 1, "y": {"z": 2, "w": 5}}, "b": [9], "c": None, "d": 4, "e": "new",
    }  # fmt: skip


def test_a_payload_is_data_and_never_rendered() -> None:
    payload: dict[str, object] = {"a": "{{ 7*7 }}", "m": {"q": "{{ 1 }}"}, "z": "{{ b }}"}
    assert values({"a": "x", "m": {"k": 1}}, payload) == {
        "a": "{{ 7*7 }}", "m": {"k": 1, "q": "{{ 1 }}"}, "z": "{{ b }}",
    }  # fmt: skip


def test_defaults_are_rendered_in_order_and_see_what_stands_above() -> None:
    defaults = {
        "n": 3,
        "twice": "{{ n * 2 }}",
        "again": "{{ workload.twice + 1 }}",
        "who": "{{ input.name }}",
        "id": "run {{ execution_id }}",
        "deep": [{"k{{ n }}": "{{ n }}"}, True],
    }
    assert values(defaults, {"name": "{{ x }}"}) == {
        "n": 3, "twice": 6, "again": 7, "who": "{{ x }}", "id": "run 7", "deep": [{"k3": 3}, True],
        "name": "{{ x }}",
    }  # fmt: skip


def test_a_lone_undefined_expression_becomes_null_with_a_warning() -> None:
    found, warnings = effective(book({"request_id": "{{ request_id }}"}), {}, ABOUT)
    assert found == {"request_id": None}
    assert warnings == ("`request_id` is undefined and read as null in `{{ request_id }}`",)


def test_an_undefined_name_inside_a_text_is_an_error() -> None:
    with pytest.raises(UndefinedName):
        effective(book({"a": "id {{ nowhere }}"}), {}, ABOUT)


def test_the_workload_so_far_is_a_copy_and_never_holds_itself() -> None:
    found = values({"a": 1, "all": "{{ workload }}", "more": "{{ workload.all.a }}"}, {})
    assert found == {"a": 1, "all": {"a": 1}, "more": 1}


def test_keys_are_rendered_whether_or_not_the_payload_has_their_map() -> None:
    defaults: dict[str, object] = {"m": {"{{ input.q }}": 1, "b": 2}}
    assert values(defaults, {"q": "k"}) == {"m": {"k": 1, "b": 2}, "q": "k"}
    assert values(defaults, {"q": "k", "m": {"k": 5}}) == {"m": {"k": 5, "b": 2}, "q": "k"}


def test_two_keys_that_come_out_alike_are_an_error() -> None:
    with pytest.raises(TemplateFailure):
        values({"m": {"{{ input.q }}": 1, "b": 2}}, {"q": "b"})


def test_a_scope_of_the_workload_lists_its_names() -> None:
    scope = _Scope({"a": 1}, {"input": {}})
    assert (dict(scope), len(scope)) == ({"a": 1, "input": {}}, 2)
