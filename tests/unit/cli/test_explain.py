import json

import pytest

from noetl.api.failures import PATTERNS, RUNS
from noetl.cli.explain import find, topics
from noetl.cli.failures import EXITS, FAILURES
from noetl.settings import SETTINGS


def test_every_topic_that_is_listed_has_an_explanation(noetl):
    assert [topic for topic in topics() if find(topic) is None] == []
    assert noetl("explain", "-o", "name").out.split() == list(topics())
    items = json.loads(noetl("explain", "--json").out)["items"]
    assert [item["topic"] for item in items] == list(topics())
    assert all(item["title"] for item in items)
    assert len(noetl("explain").out.splitlines()) >= len(topics())


@pytest.mark.parametrize("topic", ["Playbook.workflow.loop", "playbook.workflow.loop", "step.loop"])
def test_a_key_is_explained_with_its_type_and_its_keys(noetl, topic):
    code, out, err = noetl("explain", topic)

    assert (code, err) == (0, "")
    assert "  type      map (Loop)\n" in out
    assert "  required  no\n" in out
    assert "\n  iterator  name " in out


def test_a_code_is_explained_with_its_example_as_it_is_written(noetl):
    assert noetl("explain", "dsl013").out == (
        "DSL013\n\nOne key is written twice in one map.\n\n"
        "Example:\n  step: a\n  step: b\n\nRemedy: Keep one of them.\n"
    )


def test_exit_codes_errors_and_settings_are_topics(noetl):
    assert noetl("explain", "exit.7").out == (
        f"exit.7\n\n{EXITS[7]}\n\nError codes that end so: invalid_playbook, invalid_workload, "
        "test_failed, runs_differ, migration_needed, bad_statement.\n"
    )
    assert noetl("explain", "exit.3").out == f"exit.3\n\n{EXITS[3]}\n"
    assert noetl("explain", "error.usage").out == (
        f"error.usage\n\n{FAILURES['usage'].meaning}\n\nThe command ends with 2.\n"
    )
    setting = SETTINGS[0]
    for topic in (setting.name, f"setting.{setting.name}"):
        assert noetl("explain", topic).out == (
            f"setting.{setting.name}\n  type     text\n  default  table\n\n{setting.meaning}\n"
        )


def test_an_explanation_is_json_too(noetl):
    found = json.loads(noetl("explain", "step.loop", "-o", "json").out)

    assert (found["topic"], found["type"], found["required"]) == ("step.loop", "map (Loop)", False)
    assert {"name", "type", "doc"} == set(found["keys"][0])


@pytest.mark.parametrize(
    ("topic", "near"),
    [("step.lop", "step.loop"), ("tool.htpp", "tool.http"), ("exit.77", "exit.7")],
)
def test_an_unknown_topic_names_the_nearest_ones(noetl, topic, near):
    code, out, err = noetl("explain", topic, "--json")
    error = json.loads(err)["error"]

    assert (code, out, error["code"]) == (5, "", "not_found")
    assert near in error["details"]["near"]
    assert f"`{near}`" in error["hint"]


def test_a_topic_near_to_nothing_says_how_to_list_them(noetl):
    assert noetl("explain", "@@@@").err.endswith("hint: run `noetl explain` to list topics\n")


def test_lines_are_as_wide_as_the_output(noetl, monkeypatch):
    monkeypatch.setenv("COLUMNS", "60")

    assert max(len(line) for line in noetl("explain", "exit.2").out.splitlines()) <= 60


def test_an_event_is_a_topic(noetl):
    shown = noetl("explain", "event.command.issued").out

    assert shown.startswith("event.command.issued\n\nWork for a worker")
    assert "meta.command_key" in shown
    assert noetl("explain", "event.command.isued").code == 5


@pytest.mark.parametrize(
    ("topic", "code"),
    [("egress_denied", "egress_denied"), ("error.TLS_ERROR", "TLS_ERROR"), ("PG_23505", "PG_*"),
     ("error.http_401", "http_*")],
)  # fmt: skip
def test_a_code_of_a_run_is_explained_with_its_remedy(noetl, topic, code):
    reason = (RUNS | PATTERNS)[code]
    found = json.loads(noetl("explain", topic, "-o", "json").out)

    assert (found["topic"], found["title"], found["text"]) == (
        topic, reason.meaning, f"{reason.meaning}\n\nWhat to do: {reason.remedy}",
    )  # fmt: skip
