"""What became of a job, from what a cluster says."""

from __future__ import annotations

from typing import Any

import pytest

from noetl.tools.container.states import deleted, ended, is_reported, stalled


def job(*conditions: dict[str, Any], **status: Any) -> dict[str, Any]:
    return {"metadata": {}, "status": {"conditions": list(conditions), **status}}


def condition(name: str, reason: str = "", status: str = "True") -> dict[str, Any]:
    return {"type": name, "status": status, "reason": reason, "lastTransitionTime": "T"}


def pod(made: int = 1, *, state: Any = None, last: Any = None, **status: Any) -> dict[str, Any]:
    told = {"state": state or {}, "lastState": last or {}}
    about = {"name": f"p{made}", "creationTimestamp": f"{made:03}"}
    return {"metadata": about, "status": {"containerStatuses": [told], **status}}


def over(code: int, reason: str = "Error", message: str = "") -> dict[str, Any]:
    return {"terminated": {"exitCode": code, "reason": reason, "message": message}}


FAILED = condition("Failed", "BackoffLimitExceeded")


@pytest.mark.parametrize(
    ("conditions", "pods", "state"),
    [
        ([condition("Complete")], [pod(state=over(0, "Completed"))], "succeeded"),
        ([condition("SuccessCriteriaMet"), condition("Complete")], [], "succeeded"),
        ([FAILED], [pod(state=over(3))], "failed"),
        ([FAILED], [], "failed"),
        ([FAILED], [pod(state=over(137, "OOMKilled"))], "failed_oom"),
        ([FAILED], [pod(state=over(1), last=over(137, "OOMKilled"))], "failed_oom"),
        ([condition("Failed", "DeadlineExceeded")], [pod()], "failed_timeout"),
        ([FAILED], [pod(reason="Evicted")], "failed_node_lost"),
        ([FAILED], [pod(reason="NodeLost")], "failed_node_lost"),
        ([FAILED], [pod(conditions=[condition("DisruptionTarget")])], "failed_node_lost"),
        ([FAILED], [pod(2, state=over(3)), pod(1, reason="Evicted")], "failed"),
    ],
)
def test_the_best_reason_counts(conditions: list, pods: list, state: str) -> None:
    found = ended(job(*conditions), pods)
    assert found is not None
    assert found.state == state


def test_a_job_that_goes_on_has_not_ended() -> None:
    assert ended(job(), [pod()]) is None
    assert ended(job(condition("Failed", status="False"), condition("FailureTarget")), []) is None
    assert ended({"metadata": {}}, []) is None


def test_the_last_word_and_the_exit_code_are_those_of_the_newest_pod() -> None:
    pods = [
        pod(2, state=over(0, "Completed", '{"n": 2}')),
        pod(1, state=over(9, "Error", '{"n": 1}')),
    ]
    found = ended(job(condition("Complete"), completionTime="C"), pods)
    assert found is not None
    assert (found.exit_code, found.output, found.completed_at) == (0, {"n": 2}, "C")


def test_a_deleted_job_ended_as_it_says_else_it_was_taken_away() -> None:
    assert deleted(job(condition("Complete")), []).state == "succeeded"
    assert deleted(job(), [pod(state=over(143))]).state == "failed_node_lost"


@pytest.mark.parametrize("reason", ["ImagePullBackOff", "ErrImagePull", "InvalidImageName"])
def test_an_image_that_cannot_be_had_stalls(reason: str) -> None:
    waiting = {"waiting": {"reason": reason, "message": "no"}}
    assert stalled([pod(state=waiting)]) == f"{reason}: no"
    assert stalled([pod(state={"waiting": {"reason": "ContainerCreating"}}), pod()]) is None


def test_a_job_is_told_once() -> None:
    assert is_reported({"metadata": {"annotations": {"noetl.reported": "failed"}}})
    assert not is_reported({"metadata": {}})
