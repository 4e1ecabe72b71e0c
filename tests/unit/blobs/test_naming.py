"""The grammar of references."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from noetl.blobs.base import checked
from noetl.blobs.naming import InvalidRef, Name, parsed
from noetl.blobs.refs import key_of, ref_of

RUN = "331204559102443520"


@pytest.mark.parametrize(
    ("ref", "name"),
    [
        (
            f"execution/{RUN}/result/load/0af3",
            Name(
                form="result",
                key=f"execution/{RUN}/result/load/0af3",
                execution_id=RUN,
                name="load",
            ),
        ),
        (
            f"execution/{RUN}/manifest/a/%62/x",
            Name(
                form="manifest",
                key=f"execution/{RUN}/manifest/a/b/x",
                execution_id=RUN,
                name="a/b",
            ),
        ),
        (
            f"acme/shop/results/{RUN}/load/0/12/1",
            Name(
                form="row",
                key=f"acme/shop/results/{RUN}/load/0/12/1",
                execution_id=RUN,
                tenant_id="acme",
                name="load",
            ),
        ),
        (
            f"acme/shop/state/{RUN}/gr%C3%B6%C3%9Fe/0/0/1",
            Name(
                form="row",
                key=f"acme/shop/state/{RUN}/gr%C3%B6%C3%9Fe/0/0/1",
                execution_id=RUN,
                tenant_id="acme",
                name="größe",
            ),
        ),
        (
            "spool/orders/new/17/m%2F1",
            Name(form="spool", key="spool/orders/new/17/m%2F1", name="orders/new"),
        ),
        (
            "plugin/math/add@3",
            Name(form="plugin", key="plugin/math/add%403", name="math/add"),
        ),
    ],
)
def test_every_form_is_read(ref, name):
    assert parsed(f"noetl://{ref}") == name


@pytest.mark.parametrize(
    "ref",
    [
        "",
        "noetl://",
        "noetl:///execution/7/result/a/b",
        "NOETL://execution/7/result/a/b",
        "http://execution/7/result/a/b",
        "noetl://execution",
        "noetl://execution/7/result/a",
        "noetl://execution/7/results/a/b",
        "noetl://execution/seven/result/a/b",
        "noetl://execution/0/result/a/b",
        "noetl://execution/9223372036854775808/result/a/b",
        "noetl://execution/7/result/a//b",
        "noetl://execution/7/result/a/b/",
        "noetl://execution/7/result/é/b",
        "noetl://execution/7/result/%ff/b",
        "noetl://execution/7/result/%/b",
        "noetl://execution/7/result/%4/b",
        "noetl://execution/7/result/%zz/b",
        "noetl://acme/shop/results/7/load/0/12",
        "noetl://acme/shop/results/7/load/0/12/1/2",
        "noetl://acme/shop/pictures/7/load/0/12/1",
        "noetl://acme/shop/results/x/load/0/12/1",
        "noetl://acme/shop/results/7/load/0/-1/1",
        "noetl://spool/orders/17",
        "noetl://spool/orders/new/m-1",
        "noetl://spool/orders/x/m-1",
        "noetl://plugin/math",
        "noetl://plugin/math@0",
        "noetl://plugin/math@x",
        "noetl://plugin/@1",
        "noetl://plugin/a@1@2",
        "noetl://execution/7/result/" + "x" * 2100 + "/b",
    ],
)
def test_anything_else_is_refused(ref):
    with pytest.raises(InvalidRef) as refused:
        parsed(ref)
    assert (refused.value.code, refused.value.status) == ("bad_ref", 400)


def test_a_reference_has_2048_characters_at_most():
    start = "noetl://execution/7/result/"
    longest = start + "x" * (2048 - len(start) - 2) + "/b"
    assert parsed(longest).name == "x" * (2048 - len(start) - 2)
    with pytest.raises(InvalidRef):
        parsed(longest + "b")


_SEGMENT = st.text(st.characters(exclude_categories=["Cs"]), min_size=1, max_size=30)


@given(st.lists(_SEGMENT, min_size=1, max_size=4), st.sampled_from(["result", "manifest"]))
def test_a_name_of_any_characters_comes_back(segments, form):
    name = "/".join(one.replace("/", "_") for one in segments)
    ref = ref_of("7", name, "0af3", form)
    assert parsed(ref).name == name
    assert (parsed(ref).form, parsed(ref).key) == (form, key_of(ref))
    assert ref == f"noetl://{parsed(ref).key}"


def test_no_key_leads_elsewhere():
    for name in ("..", ".hidden", "a/../b", "%2e%2e"):
        key = key_of(ref_of("7", name, "x"))
        assert checked(key) == key
    assert key_of("noetl://execution/7/result/%2e%2e/x") == "execution/7/result/%2E./x"


def test_only_values_of_runs_have_a_key_for_tools():
    for ref in ("plugin/a@1", "spool/a/1/m", "acme/shop/results/7/load/0/12/1"):
        with pytest.raises(InvalidRef):
            key_of(f"noetl://{ref}")
