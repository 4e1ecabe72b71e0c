"""The comparison of two wirings sees what it must, and only that."""

from tests.e2e.ending import Ending, is_determined


def row(event_type, step="a", **more):
    return {"event_type": event_type, "step": step, "status": "x", **more}


def ended(*rows, status="COMPLETED", result=None, error=None):
    last = row(f"playbook.{status.lower()}", "playbook")
    return Ending(status, result, error, {"": [*rows, last]})


ONE = (row("step.enter"), row("command.issued"), row("command.completed"), row("step.exit"))
TWO = tuple(each | {"step": "b"} for each in ONE)
BESIDE = (ONE[0], TWO[0], *ONE[1:], *TWO[1:])


def test_the_same_is_the_same_whatever_its_ids_and_times():
    ours = ended(*ONE, result={"at": "2026-01-01T00:00:00Z", "id": "380385227161206784"})
    claimed = (*ONE[:2], row("command.claimed"), *ONE[2:])
    theirs = ended(*claimed, result={"at": "2026-11-15T15:59:58.5Z", "id": "123456789012345678"})

    assert ours.differences(theirs) == []


def test_another_status_result_or_error_is_seen():
    other = ended(*ONE, status="FAILED", result=1, error={"kind": "python", "step": "a"})

    found = ended(*ONE).differences(other)

    assert [line.partition(":")[0] for line in found] == ["status", "result", "error", "log"]


def test_another_order_is_seen_where_the_order_is_determined():
    assert ended(*ONE, *TWO).differences(ended(*TWO, *ONE)) != []


def test_another_order_is_no_difference_where_things_happen_side_by_side():
    other = (TWO[0], ONE[0], *TWO[1:], *ONE[1:])

    assert not is_determined(BESIDE)
    assert ended(*BESIDE).differences(ended(*other)) == []


def test_an_event_too_few_is_seen_on_either_side():
    fewer = ended(*BESIDE[:-1])

    assert ended(*BESIDE).differences(fewer) != []
    assert fewer.differences(ended(*BESIDE)) != []


def test_a_missing_child_is_seen():
    ours = ended(*ONE)
    parent = Ending("COMPLETED", None, None, {**ours.logs, ">a#1/c0": list(ONE)})

    assert parent.differences(ours) != []
