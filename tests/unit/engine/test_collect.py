"""What a task collects over the passes of its pipeline."""

from __future__ import annotations

from typing import Any

import pytest

from noetl.dsl.parse import read
from noetl.dsl.playbook import Playbook
from noetl.dsl.views import Outcome
from noetl.engine.pipeline import Done, Failed, Pipeline
from tests.unit.engine.host import HEAD


def played(accumulate: str, *pages: Any) -> Done | Failed:
    """A pipeline that fetches page after page."""
    text = f"""
workflow:
  - step: s
    tool:
      - name: fetch
        kind: http
        url: http://example.org
        output: {{accumulate: {accumulate}}}
        spec:
          policy:
            rules:
              - {{when: "{{{{ output.data.more }}}}", then: {{do: jump, to: fetch}}}}
"""
    step = read(HEAD + text, Playbook).workflow[0]
    pipeline = Pipeline(step, {}, execution_id="1", command_key="s#1", idempotency_key="k")
    for number, page in enumerate(pages):
        pipeline.next()
        more = number < len(pages) - 1
        pipeline.report(Outcome(data={"items": page, "more": more}))
    end = pipeline.next()
    assert isinstance(end, (Done, Failed))
    return end


@pytest.mark.parametrize(
    ("accumulate", "pages", "expected"),
    [
        ("{merge_path: $.items}", ([1, 2], [3]), [1, 2, 3]),
        ("{merge_path: $.items}", (1, 2), [1, 2]),
        ("{strategy: concat, merge_path: $.items}", ([1], [2]), [1, 2]),
        ("{strategy: concat, merge_path: $.items}", ("a", "b"), "ab"),
        ("{strategy: merge, merge_path: $.items}", ({"a": 1}, {"b": 2}), {"a": 1, "b": 2}),
        ("{strategy: replace, merge_path: $.items}", ([1], [2]), [2]),
        ("{merge_path: $.nowhere}", ([1], [2]), None),
    ],
)
def test_passes_are_collected_in_the_way_that_was_chosen(
    accumulate: str, pages: tuple[Any, ...], expected: Any
) -> None:
    end = played(accumulate, *pages)
    assert isinstance(end, Done)
    assert end.of_step == {"accumulated": expected}


def test_the_collection_has_the_name_that_was_given_and_holds_the_whole_outcome() -> None:
    end = played("{manifest_as: pages}", [1])
    assert isinstance(end, Done)
    assert end.of_step == {"pages": [{"items": [1], "more": False}]}


@pytest.mark.parametrize("accumulate", ["{enabled: false}", "{on_success: false}"])
def test_what_is_not_wanted_is_not_collected(accumulate: str) -> None:
    end = played(accumulate, [1])
    assert isinstance(end, Done)
    assert end.of_step == {}


@pytest.mark.parametrize(
    ("accumulate", "pages", "code"),
    [
        ("{merge_path: $.items, max_items: 2}", ([1, 2], [3]), "accumulate_limit"),
        ("{strategy: merge, merge_path: $.items}", ([1],), "accumulate"),
        ("{strategy: concat, merge_path: $.items}", ({},), "accumulate"),
    ],
)
def test_what_cannot_be_collected_fails_the_task(
    accumulate: str, pages: tuple[Any, ...], code: str
) -> None:
    end = played(accumulate, *pages)
    assert isinstance(end, Failed)
    assert end.error.code == code
