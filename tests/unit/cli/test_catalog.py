import json

import pytest

from noetl.api.catalog import Register
from tests.unit.cli.runs import NOOP, document, register, start


def one(result):
    assert result.code == 0, result.err
    return json.loads(result.out)


@pytest.fixture(scope="module", autouse=True)
def _documents(served):
    register(served, "shelf/a")
    register(served, "shelf/a", f"{NOOP}    desc: newer\n")
    described = NOOP.replace("name: any", "name: any, description: 'Every order, once'")
    register(served, "shelf/b", described)


def test_documents_are_listed(remote):
    found = one(remote("catalog", "list", "--prefix", "shelf/", "-o", "json"))

    assert found["next_cursor"] is None
    assert [(i["path"], i["version"]) for i in found["items"]] == [("shelf/a", 2), ("shelf/b", 1)]
    rows = remote("catalog", "list", "--prefix", "shelf/").out.splitlines()
    assert rows[0].split() == ["PATH", "VERSION", "KIND", "CREATED", "BY", "ABOUT"]
    assert rows[2].endswith("Every order, once")
    assert remote("catalog", "list", "--text", "every order", "-o", "name").out == (
        "playbook/shelf/b@1\n"
    )
    assert one(remote("catalog", "list", "--kind", "subscription", "--json"))["items"] == []


def test_a_list_goes_on_over_its_pages(remote):
    code, out, err = remote("catalog", "list", "--prefix", "shelf/", "--limit", "1", "-o", "name")

    assert (code, out) == (0, "playbook/shelf/a@2\n")
    assert err == "there are more; `--all` shows them, `--limit N` more of them\n"
    every = remote("catalog", "list", "--prefix", "shelf/", "--versions", "--all", "-o", "name")
    assert sorted(every.out.split()) == [
        "playbook/shelf/a@1", "playbook/shelf/a@2", "playbook/shelf/b@1",
    ]  # fmt: skip


def test_a_document_is_printed_as_it_was_registered(remote):
    assert remote("catalog", "get", "shelf/a@1").out == document(NOOP, "shelf/a")
    entry = one(remote("catalog", "get", "playbook/shelf/a@2", "-o", "json"))
    assert (entry["version"], entry["content"]) == (
        2,
        document(f"{NOOP}    desc: newer\n", "shelf/a"),
    )
    assert remote("catalog", "get", entry["catalog_id"], "-o", "name").out == "playbook/shelf/a@2\n"
    assert remote("catalog", "get", "catalog://shelf/a", "-o", "name").out == "playbook/shelf/a@2\n"
    assert remote("catalog", "get", "shelf/nowhere").code == 5
    assert remote("catalog", "get", "shelf/a@7").code == 5


def test_versions_and_what_a_path_means(remote):
    found = one(remote("catalog", "versions", "shelf/a", "-o", "json"))["items"]
    assert [(i["version"], i["active"]) for i in found] == [(2, True), (1, False)]

    made = one(remote("catalog", "promote", "shelf/a@1", "-o", "json"))
    assert (made["version"], made["previous"], made["changed"]) == (1, 2, True)
    assert remote("catalog", "get", "shelf/a", "-o", "name").out == "playbook/shelf/a@1\n"
    rows = remote("catalog", "versions", "shelf/a").out.splitlines()
    assert rows[2].startswith("*  1 ")
    assert remote("catalog", "versions", "shelf/a", "-o", "name").out == (
        "playbook/shelf/a@2\nplaybook/shelf/a@1\n"
    )
    assert remote("catalog", "promote", "shelf/a@2", "-o", "name").out == "playbook/shelf/a@2\n"
    assert remote("catalog", "promote", "shelf/a").code == 2
    assert remote("catalog", "promote", "shelf/a@9").code == 5


def test_versions_are_archived_restored_and_deleted(remote, served):
    run = start(served, "shelf/run")
    register(served, "shelf/run", f"{NOOP}    desc: newer\n")

    assert remote("catalog", "delete", "shelf/run").code == 2
    gone = one(remote("catalog", "delete", "shelf/run", "--yes", "-o", "json"))
    assert (gone["deleted"], gone["archived"], gone["count"]) == ([2], [1], 2)
    assert remote("catalog", "get", "shelf/run").code == 5
    assert remote("exec", "shelf/run").code == 5
    assert one(remote("status", run, "--json"))["status"] == "COMPLETED"
    # What `list --archived -o name` shows leads back to it.
    name = remote("catalog", "list", "--archived", "--prefix", "shelf/run", "-o", "name").out
    assert name == "playbook/shelf/run@1\n"
    assert remote("catalog", "get", name.strip()).out == document(NOOP, "shelf/run")

    assert remote("catalog", "restore", "shelf/run", "-o", "name").out == "playbook/shelf/run@1\n"
    assert remote("exec", "shelf/run").code == 0
    assert remote("catalog", "archive", "shelf/run@1").out.splitlines()[1].split() == [
        "shelf/run", "-", "1", "-",
    ]  # fmt: skip
    again = remote("catalog", "archive", "shelf/run@1")
    assert (again.code, again.err) == (0, "nothing was to be done\n")
    assert remote("catalog", "archive", "shelf/nowhere").code == 5


def test_several_are_deleted_or_none(remote, served):
    register(served, "shelf/x")
    register(served, "shelf/y")

    assert remote("catalog", "delete", "shelf/x", "shelf/nowhere", "--yes").code == 5
    assert remote("catalog", "get", "shelf/x", "-o", "name").code == 0
    done = one(remote("catalog", "delete", "shelf/x", "shelf/y", "-y", "-o", "json"))
    assert [item["deleted"] for item in done["items"]] == [[1], [1]]


def test_a_word_that_could_be_two_documents_is_refused(remote, served):
    register(served, "two")
    register(served, "playbook/two")
    code, out, err = remote("catalog", "delete", "playbook/two@1", "--yes")

    assert (code, out) == (2, "")
    assert "`playbook/two@1` means catalog://playbook/two, and catalog://two too" in err
    assert remote("catalog", "get", "catalog://playbook/two", "-o", "name").out == (
        "playbook/playbook/two@1\n"
    )
    remote("catalog", "delete", "catalog://two", "--yes")
    assert remote("catalog", "get", "playbook/two@1", "-o", "name").code == 0


def test_an_export_comes_back_unchanged(remote, served, tmp_path):
    text = document(NOOP, "ends/crlf").replace("\n", "\r\n")
    served.call(lambda client: client.register(Register(content=text)))
    found = one(remote("catalog", "export", "out", "--prefix", "ends/", "-o", "json"))["items"]

    assert {item["status"] for item in found} == {"written"}
    assert (tmp_path / "out/ends/crlf.yaml").read_bytes() == text.encode()
    again = one(remote("catalog", "export", "out", "--prefix", "ends/", "-o", "json"))["items"]
    assert {item["status"] for item in again} == {"unchanged"}
    plan = one(remote("apply", "-f", "out", "-R", "--dry-run=server", "-o", "json"))["items"]
    assert {item["action"] for item in plan} == {"unchanged"}

    (tmp_path / "out/ends/crlf.yaml").write_text("mine")
    assert remote("catalog", "export", "out", "--prefix", "ends/").code == 2
    assert (tmp_path / "out/ends/crlf.yaml").read_text() == "mine"
    assert remote("catalog", "export", "out", "--prefix", "ends/", "--yes").code == 0
    assert (tmp_path / "out/ends/crlf.yaml").read_bytes() == text.encode()
    (tmp_path / "file").touch()
    assert remote("catalog", "export", "file", "--prefix", "ends/").code == 1
