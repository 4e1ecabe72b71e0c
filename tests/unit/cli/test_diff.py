import json

import pytest

from tests.unit.cli.runs import NOOP, document, register

MORE = NOOP.replace("{n: 1}", "{n: 2}").replace("step: end}]", "step: last}]").replace(
    "- step: end", "- step: last"
)  # fmt: skip


@pytest.fixture(scope="module", autouse=True)
def _versions(served):
    register(served, "diff/a")
    register(served, "diff/a", MORE)
    register(served, "diff/b")


def test_two_versions_differ_in_meaning_and_in_text(remote):
    code, out, err = remote("diff", "diff/a@1", "diff/a@2")

    assert (code, err) == (0, "")
    lines = out.splitlines()
    assert lines[:4] == [
        "step last: added",
        "step end: removed",
        "step start: changed next",
        "input n: changed 1 -> 2",
    ]
    assert lines[4:6] == ["--- diff/a@1", "+++ diff/a@2"]
    assert "-workload: {n: 1}" in lines


def test_json_is_the_answer_of_the_server(remote, served):
    there = served.call(lambda client: client.difference("diff/a", 1, 2))
    found = json.loads(remote("diff", "diff/a@1", "diff/a", "-o", "json").out)

    assert (found["from"], found["to"], found["unified"]) == (1, 2, there.unified)
    assert found["steps"]["changed"] == [{"step": "start", "keys": ["next"]}]
    assert json.loads(remote("diff", "diff/a@2", "-o", "json").out) == found


def test_documents_of_two_paths_are_compared_too(remote):
    found = json.loads(remote("diff", "diff/a@2", "playbook/diff/b@1", "-o", "json").out)

    assert (found["from_path"], found["path"]) == ("diff/a", "diff/b")
    assert found["steps"]["removed"] == ["last"]


def test_a_file_is_compared_with_what_its_path_means(remote, tmp_path):
    (tmp_path / "a.yaml").write_text(document(NOOP, "diff/a"))
    (tmp_path / "b.yaml").write_text(document(NOOP, "diff/b"))
    (tmp_path / "c.yaml").write_text(document(NOOP, "diff/c"))
    found = json.loads(remote("diff", "-f", ".", "-o", "json").out)

    assert found["next_cursor"] is None
    assert [(i["file"], i["from"], bool(i["unified"])) for i in found["items"]] == [
        ("a.yaml", 2, True), ("b.yaml", 1, False), ("c.yaml", None, True),
    ]  # fmt: skip
    assert found["items"][2]["steps"]["added"] == ["start", "end"]
    assert remote("diff", "-f", "b.yaml") == (0, "", "b.yaml does not differ\n")
    assert remote("diff", "-f", ".", "-o", "name", "-q").out == (
        "catalog://diff/a\ncatalog://diff/c\n"
    )


def test_the_exit_code_tells_on_request(remote, tmp_path):
    (tmp_path / "b.yaml").write_text(document(NOOP, "diff/b"))

    assert remote("diff", "diff/a@1", "diff/a@2", "--exit-code", "-o", "json").code == 7
    assert remote("diff", "diff/a@1", "diff/a@1", "--exit-code").code == 0
    assert remote("diff", "-f", "b.yaml", "--exit-code").code == 0
    (tmp_path / "b.yaml").write_text(document(MORE, "diff/b"))
    assert remote("diff", "-f", "b.yaml", "--exit-code").code == 7


def test_colour_is_for_terminals(remote):
    assert "\x1b" not in remote("diff", "diff/a@1", "diff/a@2").out
    assert "\x1b[31m-workload" in remote("diff", "diff/a@1", "diff/a@2", "--color", "always").out


def test_something_must_be_named_and_be_there(remote):
    assert remote("diff").code == 2
    assert remote("diff", "diff/a", "-f", "a.yaml").code == 2
    assert remote("diff", "diff/nowhere@1").code == 5
    assert remote("diff", "-f", "nowhere.yaml").code == 5
