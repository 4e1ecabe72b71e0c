import json

import pytest

DOCUMENT = """\
apiVersion: noetl.io/v2
kind: Playbook
metadata: {{name: {name}, path: {path}}}
workflow:
  - step: start
    tool: {{kind: noop}}
"""
CREDENTIAL = """\
apiVersion: noetl.io/v2
kind: Credential
metadata: {name: register_key}
spec: {type: api_key, data: {key: of-the-test}}
"""


@pytest.fixture
def write(tmp_path):
    def written(name, path, text=DOCUMENT):
        file = tmp_path / name
        file.parent.mkdir(parents=True, exist_ok=True)
        file.write_text(text.format(name="any", path=path))
        return name

    return written


def items(result):
    return [
        (i["file"], i["path"], i["version"], i["status"]) for i in json.loads(result.out)["items"]
    ]


def test_the_same_content_is_unchanged_and_makes_no_version(remote, write):
    file = write("a.yaml", "register/a")

    assert items(remote("register", file, "-o", "json")) == [(file, "register/a", 1, "registered")]
    assert items(remote("register", file, "-o", "json")) == [(file, "register/a", 1, "unchanged")]
    write("a.yaml", "register/a", DOCUMENT + "    desc: more\n")
    assert items(remote("register", file, "-o", "json")) == [(file, "register/a", 2, "registered")]


def test_each_format(remote, write):
    file = write("f.yaml", "register/f")

    assert remote("register", file) == (
        0,
        "PATH        VERSION  STATUS      FILE\nregister/f  1        registered  f.yaml\n",
        "",
    )
    assert remote("register", file, "-o", "name").out == "playbook/register/f@1\n"
    assert json.loads(remote("register", file, "-o", "jsonl").out)["status"] == "unchanged"
    assert "status: unchanged" in remote("register", file, "-o", "yaml").out


def test_the_other_way_to_name_a_document(remote, write):
    file = write("g.yaml", "register/g")

    assert remote("register", "playbook", "--file", file, "-o", "name").out == (
        "playbook/register/g@1\n"
    )


def test_a_credential_is_named_in_the_same_way(remote, tmp_path):
    (tmp_path / "c.yaml").write_text(CREDENTIAL)

    assert remote("register", "credential", "--file", "c.yaml", "-o", "name").out == (
        "credential/register_key@1\n"
    )


def test_standard_input_is_a_document(remote):
    text = DOCUMENT.format(name="x", path="register/stdin").encode()

    assert remote("register", "-", "-o", "name", stdin=text).out == "playbook/register/stdin@1\n"


def test_a_folder_is_taken_without_its_tests_and_recursively_with_its_folders(remote, write):
    write("d/one.yaml", "register/one")
    write("d/one.test.yaml", "register/test")
    write("d/deep/two.yaml", "register/two")

    assert remote("register", "d", "-o", "name").out == "playbook/register/one@1\n"
    assert remote("register", "d", "-R", "-o", "name").out.split() == [
        "playbook/register/two@1",
        "playbook/register/one@1",
    ]


def test_a_bad_file_does_not_keep_the_others_out(remote, write):
    write("m/bad.yaml", "register/bad", DOCUMENT.replace("noop", "nop"))
    write("m/good.yaml", "register/good")
    code, out, err = remote("register", "m")

    assert code == 7
    assert "register/good  1" in out
    assert "m/bad.yaml:6:" in err
    assert err.endswith(
        "error[invalid_playbook]: 1 of 2 documents were refused\n"
        "hint: check it with `noetl validate m/bad.yaml`\n"
    )


def test_a_bad_file_in_json_leaves_stdout_empty(remote, write):
    write("j/bad.yaml", "register/bad", "kind: [")
    write("j/good.yaml", "register/good-j")
    code, out, err = remote("register", "j", "-o", "json")
    error = json.loads(err)["error"]

    assert (code, out) == (7, "")
    assert error["code"] == "invalid_playbook"
    assert [item["status"] for item in error["details"]["items"]] == ["refused", "registered"]
    assert error["details"]["diagnostics"][0]["file"] == "j/bad.yaml"


def test_a_file_that_is_not_text_is_refused_alone(remote, write, tmp_path):
    (tmp_path / "latin.yaml").write_bytes(b"kind: Playbook # \xe9\n")
    code, _, err = remote("register", "latin.yaml", write("u.yaml", "register/u"), "nowhere.yaml")

    assert code == 7
    assert "latin.yaml: invalid_playbook: the file is not UTF-8" in err
    assert "nowhere.yaml: file_not_found: there is no file `nowhere.yaml`" in err


def test_something_must_be_named(remote):
    assert remote("register").code == 2
