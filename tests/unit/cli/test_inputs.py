import io
import sys

import pytest

from noetl.cli.failures import CommandFailed
from noetl.cli.inputs import Inputs, payload_of


def test_a_value_is_json_or_else_text():
    words = ("n=1", "t=true", "l=[1, 2]", "s=007", "w=a=b", "e=", "x=NaN", 'q="1"', "a.b.c=null")

    assert payload_of(Inputs(values=words)) == {
        "n": 1, "t": True, "l": [1, 2], "s": "007", "w": "a=b", "e": "", "x": "NaN", "q": "1",
        "a": {"b": {"c": None}},
    }  # fmt: skip


def test_a_string_is_never_parsed():
    assert payload_of(Inputs(texts=("n=1", "a.b=true"))) == {"n": "1", "a": {"b": "true"}}


def test_a_file_gives_the_text_of_a_key(tmp_path):
    (tmp_path / "note.txt").write_text("two\nlines\n")

    assert payload_of(Inputs(files=("note=note.txt",))) == {"note": "two\nlines\n"}


def test_later_sources_win_key_by_key(tmp_path):
    (tmp_path / "in.yaml").write_text("a: 1\nb: {x: 1, y: 1, z: 1}\nc: file\n")
    inputs = Inputs(file="in.yaml", payload='{"b": {"y": 2, "z": 2}, "c": 2}', values=("b.z=3",))

    assert payload_of(inputs) == {"a": 1, "b": {"x": 1, "y": 2, "z": 3}, "c": 2}


@pytest.mark.parametrize("text", ['{"n": 1}', "n: 1\n"])
def test_a_payload_comes_from_a_file_or_from_standard_input(tmp_path, monkeypatch, text):
    (tmp_path / "p.json").write_text(text)
    assert payload_of(Inputs(payload="@p.json")) == {"n": 1}

    monkeypatch.setattr(sys, "stdin", io.TextIOWrapper(io.BytesIO(text.encode())))
    assert payload_of(Inputs(payload="-")) == {"n": 1}


@pytest.mark.parametrize(
    ("inputs", "code", "message"),
    [
        (Inputs(values=("a",)), "usage", "`--set a` has no `=`"),
        (Inputs(texts=("=1",)), "usage", "`--set-string =1` has no key"),
        (Inputs(values=("a..b=1",)), "usage", "`--set a..b` names an empty key"),
        (Inputs(values=("a=1", "a.b=2")), "usage", "`--set a.b`: `a` is not a map"),
        (Inputs(payload="{"), "usage", "`--payload` is not JSON"),
        (Inputs(payload="[1]"), "invalid_workload", "`--payload` is not a map of inputs"),
        (Inputs(file="l.yaml"), "invalid_workload", "`-i l.yaml` is not a map of inputs"),
        (Inputs(file="none.yaml"), "file_not_found", "there is no file `none.yaml`"),
    ],
)
def test_what_cannot_be_meant_is_refused(tmp_path, inputs, code, message):
    (tmp_path / "l.yaml").write_text("- 1\n")

    with pytest.raises(CommandFailed) as caught:
        payload_of(inputs)
    assert (caught.value.code, caught.value.message) == (code, message)


def test_a_file_that_is_no_yaml_names_the_place(tmp_path):
    (tmp_path / "in.yaml").write_text("a: [1\nb: 2\n")

    with pytest.raises(CommandFailed) as caught:
        payload_of(Inputs(file="in.yaml"))
    assert caught.value.code == "invalid_workload"
    assert "line 2" in caught.value.message
