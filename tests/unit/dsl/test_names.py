"""Which names a template reads."""

import pytest

from noetl.dsl.names import names_in, names_in_condition, nodes_of, outcome_of
from noetl.dsl.playbook.routing import Arc
from noetl.dsl.template import compile_template


def test_names_are_collected_from_every_text_of_a_value() -> None:
    value = {"{{ k }}": ["{{ a.b }}", {"c": "x{{ d['e'].f }}"}], "plain": 7, "text": "no {braces}"}
    assert names_in(value) == {("k",), ("a", "b"), ("d", "e", "f")}


def test_names_of_a_condition() -> None:
    assert names_in_condition("a.b and c") == {("a", "b"), ("c",)}
    assert names_in_condition(condition=True) == frozenset()
    assert names_in_condition(None) == frozenset()


@pytest.mark.parametrize(
    ("arc", "outcome"),
    [
        (Arc(step="a"), "success"),
        (Arc(step="a", when="{{ output.data.n > 3 }}"), "success"),
        (Arc(step="a", when=True), "success"),
        (Arc(step="a", when="{{ output.status == 'ok' }}"), "any"),
        (Arc(step="a", when="output.error.kind == 'timeout'"), "any"),
        (Arc(step="a", when="event.name == 'call.done'"), "any"),
        (Arc(step="a", when="{{ output | length }}"), "any"),
        (Arc(step="a", when="{{ output.status == 'ok' }}", on="error"), "error"),
        (Arc(step="a", on="any"), "any"),
    ],
)
def test_an_arc_waits_for_the_outcome_that_its_condition_reads(arc: Arc, outcome: str) -> None:
    assert outcome_of(arc) == outcome


def test_every_node_of_a_template_is_visited() -> None:
    template = compile_template("{% if a %}{{ b | default(1) }}{% endif %}")
    assert {type(node).__name__ for node in nodes_of(template)} >= {
        "If",
        "Name",
        "Filter",
        "Literal",
    }
