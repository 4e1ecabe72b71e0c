"""The state of a pipeline."""

import msgspec

from noetl.engine.progress import Progress
from noetl.engine.writes import write_at


def test_a_write_stands_where_the_first_one_that_it_replaces_stood() -> None:
    progress = Progress(task="a")
    live: dict[str, object] = {}
    for key, value in [("ctx.a.b", 1), ("ctx.z", 2), ("ctx.a.c", 3), ("ctx.a", {"d": 4})]:
        progress.write(key, value)
        write_at(live, key, value)
    again: dict[str, object] = {}
    for key, value in progress.writes.items():
        write_at(again, key, value)
    assert list(progress.writes.items()) == [("ctx.a", {"d": 4}), ("ctx.z", 2)]
    assert msgspec.json.encode(again) == msgspec.json.encode(live)


def test_a_scope_lists_its_own_writes() -> None:
    progress = Progress(writes={"ctx.a.b": 1, "iter.a": 2, "step.a": 3})
    assert [progress.written(scope) for scope in ("ctx", "iter", "step")] == [
        {"a.b": 1},
        {"a": 2},
        {"a": 3},
    ]


def test_runs_beyond_the_limit_are_counted() -> None:
    progress = Progress()
    for number in range(1_002):
        progress.record({"try": number})
    assert (len(progress.recorded()), progress.recorded()[999:]) == (
        1_001,
        ({"try": 999}, {"more": 2}),
    )


def test_a_new_pass_forgets_the_tries_of_the_last_one() -> None:
    progress = Progress(task="a", tries=2, passes={"a": 1})
    progress.enter("b")
    progress.enter("a")
    assert progress == Progress(task="a", tries=0, passes={"a": 2, "b": 1})
    progress.enter(None)
    assert progress == Progress(task=None, passes={"a": 2, "b": 1})
