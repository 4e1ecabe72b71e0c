"""A run that is cut at any event goes on to the same end, and repeats nothing that ended."""

import pytest

from noetl.engine import events as ev
from noetl.local.playbooks import PlaybookChanged
from tests.unit.local.stage import Stage, playbook

WORKFLOW = """\
- step: start
  tool: {kind: python, code: '1', spec: {retry: {attempts: 3, delay: 5, backoff: fixed}}}
  set: {ctx.n: "{{ output.data.n }}"}
  next: {spec: {mode: inclusive}, arcs: [{step: each}, {step: child}]}
- step: each
  loop: {in: [1, 2, 3], iterator: x, spec: {mode: parallel, max_in_flight: 2}}
  tool: {kind: python, code: '1', input: {x: "{{ iter.x }}"}}
  next: {arcs: [{step: both}]}
- step: child
  tool: {kind: playbook, path: t/child, input: {n: "{{ ctx.n }}"}}
  next: {arcs: [{step: both}]}
- step: both
  tool:
    - {name: a, kind: python, code: '1'}
    - {name: b, kind: wait, seconds: 20}
    - {name: c, kind: python, code: '1'}
"""
MOCKS = """\
- {step: start, sequence: [{raise: {kind: timeout}}, {return: {n: 7}}]}
- {step: each, index: 0, return: 10}
- {step: each, index: 1, return: 11, delay: 10s}
- {step: each, index: 2, return: 12}
- {step: inner, return: {got: 1}, delay: 5s}
- {step: both, task: a, return: 1}
- {step: both, task: c, return: {end: 3}}
"""
CHILD = playbook("- step: inner\n  tool: {kind: python, code: '1'}", path="t/child")


@pytest.fixture
def stage(tmp_path):
    (tmp_path / "child.yaml").write_text(CHILD)
    return Stage(playbook(WORKFLOW, result='{n: "{{ ctx.n }}", each: "{{ each.results }}", end: "{{ both.c.end }}"}'), MOCKS, tmp_path)  # fmt: skip  # noqa: E501 - one document


def ended(events):
    """The commands that a log closes well."""
    return {
        (item.execution_id, item.event.command_key)
        for item in events
        if isinstance(item.event, ev.CommandCompleted)
    }


def test_a_run_that_is_cut_anywhere_goes_on_to_the_same_end(stage):
    finished, watch, _ = stage.play()
    whole = watch.events
    assert finished.run.result == {"n": 7, "each": [10, 11, 12], "end": 3}
    assert len(whole) > 60

    for cut in range(1, len(whole)):
        again, more, _ = stage.play(log=whole[:cut], day=2)

        assert (cut, again.run.status) == (cut, "COMPLETED")
        assert (cut, again.run.result) == (cut, finished.run.result)
        issued = [item for item in more.events[cut:] if isinstance(item.event, ev.CommandClaimed)]
        repeated = ended(whole[:cut]) & {(i.execution_id, i.event.command_key) for i in issued}
        assert (cut, repeated) == (cut, set())


def test_a_finished_run_stays_as_it_is(stage):
    finished, watch, _ = stage.play()
    again, more, mocks = stage.play(log=watch.events, day=2)

    assert again.as_json() == finished.as_json()
    assert sorted(map(repr, more.events)) == sorted(map(repr, watch.events))
    assert mocks.calls == {}


def test_a_child_whose_playbook_changed_is_refused(stage, tmp_path):
    _, watch, _ = stage.play()
    (tmp_path / "child.yaml").write_text(CHILD + "# changed\n")

    with pytest.raises(PlaybookChanged) as caught:
        stage.play(log=watch.events[:-3], day=2)
    assert caught.value.message == (
        "the playbook t/child of the log is not there, or was changed since"
    )
