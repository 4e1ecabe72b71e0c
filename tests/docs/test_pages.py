"""What the documentation shows is true: blocks parse, playbooks run, commands end as they say."""

import re
import shutil

import pytest

from noetl.dsl.yaml import load
from tests.docs.pages import ROOT, Follower, Operator, blocks, pages, prose

FOLLOWED = pages(".", "docs/tutorial", "docs/how-to", "docs/explanation")
STACKED = [page for page in FOLLOWED if any(block.needs_stack for block in blocks(page))]
LAST = "docs/how-to/embedded-stack.md"  # the page that deletes the stack
SHELVES = 3  # so many stacks, each for some of the pages
WRITTEN = [*FOLLOWED, *pages("examples"), ROOT / "docs" / "README.md"]
YAML = [block for page in pages(".", "docs", "examples") for block in blocks(page)]
YAML = [block for block in YAML if block.word == "yaml"]
SENTENCES = re.compile(r"[a-z`)][.!?] [A-Z]")


def _name(path):
    return path.relative_to(ROOT).as_posix()


def test_there_is_a_page_of_each_kind():
    kinds = {_name(page).split("/")[1] for page in FOLLOWED if _name(page).startswith("docs/")}

    assert kinds == {"tutorial", "how-to", "explanation"}


@pytest.mark.parametrize("block", YAML, ids=lambda block: block.place)
def test_a_block_of_yaml_parses(block):
    assert load(block.text).findings.sorted() == ()


@pytest.mark.parametrize("page", [p for p in FOLLOWED if p not in STACKED], ids=_name)
def test_a_page_does_what_it_says(page, tmp_path, capsys, monkeypatch):
    shutil.copytree(ROOT / "examples", tmp_path / "examples")
    reader = Follower(tmp_path, capsys, monkeypatch)

    for block in blocks(page):
        reader.follow(block)


@pytest.mark.timeout(600)  # one stack for all pages of a shelf
@pytest.mark.parametrize("shelf", range(SHELVES))
def test_the_pages_about_a_platform_do_what_they_say(shelf, tmp_path, capsys, monkeypatch):
    shutil.copytree(ROOT / "examples", tmp_path / "desk" / "examples")
    reader = Operator(tmp_path / "desk", tmp_path / "config", capsys, monkeypatch)
    try:
        reader.up()
        for page in sorted(STACKED[shelf::SHELVES], key=lambda page: _name(page) == LAST):
            for block in blocks(page):
                reader.follow(block)
    finally:
        reader.down()


def test_a_block_that_is_not_run_says_why():
    unrun = [block for page in FOLLOWED for block in blocks(page) if not block.is_run]
    unrun = [block for block in unrun if not block.is_fragment]

    assert [b.place for b in unrun if not re.fullmatch(r"not run: \w.{10,}", b.more)] == []


@pytest.mark.parametrize("page", FOLLOWED, ids=_name)
def test_every_playbook_of_a_page_is_run_by_it(page):
    shown = blocks(page)
    named = [block for block in shown if block.word == "yaml" and block.more.endswith(".yaml")]
    texts = [(block, block.text) for block in shown if block.word in {"sh", "yaml"}]

    assert [
        block.place
        for block in named
        for words in [(block.more, re.search(r"path: ([\w/-]+)", block.text)[1])]
        if not any(word in text for other, text in texts if other is not block for word in words)
    ] == []


@pytest.mark.parametrize("page", WRITTEN, ids=_name)
def test_a_line_holds_one_sentence(page):
    assert [line for line in prose(page) if SENTENCES.search(line)] == []


def test_the_index_names_every_page_that_is_written_by_hand():
    index = (ROOT / "docs" / "README.md").read_text(encoding="utf-8")
    folders = ("tutorial", "how-to", "explanation")
    names = [_name(page).removeprefix("docs/") for page in pages(*(f"docs/{f}" for f in folders))]

    assert [name for name in names if f"]({name})" not in index] == []


@pytest.mark.parametrize(
    ("page", "number"),
    [
        ("one-engine.md", 4),
        ("what-completed-means.md", 1),
        ("delivery-guarantees.md", 2),
        ("security-model.md", 1),
        ("subscriptions-delivery.md", 2),
        ("the-spool.md", 3),
        ("ingress.md", 1),
        ("gateway-protocol.md", 1),
    ],
)
def test_an_explanation_has_its_state_diagrams(page, number):
    drawn = blocks(ROOT / "docs" / "explanation" / page)

    diagrams = [block for block in drawn if block.text.startswith("stateDiagram-v2")]
    assert len(diagrams) == number
