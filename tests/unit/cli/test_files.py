import socket

import pytest

from noetl.cli.failures import CommandFailed
from noetl.cli.files import sources


def names(*words):
    return [source.name for source in sources(words)]


def test_folders_are_searched_in_sorted_order_without_hidden_ones(tmp_path):
    for name in ("b/z.yml", "b/a.yaml", "a.yaml", ".git/x.yaml", "b/.x.yaml", "notes.md"):
        path = tmp_path / name
        path.parent.mkdir(exist_ok=True)
        path.write_text("a: 1")

    assert names(str(tmp_path)) == [str(tmp_path / n) for n in ("a.yaml", "b/a.yaml", "b/z.yml")]


def test_a_file_named_twice_is_read_once(tmp_path):
    (tmp_path / "a.yaml").write_text("a: 1")

    assert names(str(tmp_path), str(tmp_path / "a.yaml")) == [str(tmp_path / "a.yaml")]


def test_a_named_file_needs_no_suffix(tmp_path):
    (tmp_path / "playbook").write_text("a: 1")

    assert names(str(tmp_path / "playbook")) == [str(tmp_path / "playbook")]


def test_a_missing_file_names_the_nearest_one(tmp_path):
    (tmp_path / "orders.yaml").write_text("a: 1")
    with pytest.raises(CommandFailed) as caught:
        sources(["ordres.yaml"])

    assert (caught.value.code, caught.value.exit_code) == ("file_not_found", 5)
    assert caught.value.hint == "did you mean `orders.yaml`?"


@pytest.mark.parametrize("word", ["nowhere/a.yaml", "zzz"])
def test_a_missing_file_near_to_nothing_says_so(word):
    with pytest.raises(CommandFailed) as caught:
        sources([word])

    assert (caught.value.code, caught.value.hint) == ("file_not_found", "check the path")


def test_a_folder_without_yaml_is_not_silently_fine(tmp_path):
    with pytest.raises(CommandFailed) as caught:
        sources([str(tmp_path)])

    assert caught.value.code == "file_not_found"


def test_a_file_that_cannot_be_opened_is_named(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    with socket.socket(socket.AF_UNIX) as listener:
        listener.bind("a.yaml")  # a socket is no file to read, whoever asks
        with pytest.raises(CommandFailed) as caught:
            sources(["a.yaml"])
    assert (caught.value.code, caught.value.exit_code) == ("file_unreadable", 1)


def test_a_name_that_cannot_be_a_file_is_unreadable(tmp_path):
    (tmp_path / "a.yaml").write_text("a: 1")
    with pytest.raises(CommandFailed) as caught:
        sources([f"{tmp_path}/a.yaml/b"])

    assert caught.value.code == "file_unreadable"


def test_no_more_is_read_than_a_document_may_have(tmp_path):
    (tmp_path / "large.yaml").write_bytes(b"a" * 3 * 1024 * 1024)

    assert len(sources([str(tmp_path / "large.yaml")])[0].data) == 1024 * 1024 + 1
