# ruff: noqa: E501 - one case per line
"""Older forms are rewritten in the author's own text; comments, quotes and layout stay."""

from collections import Counter
from dataclasses import replace
from functools import cache
from pathlib import Path

import pytest

from noetl.dsl.migrate.patch import read_source
from noetl.dsl.migrate.rewrite import Migration, RoundTripEditor, migrate
from noetl.dsl.parse import parse

ROOT = Path(__file__).parents[4]
HEAD = "apiVersion: noetl.io/v2\nkind: Playbook\nmetadata: {name: a}\n"
OLDER = {"DSL101", "DSL102", "DSL103", "DSL104", "DSL105", "DSL111", "DSL113", "DSL120"} | {
    f"DSL{number}" for number in range(123, 130)
}
COMPAT = sorted(ROOT.glob("tests/compat/*.yaml"))


@cache
def text_of(path):
    return path.read_bytes().decode()


def said(text):
    """What a document says; below `x-*` stand definitions of shared parts, which may change."""
    return replace(parse(text).model, extra={})


@cache
def migrated(path):
    return migrate(text_of(path))


@pytest.mark.parametrize("path", COMPAT, ids=lambda path: path.name)
class TestEveryOlderPlaybook:
    def test_has_no_older_form_afterwards_and_means_the_same(self, path):
        text = text_of(path)
        done = migrated(path)
        assert {item.code for item in done.remaining} & OLDER == set()
        assert said(done.text) == said(text)
        assert done.remaining == parse(done.text).diagnostics

    def test_keeps_every_comment(self, path):
        before, after = read_source(text_of(path)), read_source(migrated(path).text)
        assert Counter(before.comments) == Counter(after.comments)

    def test_is_done_after_one_time(self, path):
        done = migrated(path)
        assert migrate(done.text) == Migration(done.text, (), done.remaining)

    def test_stays_as_it_is_where_nothing_is_older(self, path):
        text = text_of(path)
        if not OLDER & {item.code for item in parse(text).warnings}:
            assert migrated(path) == Migration(text, (), parse(text).diagnostics)


def test_comments_follow_their_lines():
    done = migrate(
        HEAD
        + """\
workload:
  region: eu   # ui:enum=[eu, us] ui:description=where to run

workflow:

  # ---- read ----
  - step: start   # the entry
    # only for some
    when: "{{ workload.region }}"   # guard
    args: {a: 1}   # values
    tool:
      kind: http
      url:   https://x   # where
      retry:   # patience
        max_attempts: 3   # tries
        # slowly
        initial_delay: 2
    # and then
    next: done   # bye

  # ---- done ----
  - step: done
# the end
"""
    )
    assert done.text == (
        HEAD
        + """\
workload:
  region: eu   # ui:enum=[eu, us] ui:description=where to run

workflow:

  # ---- read ----
  - step: start   # the entry
    input: {a: 1}  # values
    tool:
      kind: http
      url:   https://x   # where
      spec:
        retry:  # patience
          attempts: 3  # tries
          # slowly
          delay: 2
    # and then
    next:
      arcs:
        - step: done  # bye
    spec:
      policy:
        # only for some
        admit: "{{ workload.region }}"  # guard

  # ---- done ----
  - step: done
# the end
"""
    )
    assert done.changes == (
        "line 12: `when` of a step: write `spec.policy.admit`",
        "line 13: `args` of a step: write `input`",
        "line 17: `retry` of a tool: write `spec.retry` with `attempts`, `delay`, `backoff`",
        "line 22: older form of `next`: write `next.arcs`",
    )
    assert done.remaining == ()


MOVED_COMMENTS = {
    "rules into a flow map": (
        """\
    tool: {kind: noop}   # t
    # rs
    spec:
      policy:   # p
        rules:   # r
          # first
          - then: {do: fail}   # f
""",
        """\
    # rs
    # p
    # r
    # first
    # f
    tool: {kind: noop, spec: {policy: {rules: [{then: {do: fail}}]}}}  # t
""",
    ),
    "a mode that goes": (
        "    next:\n      - step: b\n    spec: {next_mode: exclusive} # nm\n",
        "    next:\n      # nm\n      arcs:\n        - step: b\n",
    ),
    "a factor that goes": (
        """\
    tool:
      kind: http
      retry:   # patience
        max_attempts: 3 # ma
        backoff_multiplier: 2 # bm
      url: https://x
""",
        """\
    tool:
      kind: http
      url: https://x
      spec:
        # bm
        retry:  # patience
          attempts: 3  # ma
          backoff: exponential
""",
    ),
}


@pytest.mark.parametrize(("old", "new"), MOVED_COMMENTS.values(), ids=MOVED_COMMENTS)
def test_comments_stay_in_their_step_beside_what_changed(old, new):
    text = HEAD + "workflow:\n  - step: a\n@  # of b\n  - step: b\n@"
    assert migrate(text.replace("@", old)).text == text.replace("@", new)


def test_a_renamed_text_keeps_its_quotes_folds_and_anchor():
    text = HEAD + (
        "workflow:\n"
        "  - step: start\n"
        "    set:\n"
        "      ctx.a: '{{ outcome.data }}'\n"
        '      ctx.b: &b "{{ outcome.data }}"\n'
        "      ctx.c: *b\n"
        "      ctx.d: >-\n"
        "        {{ outcome.data }} and\n"
        "        {{ outcome.status }} and\n"
        "        nothing\n"
        "      ctx.e: |\n"
        "        {{ outcome.data }}\n"
        "      ctx.f: x {{ outcome.data }}\n"
        "      ctx.g: >-\n"
        "        {{ outcome.data }}\n"
    )
    assert migrate(text).text == text.replace("outcome", "output")


def test_windows_line_ends_stay():
    text = (HEAD + "workflow:\n  - step: start   # s\n    next: end\n").replace("\n", "\r\n")
    assert migrate(text).text == text.replace(
        "next: end\r\n", "next:\r\n      arcs:\r\n        - step: end\r\n"
    )


@pytest.mark.parametrize(
    ("old", "new"),
    [
        ("workflow:\n- step: start\n  next: end\n", "  next:\n    arcs:\n    - step: end\n"),
        ("workflow:\n  - step: start\n    next: end\n", "    next:\n      arcs:\n        - step: end\n"),
        ("workflow:\n-   step: start\n    next: end\n", "    next:\n      arcs:\n      -   step: end\n"),
        (
            "x-a:\n    b:\n        c: [1]\nworkflow:\n    - step: start\n      next: end\n",
            "      next:\n          arcs:\n              - step: end\n",
        ),
        ("workflow: &w\n- step: start\n  next: end\n", "  next:\n    arcs:\n    - step: end\n"),
        ("workflow: [{step: start, next: end}]\n", "workflow: [{step: start, next: {arcs: [{step: end}]}}]\n"),
        ("workflow:\n- step: start\n  tool: {kind: noop}\n  x-l:\n  - 1\n  next: end\n", "  - 1\n  next:\n    arcs:\n    - step: end\n"),
    ],
)  # fmt: skip
def test_new_lines_are_indented_as_the_author_does(old, new):
    assert migrate(HEAD + old).text.endswith(new)


def test_lines_that_need_no_change_stay_to_the_letter():
    odd = (
        'workload:\n  a:   1\n  b: +5\n  c: ~\n  d: [1,2 ,3]\n  e: "\\u0041"\n'
        "  f: this text\n    goes on\n  g: True\n  h: &yes true\n  i: *yes\n  j: 2026-01-01\n"
    )  # fmt: skip
    text = HEAD + odd + "workflow:\n  - step: start\n    next: end\n"
    assert migrate(text).text.startswith(HEAD + odd)


def test_every_key_is_text():
    text = HEAD + (
        "workload: {1: a, true: b, ~: c, 0x10: d}\n"
        "workflow:\n  - step: start\n    set: {1: 2}\n    next: end\n"
    )
    done = migrate(text)
    assert "workload: {1: a, true: b, ~: c, 0x10: d}\n" in done.text
    assert "set: {ctx.1: 2}\n" in done.text


def test_a_shared_part_is_changed_once_where_it_is_defined():
    text = HEAD + (
        "x-spec: &spec\n"
        "  policy: {rules: [{when: outcome.status == 'error', then: {do: fail}}]}\n"
        "workflow:\n"
        "  - step: start\n"
        "    tool: {kind: noop, spec: *spec}\n"
        "    next: {arcs: [{step: b}]}\n"
        "  - step: b\n"
        "    tool: {kind: noop, spec: *spec}\n"
    )
    assert migrate(text).text == text.replace("outcome", "output")


def test_a_shared_tool_is_changed_once_where_it_is_defined():
    text = HEAD + (
        "x-t: &t {kind: http, url: https://x, retry: {max_attempts: 3}}\n"
        "workflow:\n"
        "  - step: start\n"
        "    tool: *t\n"
        "    next: {arcs: [{step: b}]}\n"
        "  - step: b\n"
        "    tool: *t\n"
    )
    done = migrate(text)
    assert done.text == text.replace("retry: {max_attempts: 3}", "spec: {retry: {attempts: 3}}")
    assert said(done.text) == said(text)


def test_a_shared_part_that_must_move_is_written_out():
    text = HEAD + (
        "workflow:\n"
        "  - step: start\n"
        "    spec: &spec {policy: {rules: [{then: {do: fail}}]}}\n"
        "    tool: {kind: noop}\n"
        "    next: {arcs: [{step: b}]}\n"
        "  - step: b\n"
        "    spec: *spec\n"
        "    tool: {kind: noop, x-more: [1]}\n"
    )
    done = migrate(text)
    assert parse(done.text).model == parse(text).model
    assert {item.code for item in done.remaining} & OLDER == set()
    assert "*" not in done.text


def test_an_anchor_may_be_written_twice():
    text = HEAD + "x-a: &a 1\nx-b: &a 2\nx-c: *a\nworkflow:\n  - step: start\n    next: end\n"
    assert migrate(text).text.startswith(HEAD + "x-a: &a 1\nx-b: &a 2\nx-c: *a\n")


def test_other_kinds_get_their_metadata_right():
    text = "apiVersion: noetl.io/v2\nkind: Subscription\nmetadata: {name: a, path: /x}\nspec: 1\n"
    assert migrate(text).text == text.replace("/x", "x")
    text = "apiVersion: noetl.io/v2\nkind: Subscription\nmetadata: 1\nspec: 1\n"
    assert migrate(text).text == text


@pytest.mark.parametrize(
    "text",
    [
        "",
        "a: [",
        "kind: Nothing\n",
        HEAD + "workflow: [{step: a, step: b, next: end}]\n",
        HEAD + "workflow:\n  - step: start\n    desc: a\tb\n    next: end\n",
        HEAD + "workload: {&amail: true}\nworkflow:\n  - step: start\n    next: end\n",
    ],
)
def test_a_text_that_cannot_be_rewritten_stays(text):
    assert migrate(text) == Migration(text, (), parse(text).diagnostics)


def test_an_older_form_beside_an_error_is_rewritten_all_the_same():
    done = migrate(HEAD + "workflow:\n  - step: start\n    bogus: 1\n    next: end\n")
    assert [item.code for item in done.remaining] == ["DSL030"]
    assert done.changes == ("line 7: older form of `next`: write `next.arcs`",)


def test_the_editor_puts_an_item_between_others():
    edit = RoundTripEditor()
    items = edit.seq()
    box = edit.map()
    edit.put(box, "a", 1, (box, "a"))
    edit.append(items, 1, (box, "a"))
    edit.append(items, 3, (box, "a"))
    edit.insert(items, 1, 2, (items, 0))
    assert items == [1, 2, 3]


@pytest.mark.parametrize(
    "body",
    [
        "  - step: a\n    when: x\n    spec: {policy: {admit: y}}\n",
        "  - step: a\n    set_ctx: {n: 1}\n    set: {ctx.n: 2}\n",
        "  - step: a\n    set: {n: 1, ctx.n: 2}\n",
    ],
)
def test_an_older_form_beside_its_new_form_is_left_for_the_author(body):
    text = "apiVersion: noetl.io/v2\nkind: Playbook\nmetadata: {name: a}\nworkflow:\n" + body
    done = migrate(text)
    assert [item.code for item in done.remaining if item.severity == "error"] == ["DSL039"]
    assert any(word in done.text for word in ("when: x", "set_ctx: {n: 1}", "{n: 1, ctx.n: 2}"))
