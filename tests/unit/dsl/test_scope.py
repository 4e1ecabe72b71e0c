"""Precedence of names."""

import pytest

from noetl.dsl.scope import Names, Scope
from noetl.dsl.template import compile_template


def test_a_higher_layer_hides_a_lower_one() -> None:
    layers = ("scopes", "inputs", "iteration", "tasks", "ctx", "steps", "workload", "late")
    for index, layer in enumerate(layers):
        names = Names(**{lower: {"x": lower} for lower in layers[index:]})
        assert Scope(names)["x"] == layer


def test_a_missing_name_is_missing() -> None:
    with pytest.raises(KeyError):
        Scope(Names())["x"]


def test_a_scope_lists_each_visible_name_once() -> None:
    scope = Scope(Names(ctx={"a": 1, "b": 2}, workload={"b": 3, "c": 4}))
    assert (list(scope), len(scope), dict(scope)) == (["a", "b", "c"], 3, {"a": 1, "b": 2, "c": 4})


def test_a_ctx_key_is_visible_bare_and_by_its_scope() -> None:
    ctx = {"a": 5}
    scope = Scope(Names(scopes={"ctx": ctx}, ctx=ctx))
    assert compile_template("{{ [a, ctx.a] }}").render(scope) == [5, 5]
