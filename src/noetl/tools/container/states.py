"""What became of a job, from what Kubernetes says of it and its pods; pure."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, Final

from noetl.tools.container.names import REPORTED
from noetl.tools.container.ticket import End, output_of

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator, Mapping

    from noetl.api.callbacks import ContainerState

    Thing = Mapping[str, Any]

_PULLS: Final = frozenset({"ImagePullBackOff", "ErrImagePull", "InvalidImageName"})
_NODE: Final = frozenset({"Evicted", "NodeLost", "Shutdown", "NodeShutdown", "Terminated"})
_DISRUPTED: Final = "DisruptionTarget"


def is_reported(job: Thing) -> bool:
    """Whether the server was told of this job, or nobody wants to know."""
    return REPORTED in (job["metadata"].get("annotations") or {})


def ended(job: Thing, pods: Iterable[Thing]) -> End | None:
    """How a job ended; none while it has not."""
    found = sorted(pods, key=lambda pod: str(pod["metadata"].get("creationTimestamp") or ""))
    for condition in _conditions(job):
        if condition.get("status") != "True":
            continue
        if condition.get("type") == "Complete":
            at = job["status"].get("completionTime") or condition.get("lastTransitionTime")
            return _end("succeeded", found, condition, at)
        if condition.get("type") == "Failed":
            at = condition.get("lastTransitionTime")
            return _end(_failure(condition, found), found, condition, at)
    return None


def deleted(job: Thing, pods: Iterable[Thing]) -> End:
    """How a job ended that is there no more: as it says, else somebody took it away."""
    kept = list(pods)
    found = ended(job, kept)
    if found is not None:
        return found
    reason = "the job was deleted"
    return End(state="failed_node_lost", reason=reason, exit_code=_exit_code(kept))


def stalled(pods: Iterable[Thing]) -> str | None:
    """Why the image of a pod cannot be had, while that is so."""
    for pod in pods:
        for status in _statuses(pod):
            waiting = (status.get("state") or {}).get("waiting") or {}
            if waiting.get("reason") in _PULLS:
                said = waiting.get("message")
                return f"{waiting['reason']}: {said}" if said else str(waiting["reason"])
    return None


def _failure(condition: Thing, pods: list[Thing]) -> ContainerState:
    """The best reason that there is."""
    if any(_is_oom(status) for pod in pods for status in _statuses(pod)):
        return "failed_oom"
    if pods and _lost_its_node(pods[-1]):
        return "failed_node_lost"
    return "failed_timeout" if condition.get("reason") == "DeadlineExceeded" else "failed"


def _end(
    state: ContainerState, pods: list[Thing], condition: Thing, completed_at: str | None
) -> End:
    output = None
    for pod in pods:
        for told in _terminations(pod):
            output = output_of(told.get("message")) or output
    return End(
        state=state,
        exit_code=_exit_code(pods),
        reason=None if state == "succeeded" else _reason(pods, condition),
        completed_at=completed_at,
        output=output,
    )


def _reason(pods: list[Thing], condition: Thing) -> str | None:
    said = [condition.get("reason"), condition.get("message")]
    if pods:
        status = pods[-1].get("status") or {}
        said += [status.get("reason"), status.get("message")]
    words = [str(word) for word in dict.fromkeys(said) if word]
    return ": ".join(words) or None


def _exit_code(pods: list[Thing]) -> int | None:
    codes = [told["exitCode"] for pod in pods for told in _terminations(pod) if "exitCode" in told]
    return codes[-1] if codes else None


def _terminations(pod: Thing) -> Iterator[Thing]:
    for status in _statuses(pod):
        for when in ("lastState", "state"):
            told = (status.get(when) or {}).get("terminated")
            if told is not None:
                yield told


def _is_oom(status: Thing) -> bool:
    return any(
        ((status.get(when) or {}).get("terminated") or {}).get("reason") == "OOMKilled"
        for when in ("state", "lastState")
    )


def _lost_its_node(pod: Thing) -> bool:
    if (pod.get("status") or {}).get("reason") in _NODE:
        return True
    return any(
        one.get("type") == _DISRUPTED and one.get("status") == "True" for one in _conditions(pod)
    )


def _conditions(thing: Thing) -> list[Thing]:
    return (thing.get("status") or {}).get("conditions") or []


def _statuses(pod: Thing) -> list[Thing]:
    return (pod.get("status") or {}).get("containerStatuses") or []
