import json

import pytest

from noetl.api.catalog import CatalogQuery, Register
from noetl.cli import applying
from tests.servers.memory import MemoryServer
from tests.unit.cli.runs import NOOP, document, register, start


@pytest.fixture
def served():
    """A server of its own: what is pruned is everything else."""
    with MemoryServer() as server:
        yield server


@pytest.fixture
def write(tmp_path):
    def written(name, path, text=NOOP):
        file = tmp_path / "tree" / name
        file.parent.mkdir(parents=True, exist_ok=True)
        file.write_text(document(text, path))
        return file

    return written


def applied(result):
    assert (result.code, result.err) == (0, ""), result
    return [
        (item["action"], item["path"], item["from"], item["version"])
        for item in json.loads(result.out)["items"]
    ]


def paths(served):
    return [e.path for e in served.call(lambda client: client.catalog(CatalogQuery())).entries]


TREE = ("apply", "-f", "tree", "-R")
NEWER = f"{NOOP}    desc: newer\n"


def test_files_are_created_updated_or_unchanged(remote, served, write):
    register(served, "etl/old")
    register(served, "etl/same")
    write("same.yaml", "etl/same")
    write("deep/old.yaml", "etl/old", NEWER)
    write("new.yaml", "etl/new")
    write("new.test.yaml", "etl/not-a-test")

    assert applied(remote(*TREE, "-o", "json")) == [
        ("update", "etl/old", 1, 2),
        ("create", "etl/new", None, 1),
        ("unchanged", "etl/same", 1, 1),
    ]
    assert applied(remote(*TREE, "-o", "json")) == [
        ("unchanged", "etl/old", 2, 2),
        ("unchanged", "etl/new", 1, 1),
        ("unchanged", "etl/same", 1, 1),
    ]


def test_each_format(remote, write):
    file = write("f.yaml", "etl/f")

    assert remote("apply", "-f", str(file)) == (
        0,
        f"ACTION  PATH   FROM  VERSION  FILE\ncreate  etl/f  -     1        {file}\n",
        "",
    )
    assert remote(*TREE, "-o", "name").out == "playbook/etl/f@1\n"
    assert json.loads(remote(*TREE, "-o", "jsonl").out)["action"] == "unchanged"
    assert "action: unchanged" in remote(*TREE, "-o", "yaml").out


@pytest.mark.parametrize("where", ["client", "server"])
def test_a_dry_run_changes_nothing_and_shows_what_is_then_done(remote, served, write, where):
    register(served, "etl/old")
    register(served, "etl/gone")
    write("old.yaml", "etl/old", NEWER)
    write("new.yaml", "etl/new")
    words = (*TREE, "--prune", "-o", "json")
    planned = applied(remote(*words, f"--dry-run={where}"))

    assert paths(served) == ["etl/gone", "etl/old"]
    done = applied(remote(*words, "--yes"))
    assert [item[:3] for item in planned] == [item[:3] for item in done]
    assert [item[0] for item in done] == ["create", "update", "prune"]
    assert paths(served) == ["etl/new", "etl/old"]


def test_a_path_that_means_an_older_version_means_the_file_again(remote, served, write):
    register(served, "etl/back")
    register(served, "etl/back", NEWER)
    served.call(lambda client: client.promote("etl/back", 1))
    write("back.yaml", "etl/back", NEWER)

    assert applied(remote(*TREE, "-o", "json")) == [("promote", "etl/back", 2, 2)]
    assert served.call(lambda client: client.resolve("etl/back")).version == 2


def test_an_archived_document_comes_back_as_a_new_version(remote, served, write):
    start(served, "etl/run")
    remote("catalog", "archive", "etl/run")
    write("run.yaml", "etl/run")

    assert applied(remote(*TREE, "-o", "json")) == [("update", "etl/run", 1, 2)]


def test_prune_is_agreed_to_before_anything_changes(remote, served, write):
    register(served, "etl/gone")
    write("new.yaml", "etl/new")
    code, out, err = remote(*TREE, "--prune")

    assert (code, out) == (2, "")
    assert err == (
        "prune etl/gone@1\n"
        "error[confirmation_required]: delete 1 document of the catalog?\n"
        "hint: add `--yes`\n"
    )
    assert paths(served) == ["etl/gone"]
    assert remote(*TREE, "--prune", "--yes").code == 0
    # Also when there is nothing to lose: the same line does the same thing every time.
    assert remote(*TREE, "--prune").code == 2


def test_prune_spares_tests_and_the_platform_and_keeps_to_its_prefix(remote, served, write):
    for path in ("system/own", "default/system/own", "etl/gone", "other/gone"):
        register(served, path)
    test = (
        "apiVersion: noetl.io/v2\nkind: PlaybookTest\nmetadata: {name: t, path: etl/t}\n"
        "spec: {playbook: etl/new, cases: [{name: one, expect: {status: COMPLETED}}]}\n"
    )
    served.call(lambda client: client.register(Register(content=test)))
    write("new.yaml", "etl/new")
    remote(*TREE, "--prune", "--prefix", "etl/", "--yes")

    assert paths(served) == ["default/system/own", "etl/new", "etl/t", "other/gone", "system/own"]
    remote(*TREE, "--prune", "--yes")
    assert paths(served) == ["default/system/own", "etl/new", "etl/t", "system/own"]


def test_a_bad_file_keeps_nothing_out_and_nothing_is_pruned_then(remote, served, write):
    register(served, "etl/gone")
    write("bad.yaml", "etl/bad", NOOP.replace("noop", "nop"))
    write("good.yaml", "etl/good")
    write("twice.yaml", "etl/good")
    code, out, err = remote(*TREE, "--prune", "--yes")

    assert code == 7
    assert "create  etl/good" in out
    assert "tree/bad.yaml:7:18: DSL050" in err
    assert "nothing is pruned, because documents were refused" in err
    assert "tree/good.yaml has the path etl/good, too" in err
    assert "2 of 3 documents were refused" in err
    assert paths(served) == ["etl/gone", "etl/good"]


def test_a_bad_file_in_json_leaves_stdout_empty(remote, write):
    write("bad.yaml", "etl/bad", "kind: [")
    write("good.yaml", "etl/good")
    for more in ((), ("--dry-run=server",), ("--dry-run=client",)):
        code, out, err = remote(*TREE, "-o", "json", *more)
        error = json.loads(err)["error"]

        assert (code, out, error["code"]) == (7, "", "invalid_playbook")
        assert [item.get("status") for item in error["details"]["items"]] == [None, "refused"]


def test_what_others_wrote_since_the_plan_is_not_written_over(remote, served, write, monkeypatch):
    register(served, "etl/raced")
    write("raced.yaml", "etl/raced", NEWER)
    planned = applying.plan

    async def raced(client, *words, **more):
        made = await planned(client, *words, **more)
        await client.register(Register(content=document(f"{NOOP}    desc: theirs\n", "etl/raced")))
        return made

    monkeypatch.setattr(applying, "plan", raced)
    code, _, err = remote(*TREE)

    assert code == 6
    assert "version_conflict" in err
    assert served.call(lambda client: client.resolve("etl/raced")).version == 2


def test_options_that_cannot_be(remote, write):
    write("a.yaml", "etl/a")

    assert remote("apply").code == 2
    assert remote(*TREE, "--dry-run=sever").err.endswith("hint: did you mean `server`?\n")
    assert remote(*TREE, "--prefix", "etl/").code == 2
    assert remote("apply", "-f", "nowhere").code == 7
