"""A secret in a file follows its file."""

from __future__ import annotations

import logging

from noetl.secrets.file import SecretFile

SAID = "the file of a secret cannot be read, its last text counts"


def test_what_was_replaced_counts_at_once(tmp_path):
    path = tmp_path / "token"
    path.write_text("first\n", encoding="utf-8")
    told = []
    file = SecretFile(path, "first", told.append)
    assert file() == "first"
    path.write_text("other\n", encoding="utf-8")
    assert [file(), file(), told] == ["other", "other", ["other"]]


def test_while_it_cannot_be_read_the_last_one_counts_and_the_fault_is_told_once(tmp_path, caplog):
    path = tmp_path / "token"
    file = SecretFile(path, "canary-told")
    texts = []
    with caplog.at_level(logging.WARNING):
        for content in (None, None, b"second", b" \n", b"\xff", b"third", b"\xff"):
            path.unlink(missing_ok=True)
            if content is not None:
                path.write_bytes(content)
            texts.append(file())
    told = "canary-told"
    assert texts == [told, told, "second", "second", "second", "third", "third"]
    reasons = ["No such file or directory", "it is empty", "it is not UTF-8 text"]
    said = [(one.message, one.file, one.reason) for one in caplog.records]
    assert said == [(SAID, str(path), reason) for reason in reasons]
