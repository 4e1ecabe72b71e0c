"""SQL text is split where statements end and nowhere else."""

from __future__ import annotations

import pytest

from noetl.tools.statements import split

TRIGGER = (
    "create trigger t after insert on a begin update b set c = case when 1 then 2 end;"
    " delete from d; end"
)


@pytest.mark.parametrize(
    ("text", "statements"),
    [
        ("", []),
        (" ; ;; -- nothing\n/* ; */", []),
        ("select 1; select 2", ["select 1", "select 2"]),
        ("select ';', \"a;b\", `c;d`; select 2;", ["select ';', \"a;b\", `c;d`", "select 2"]),
        ("select 'it''s; fine'; select 2", ["select 'it''s; fine'", "select 2"]),
        ("select 1 -- a; b\n; select 2", ["select 1 -- a; b", "select 2"]),
        ("select /* ; */ 1; select 2", ["select /* ; */ 1", "select 2"]),
        ("do $$ begin; end $$; select 1", ["do $$ begin; end $$", "select 1"]),
        ("do $a$ x; $b$ y; $a$; select 1", ["do $a$ x; $b$ y; $a$", "select 1"]),
        ("select 'open; end", ["select 'open; end"]),
        ("select $1; select $2", ["select $1", "select $2"]),
        (f"{TRIGGER}; select 1", [TRIGGER, "select 1"]),
    ],
)
def test_statements_are_split(text, statements):
    assert split(text) == statements
