"""Names of jobs."""

from __future__ import annotations

import re

import pytest

from noetl.tools.container import names

RUN = "380523680097099776"
LABEL = re.compile(r"[a-z0-9]([a-z0-9.-]{0,61}[a-z0-9])?")


@pytest.mark.parametrize(
    "step", ["load", "Load Data (EU)", "x" * 200, "_", "--a--", "日本語", "a" * 19 + "_b", "A.B/C"]
)
def test_any_step_has_a_name_that_a_cluster_takes(step: str) -> None:
    name = names.job_name(step, RUN + "1", f"{RUN}/{step}/-/1", 1)
    assert LABEL.fullmatch(name)
    assert name.startswith("noetl-container-")
    slug = name.removeprefix("noetl-container-").rsplit("-", 2)[0]
    assert 1 <= len(slug) <= 20
    marks = names.labels(RUN, step, "12")
    assert all(LABEL.fullmatch(value) for value in marks.values())
    assert names.notes(RUN, step, "12", "k")["noetl.step-name"] == step


def test_a_name_is_the_same_for_every_attempt_and_another_for_every_try() -> None:
    made = [names.job_name("s", RUN, key, number) for key in ("k", "l") for number in (1, 1, 2)]
    assert made[0] == made[1]
    assert len(set(made)) == 4


def test_a_job_is_ours_by_its_labels_and_its_key() -> None:
    own = {"labels": names.labels(RUN, "s", "12"), "annotations": names.notes(RUN, "s", "12", "k")}
    assert names.is_ours({**own, "labels": {**own["labels"], "more": "x"}}, own)
    assert not names.is_ours({}, own)
    assert not names.is_ours({**own, "labels": names.labels(RUN, "s", "13")}, own)
    assert not names.is_ours({**own, "annotations": {}}, own)
