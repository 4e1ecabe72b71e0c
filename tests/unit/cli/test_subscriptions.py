import json
from itertools import count

import pytest

from tests.unit.cli.runs import register

NUMBERS = count(1)
SUBSCRIPTION = """\
apiVersion: noetl.io/v1
kind: Subscription
metadata: {{name: readings, path: {path}}}
spec:
  source: nats
  mode: pull
  url: nats://127.0.0.1:4222
  stream: S
  consumer: c
  dispatch: {{playbook: plant/store}}
"""


def one(result):
    assert result.code == 0, result.err
    return json.loads(result.out)


@pytest.fixture
def path():
    return f"plant/readings{next(NUMBERS)}"


@pytest.fixture
def known(remote, tmp_path, path):
    (tmp_path / "readings.yaml").write_text(SUBSCRIPTION.format(path=path))
    assert remote("register", "readings.yaml").code == 0
    made = one(remote("subscriptions", "register", path, "-o", "json"))
    yield made
    remote("subscriptions", "deactivate", path, "--yes")


def test_a_subscription_is_registered_listed_and_shown(remote, known, path):
    assert (known["state"], known["path"], known["source"]) == ("REGISTERED", path, "nats")
    assert int(known["subscription_id"]) > 2**53
    found = one(remote("subscriptions", "list", "-o", "json"))["items"]
    assert path in [item["path"] for item in found]
    name = f"subscription/{known['subscription_id']}"
    assert name in remote("subscription", "list", "-o", "name").out.splitlines()
    shown = one(remote("-o", "json", "subscription", "get", name))
    assert shown["content"].startswith("apiVersion")
    assert "content" not in remote("subscriptions", "get", path).out
    assert path in remote("subscriptions", "list").out


def test_its_life_follows_the_actions_and_a_wrong_one_is_refused(remote, known, path):
    states = []
    for words in (
        ("activate",), ("pause", "--reason", "the plant is serviced"), ("resume",), ("drain",),
        ("deactivate", "-y"),
    ):  # fmt: skip
        word, *more = words
        shown = one(remote("subscriptions", word, path, *more, "-o", "json"))
        states.append(shown["state"])
    assert states == ["ACTIVE", "PAUSED", "ACTIVE", "DRAINING", "DEACTIVATED"]
    refused = remote("subscriptions", "pause", known["subscription_id"])
    assert (refused.code, "bad_transition" in refused.err) == (7, True)
    assert remote("subscriptions", "deactivate", path, "--no-input").code == 2
    listed = one(remote("subscriptions", "list", "--state", "deactivated", "-o", "json"))
    assert path in [item["path"] for item in listed["items"]]
    active = one(remote("subscriptions", "list", "--state", "active", "-o", "json"))["items"]
    assert path not in [item["path"] for item in active]
    wrong = remote("subscriptions", "list", "--state", "activ")
    assert (wrong.code, "did you mean `ACTIVE`?" in wrong.err) == (2, True)


@pytest.mark.usefixtures("known")
def test_what_waits_and_what_was_given_up_is_shown(remote, path):
    spool = one(remote("subscriptions", "spool", path, "-o", "json"))
    assert spool["spool"] == {"items": 0, "bytes": 0, "oldest_at": None, "dlq": 0}
    assert (spool["circuit"], spool["pending_actions"]) == ({}, [])
    assert one(remote("subscriptions", "dead-letters", path, "-o", "json"))["items"] == []
    assert remote("subscriptions", "redrive", path).code == 2
    assert remote("subscriptions", "redrive", path, "a", "--all").code == 2
    assert remote("subscriptions", "discard", path, "--all", "--no-input").code == 2


@pytest.mark.usefixtures("known")
def test_a_name_that_nobody_has_is_not_found_and_the_nearest_is_named(remote, path):
    missing = remote("subscriptions", "get", f"{path}x")
    assert (missing.code, missing.out) == (5, "")
    assert f"error[not_found]: there is no subscription `{path}x`\n" in missing.err
    assert f"did you mean `{path}`?" in missing.err
    assert remote("subscriptions", "get", "77").code == 5
    assert path in remote("__complete", "subscriptions", "plant").out.splitlines()


def test_a_document_of_another_kind_is_no_subscription(remote, served):
    register(served, "plant/other")
    refused = remote("subscriptions", "register", "plant/other")
    assert (refused.code, "not_a_subscription" in refused.err) == (7, True)
