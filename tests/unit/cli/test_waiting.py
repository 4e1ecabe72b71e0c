"""Following a run on a loop whose waiting costs nothing, with servers that come and go."""

from types import SimpleNamespace

import pytest

from noetl.api.http import NoAnswer
from noetl.api.problems import Problem, Refused
from noetl.cli.follow import Nobody
from noetl.cli.waiting import AWAY_S, Following, rows
from noetl.local.virtual import run_virtually

STARTED = {"path": "p", "version": 1, "workload": {}}


def told(seq, name="step.enter", execution_id="1", **more):
    row = {
        "execution_id": execution_id, "seq": seq, "event_id": f"{execution_id}{seq}",
        "prev_event_id": None, "event_type": name, "step": "start", "status": "x",
        "created_at": f"2026-01-01T00:00:{seq:02}.000000Z", "catalog_id": "7", **more,
    }  # fmt: skip
    return {"event": name, "id": row["event_id"], "data": row}


def begun(execution_id="1", **meta):
    more = {"parent_execution_id": meta.pop("parent")} if "parent" in meta else {}
    return told(1, "playbook.started", execution_id, context=STARTED, meta=meta, **more)


END = {"event": "end", "id": None, "data": {"status": "COMPLETED"}}
GONE = NoAnswer("the connection was lost")


def refused(status):
    return Refused(Problem(type="t", title="t", status=status, code="c", detail="no"))


class Scripted:
    """A client whose streams are written down; `asked` is where each one was to begin."""

    def __init__(self, *streams, children=None, **of_others):
        self.streams = {"1": list(streams), **of_others}
        self.kin = children or []
        self.asked = []

    async def stream(self, execution_id, *, since_event_id=None, fields="lean"):
        assert fields == "full"
        self.asked.append((execution_id, since_event_id))
        streams = self.streams[execution_id]
        for one in streams.pop(0) if streams else (GONE,):
            if isinstance(one, Exception):
                raise one
            yield one

    async def children(self, _):
        found = self.kin.pop(0) if self.kin else []
        if isinstance(found, Exception):
            raise found
        return SimpleNamespace(items=[SimpleNamespace(execution_id=name) for name in found])


def followed(client, **more):
    async def work():
        return [row["seq"] async for row in rows(client, "1", **more)]

    return run_virtually(work())


def test_a_stream_that_breaks_is_gone_on_with_and_each_event_comes_once():
    client = Scripted(
        [told(1), told(2), GONE],
        [GONE],
        [refused(503)],
        [told(2), told(3)],
        [told(4), END],
    )

    assert followed(client) == [1, 2, 3, 4]
    assert client.asked == [("1", since) for since in (None, "12", "12", "12", "13")]


def test_nobody_there_is_told_at_once():
    with pytest.raises(NoAnswer):
        followed(Scripted())


def test_a_server_that_was_met_is_waited_for():
    assert followed(Scripted([GONE], [told(1), END]), is_met=True) == [1]


def test_a_server_that_stays_away_is_given_up():
    client = Scripted([told(1), GONE])

    with pytest.raises(NoAnswer):
        followed(client)
    assert AWAY_S / 2 < len(client.asked) < AWAY_S


def test_a_busy_server_is_given_up_sooner():
    client = Scripted(*[[refused(429)]] * 99)

    with pytest.raises(Refused):
        followed(client)
    assert len(client.asked) < 20


def test_a_refusal_is_final():
    with pytest.raises(Refused):
        followed(Scripted([told(1), refused(404)]))


def requested(seq, key):
    return told(
        seq, "execution.requested", context={"path": "child"},
        meta={"command_key": key, "child_key": key},
    )  # fmt: skip


def ended(seq, execution_id="1"):
    return told(seq, "playbook.completed", execution_id)


class Seen(Nobody):
    def __init__(self):
        self.lines = []

    def line(self, step, text):
        self.lines.append((step, text))


def family(client):
    async def work():
        view = Seen()
        following = Following(client, view, with_children=True)
        run = await following.to_end("1")
        return run, view

    return run_virtually(work())


def test_children_are_found_and_stand_under_their_step():
    client = Scripted(
        [begun(), requested(2, "a"), requested(3, "b"), ended(4), END],
        children=[[], GONE, ["8"], ["8", "9"]],
        **{
            "9": [[begun("9", parent="1", parent_key="b"), ended(2, "9"), END]],
            "8": [[begun("8", parent="1", parent_key="a"), ended(2, "8"), END]],
        },
    )
    run, view = family(client)

    assert run.status == "COMPLETED"
    assert [(child.execution_id, child.status) for child in run.steps["start"].children] == [
        ("8", "COMPLETED"),
        ("9", "COMPLETED"),
    ]
    assert view.lines == []


def test_a_child_that_cannot_be_read_is_told_and_the_run_goes_on():
    client = Scripted(
        [begun(), requested(2, "a"), ended(3), END], children=[["8"]], **{"8": [[refused(403)]]}
    )
    run, view = family(client)

    assert run.status == "COMPLETED"
    assert view.lines == [("8", "cannot be followed: no")]


def test_a_child_that_never_comes_is_not_waited_for():
    run, _ = family(Scripted([begun(), requested(2, "a"), ended(3), END]))

    assert run.status == "COMPLETED"
