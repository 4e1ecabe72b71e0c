"""SQL text is split where statements end and nowhere else."""

from __future__ import annotations

import pytest

from noetl.tools.statements import SQLITE, controls_transactions, first_word, pieces, split

TRIGGER = (
    "create trigger t after insert on a begin update b set c = case when 1 then 2 end;"
    " delete from d; end"
)
ATOMIC = (
    "create or replace function f(a int) returns int begin atomic"
    " insert into t values (a); select case a when 1 then 2 end; end"
)


@pytest.mark.parametrize(
    ("text", "statements"),
    [
        ("", []),
        (" ; ;; -- nothing\n/* ; */", []),
        ("select 1; select 2", ["select 1", "select 2"]),
        ("select ';', \"a;b\"; select 2;", ["select ';', \"a;b\"", "select 2"]),
        ("select 'it''s; fine'; select 2", ["select 'it''s; fine'", "select 2"]),
        ("select '\\'; select 2", ["select '\\'", "select 2"]),
        (r"select E'it\'s; fine'; select 2", [r"select E'it\'s; fine'", "select 2"]),
        (r"select e'a\\'; select 2", [r"select e'a\\'", "select 2"]),
        (r"select note'\'; select 2", [r"select note'\'", "select 2"]),
        ("select 1 -- a; b\n; select 2", ["select 1 -- a; b", "select 2"]),
        ("select /* ; */ 1; select 2", ["select /* ; */ 1", "select 2"]),
        ("select /* a /* ; */ ; */ 1; select 2", ["select /* a /* ; */ ; */ 1", "select 2"]),
        ("do $$ begin; end $$; select 1", ["do $$ begin; end $$", "select 1"]),
        ("do $a$ x; $b$ y; $a$; select 1", ["do $a$ x; $b$ y; $a$", "select 1"]),
        ("select a$b$; select c$b$ as d", ["select a$b$", "select c$b$ as d"]),
        ("select 'open; end", ["select 'open; end"]),
        ("select /* open; end", ["select /* open; end"]),
        ("select $1; select $2", ["select $1", "select $2"]),
        ("create rule r as on a do (b; c); d", ["create rule r as on a do (b; c)", "d"]),
        ("select 1 ` 2; select 3 ` 4", ["select 1 ` 2", "select 3 ` 4"]),
        ("select a[1]; select b[2]", ["select a[1]", "select b[2]"]),
        (f"{TRIGGER}; select 1", [TRIGGER, "select 1"]),
        (f"{ATOMIC}; select 1", [ATOMIC, "select 1"]),
        ("begin; select 1; end; x", ["begin", "select 1", "end", "x"]),
        ("/* why */ select 1;", ["/* why */ select 1"]),
        ("+", ["+"]),
    ],
)  # fmt: skip
def test_statements_are_split(text, statements):
    assert split(text) == statements


@pytest.mark.parametrize(
    ("text", "statements"),
    [
        ("select `a;b`, [c;d]; select 2", ["select `a;b`, [c;d]", "select 2"]),
        ("select /* a /* ; */ 1; select 2", ["select /* a /* ; */ 1", "select 2"]),
        ("select $$; select $$", ["select $$", "select $$"]),
        (r"select e'\'; select 2", [r"select e'\'", "select 2"]),
        (f"{TRIGGER}; select 1", [TRIGGER, "select 1"]),
    ],
)
def test_sqlite_reads_a_text_in_its_own_way(text, statements):
    assert split(text, SQLITE) == statements


@pytest.mark.parametrize("text", ["a 'b' -- c\n\"d\" /* e */ $x$f$x$ g", "", "'", "$a$", "E'\\"])
def test_pieces_are_the_whole_text(text):
    found = list(pieces(text))

    assert "".join(piece.text for piece in found) == text
    assert [piece.start for piece in found] == sorted(piece.start for piece in found)


def test_pieces_say_what_is_code():
    found = [(piece.kind, piece.text) for piece in pieces("a 'b' \"c\" -- d")]

    assert found == [
        ("code", "a "), ("text", "'b'"), ("code", " "), ("name", '"c"'), ("code", " "),
        ("comment", "-- d"),
    ]  # fmt: skip


def test_a_statement_begins_with_its_first_word():
    assert first_word("/* x */ -- y\n ( select 1)") == "SELECT"
    assert first_word("'x'") == ""


@pytest.mark.parametrize(
    ("text", "does"),
    [
        ("begin", True), ("START TRANSACTION", True), ("-- x\ncommit", True), ("rollback", True),
        ("prepare transaction 'a'", True), ("prepare q as select 1", False), ("savepoint a", False),
        ("select 'begin'", False),
    ],
)  # fmt: skip
def test_transaction_control_is_seen(text, does):
    assert controls_transactions(text) is does


def test_a_long_text_has_its_statements():
    values = ", ".join(f"({n}, 'a;b')" for n in range(20_000))

    assert split(f"values {values}; select 1")[1:] == ["select 1"]
