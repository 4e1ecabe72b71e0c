import pytest

from noetl.api.http import NoAnswer
from noetl.api.problems import Problem, Refused
from noetl.api.subscriptions import Instances, SpoolFigures, Subscription
from noetl.subscription.pausing import may_pass
from noetl.subscription.state import NotPull, Steering, listened, should_activate, task_of

CONTENT = """\
apiVersion: noetl.io/v1
kind: Subscription
metadata: {{name: s, path: a/s}}
spec: {{source: nats, mode: pull, url: "nats://h:4222", stream: S, consumer: c,
       dispatch: {{playbook: a/p}}{more}}}
"""


def one(  # noqa: PLR0913 - what differs from test to test
    state="ACTIVE", desired="running", *, version=1, more="", instances=0, content=None
):
    return Subscription(
        subscription_id="7", path="a/s", catalog_id="2", version=version, state=state,
        last_event_type="", updated_at="", desired=desired,
        runtime=Instances(instances=instances), circuit={}, spool=SpoolFigures(),
        content=CONTENT.format(more=more) if content is None else content,
    )  # fmt: skip


def refusal(status):
    return Refused(Problem(type="", title="", status=status, code="x", detail="no"))


class Server:
    def __init__(self, found):
        self.found = found
        self.fault = None
        self.said = []

    async def register_subscription(self, path):
        assert path == "a/s"
        return self.found

    async def subscription(self, subscription_id):
        assert subscription_id == "7"
        if self.fault is not None:
            raise self.fault
        return self.found

    async def steer_subscription(self, subscription_id, action, reason=""):
        assert subscription_id == "7"
        self.said.append((action, reason))
        state = {"activate": "ACTIVE", "drain": "DRAINING", "deactivate": "DEACTIVATED"}[action]
        self.found = one(state, self.found.desired)
        return self.found


@pytest.mark.parametrize(
    ("state", "task"),
    [
        ("REGISTERED", "wait"), ("ACTIVE", "listen"), ("PAUSED", "hold"), ("DRAINING", "drain"),
        ("DEACTIVATED", "wait"),
    ],
)  # fmt: skip
def test_each_state_is_a_task(state, task):
    assert task_of(one(state)) == task


@pytest.mark.parametrize(
    ("state", "desired", "expected"),
    [
        ("REGISTERED", "running", True), ("DEACTIVATED", "running", True),
        ("ACTIVE", "running", False), ("PAUSED", "paused", False),
        ("DEACTIVATED", "stopped", False), ("DRAINING", "draining", False),
    ],
)  # fmt: skip
def test_a_listener_never_acts_against_a_person(state, desired, expected):
    assert should_activate(one(state, desired)) is expected


@pytest.mark.parametrize(
    "document",
    [
        one(more=", activation: scheduled, cadence: 5m"),
        one(content="kind: Playbook"),
        one(content=""),
    ],
    ids=["scheduled", "playbook", "nothing"],
)
def test_what_nobody_listens_for_is_refused(document):
    with pytest.raises(NotPull):
        listened(document)


async def test_a_start_activates_and_the_last_one_who_stops_says_so():
    server = Server(one("REGISTERED"))
    steering = Steering(server, "a/s")
    assert (await steering.start()).spec.dispatch.playbook == "a/p"
    await steering.activate()
    await steering.activate()
    await steering.stop()
    assert server.said == [
        ("activate", "runtime_started"), ("drain", "runtime_stopped"),
        ("deactivate", "runtime_stopped"),
    ]  # fmt: skip


async def test_a_start_goes_on_with_what_the_last_one_did_not_end():
    server = Server(one("DRAINING", "running"))
    steering = Steering(server, "a/s")
    await steering.start()
    await steering.activate()
    assert [action for action, _ in server.said] == ["deactivate", "activate"]


@pytest.mark.parametrize(
    "found", [one("PAUSED", "paused"), one("ACTIVE", instances=1)], ids=["paused", "not the last"]
)
async def test_one_who_stops_says_nothing_when_it_is_not_his_to_say(found):
    server = Server(found)
    steering = Steering(server, "a/s")
    await steering.start()
    await steering.stop()
    assert server.said == []


async def test_one_who_was_never_let_in_stops_and_says_nothing():
    server = Server(one())
    server.fault = refusal(403)
    steering = Steering(server, "a/s")
    with pytest.raises(Refused):
        await steering.start()

    await steering.stop()

    assert server.said == []


async def test_what_the_server_does_not_tell_stays_and_a_refusal_stops_the_work():
    server = Server(one())
    steering = Steering(server, "a/s")
    await steering.start()
    server.fault = NoAnswer("away")
    assert (await steering.look()).version == 1
    assert steering.task == "listen"
    server.fault = refusal(401)
    await steering.look()
    assert (steering.is_unauthorized, steering.task) == (True, "wait")
    server.fault = None
    server.found = one(version=2, more=", dedup: {enabled: true}")
    newer = await steering.look()
    assert (newer.version, newer.spec.dedup.enabled, steering.task) == (2, True, "listen")
    server.found = one(version=3, content="nothing that can be read")
    assert (await steering.look()).version == 2


def test_what_may_pass_is_tried_again():
    assert [may_pass(refusal(status)) for status in (401, 403, 404, 422, 429, 503)] == [
        True, True, False, False, True, True,
    ]  # fmt: skip
    assert may_pass(NoAnswer("away"))
