"""The effective workload: defaults under the payload, rendered once, data never a template."""

import pytest

from noetl.dsl.template import UndefinedName
from noetl.dsl.workload import effective

ABOUT = {"execution_id": "7"}


def values(defaults: dict[str, object], payload: dict[str, object]) -> dict[str, object]:
    return effective(defaults, payload, ABOUT)[0]


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
    found, warnings = effective({"request_id": "{{ request_id }}"}, {}, ABOUT)
    assert found == {"request_id": None}
    assert warnings == ("`request_id` is undefined and read as null in `{{ request_id }}`",)


def test_an_undefined_name_inside_a_text_is_an_error() -> None:
    with pytest.raises(UndefinedName):
        effective({"a": "id {{ nowhere }}"}, {}, ABOUT)
