"""The names inside a command."""

from uuid import NAMESPACE_OID, uuid5

import pytest

from noetl.dsl.playbook import Step
from noetl.dsl.playbook.loop import Loop
from noetl.dsl.template import compile_template
from noetl.dsl.views import NeedsObject, Reference
from noetl.engine.bindings import Bindings
from noetl.engine.writes import write_at

UUID = str(uuid5(NAMESPACE_OID, "81"))
BOUND = {
    "workload": {"w": 1, "x": "workload"},
    "ctx": {"c": {"d": 2}, "x": "ctx"},
    "steps": {
        "other": {"data": {"n": 3}},
        "x": {"data": "step"},
        "never": None,
        "before": {"data": {"r": 6}},
    },
    "execution": {"path": "p", "version": 4, "catalog_id": "9"},
    "step": {"kept": 5, "name": "s", "visit": 2},
    "routed_by": "before",
}
LOOP = Step(name="s", loop=Loop(source=[1], iterator="item"))


def value(bindings: Bindings, text: str) -> object:
    return compile_template(text).render(bindings.scope(keychain={"k": {"t": "secret"}}))


@pytest.mark.parametrize(
    ("expression", "expected"),
    [
        ("[w, workload.w]", [1, 1]),
        ("[c.d, ctx.c.d]", [2, 2]),
        ("[other.n, other.data.n, steps.other.n, other._status]", [3, 3, 3, "ok"]),
        ("1 if never else 2", 2),
        ("x", "ctx"),
        ("[step.name, step.visit, step.kept]", ["s", 2, 5]),
        ("[execution.id, execution.path, execution_id]", ["81", "p", "81"]),
        ("[catalog_id, path, version]", ["9", "p", 4]),
        ("job", {"uuid": UUID, "id": "81", "execution_id": "81"}),
        ("result.r", 6),
        ("keychain.k.t", "secret"),
        ("[input, args, iter]", [{}, {}, {}]),
    ],
)
def test_what_was_bound_is_visible_by_every_name(expression: str, expected: object) -> None:
    bindings = Bindings(Step(name="s"), BOUND, "81")
    assert value(bindings, "{{ " + expression + " }}") == expected


def test_a_command_without_bindings_knows_itself() -> None:
    bindings = Bindings(Step(name="s"), {}, "81")
    assert value(bindings, "{{ [step.name, execution.id, result] }}") == ["s", "81", None]


def test_a_step_reads_in_the_form_that_it_had() -> None:
    other = {"form": "pipeline", "data": {"task": {"f": 1}}}
    bindings = Bindings(Step(name="s"), {"steps": {"other": other}}, "81")
    assert value(bindings, "{{ [other.results.task.f, other.f] }}") == [1, 1]


@pytest.mark.parametrize(
    ("bound", "expected"),
    [
        (
            {"item": "b", "index": 1, "total": 2},
            ["b", "b", 1, 1, 1, 2, False, True, [1, 2, False, True]],
        ),
        (
            {"item": "a", "index": 0, "total": None},
            ["a", "a", 0, 0, 0, None, True, False, [0, None, True, False]],
        ),
    ],
)
def test_an_iteration_sees_its_item_and_its_place(
    bound: dict[str, object], expected: list[object]
) -> None:
    bindings = Bindings(LOOP, {"iter": bound}, "81")
    text = (
        "{{ [item, iter.item, _index, loop_index, iter._index, _total, iter._first, iter._last,"
        " [loop.index, loop.length, loop.first, loop.last]] }}"
    )
    assert (value(bindings, text), bindings.index) == (expected, bound["index"])


@pytest.mark.parametrize("step", [Step(name="s"), LOOP])
def test_without_an_iteration_there_is_no_index(step: Step) -> None:
    assert Bindings(step, {}, "81").index is None


def test_writes_are_read_by_what_follows_and_the_bound_values_stay() -> None:
    bound = {"ctx": {"a": {"b": 1}}, "step": {"name": "s"}}
    bindings = Bindings(Step(name="s"), bound, "81")
    before = bindings.scope(keychain={})
    for key in ("ctx.a.c", "iter.x.y", "step.z"):
        bindings.write(key, key)
    assert value(bindings, "{{ [a, iter, step.z] }}") == [
        {"b": 1, "c": "ctx.a.c"},
        {"x": {"y": "iter.x.y"}},
        "step.z",
    ]
    assert compile_template("{{ [a, iter, step] }}").render(before) == [
        {"b": 1},
        {},
        {"name": "s"},
    ]
    assert bound == {"ctx": {"a": {"b": 1}}, "step": {"name": "s"}}
    assert bindings.iter_writes == {"x": {"y": "iter.x.y"}}


def test_a_write_makes_the_maps_on_its_way() -> None:
    target: dict[str, object] = {"a": 1}
    write_at(target, "a.b.c", 2)
    assert target == {"a": {"b": {"c": 2}}}


BIG = Reference(ref="noetl://execution/1/result/s/a", store="disk", extracted={"row_count": 3})


def test_a_value_by_reference_is_asked_for_only_when_it_is_touched() -> None:
    bound = {"steps": {"big": {"form": "single", "status": "ok"}}, "ctx": {"small": 1}}
    resolved: dict[str, object] = {}
    refs = {"steps.big": BIG, "ctx.deep.value": BIG}
    bindings = Bindings(Step(name="s"), bound, "81", refs, resolved)

    known = "{{ [big.row_count, big._ref, ctx.small, ctx.deep.value.row_count] }}"
    assert value(bindings, known) == [3, BIG.ref, 1, 3]
    with pytest.raises(NeedsObject) as needs:
        value(bindings, "{{ big.rows }}")
    assert needs.value.reference == BIG
    resolved[BIG.ref] = {"rows": [1, 2, 3], "row_count": 3}
    assert value(bindings, "{{ [big.rows, ctx.deep.value.rows | length] }}") == [[1, 2, 3], 3]


def test_a_frame_gives_its_rows_to_the_body_and_its_size_to_the_claim() -> None:
    bindings = Bindings(Step(name="s"), {"frame": {"max_rows": 5, "index": 0}}, "81")
    assert value(bindings, "{{ [__frame_max_rows, frame.index] }}") == [5, 0]


def test_a_scope_that_holds_a_reference_reads_as_a_whole_once_it_was_fetched() -> None:
    bindings = Bindings(
        Step(name="s"), {"ctx": {"a": {"b": 1}}}, "81", {"ctx.a.big": BIG}, {BIG.ref: [1, 2]}
    )
    assert value(bindings, "{{ ctx }}") == {"a": {"b": 1, "big": [1, 2]}}
    assert value(bindings, "{{ [a.b, a, a | length, ctx.a.big[1]] }}") == [
        1, {"b": 1, "big": [1, 2]}, 2, 2,
    ]  # fmt: skip
