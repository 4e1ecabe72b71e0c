"""Reads the pages of the documentation, and does what their blocks say.

A fence names what a block is: `yaml NAME.yaml` is a file, `yaml fragment` a part of one, other
`yaml` a whole document; `sh` is run line by line and must end with 0, or as `sh exits 3` says;
`python` is run; `text` and `json` after a command are what it writes, `...` for what varies.
"""

import json
import re
import shlex
import subprocess
import sys
from dataclasses import dataclass
from pathlib import Path

from noetl.cli.app import main
from noetl.dsl.documents.matching import matches

ROOT = Path(__file__).parents[2]
BIN = Path(sys.executable).parent
_FENCE = re.compile(
    r"^```(?P<word>\w+)(?P<more>[^\n]*)\n(?P<text>.*?)^```$", re.MULTILINE | re.DOTALL
)
_PLAIN = re.compile(r"^[^|<>;&$`*]+$")


@dataclass(frozen=True, slots=True)
class Block:
    """One fenced block of a page."""

    page: str
    line: int
    word: str
    more: str
    text: str

    @property
    def place(self):
        return f"{self.page}:{self.line}"

    @property
    def is_fragment(self):
        return self.more == "fragment"


def pages(*folders):
    """The pages of some folders, and the front page for `.`."""
    found = []
    for folder in folders:
        where = ROOT / folder
        found += [where / "README.md"] if folder == "." else sorted(where.rglob("*.md"))
    return found


def blocks(page):
    """The blocks of a page in order."""
    text = page.read_text(encoding="utf-8")
    name = page.relative_to(ROOT).as_posix()
    return [
        Block(name, text[: m.start()].count("\n") + 1, m["word"], m["more"].strip(), m["text"])
        for m in _FENCE.finditer(text)
    ]


def prose(page):
    """The lines of a page outside of fences and tables."""
    bare = re.sub(
        r"^```.*?^```$", "", page.read_text(encoding="utf-8"), flags=re.MULTILINE | re.DOTALL
    )
    return [line for line in bare.splitlines() if not line.startswith("|")]


class Follower:
    """Somebody who reads a page from the top and does what it says."""

    def __init__(self, folder, capsys, monkeypatch):
        self.folder = folder
        self.capsys = capsys
        self.monkeypatch = monkeypatch
        self.out = ""
        self.err = ""
        self._before = ""

    def follow(self, block):
        """Do what one block says."""
        is_output = block.word not in {"text", "json"} or self._before in {"sh", "python"}
        act = getattr(self, f"_{block.word}", None)
        if act is not None and is_output and not block.is_fragment:
            act(block)
        self._before = block.word

    def _yaml(self, block):
        if block.more:
            (self.folder / block.more).write_text(block.text, encoding="utf-8")
            assert self._noetl(["validate", block.more]) == 0, f"{block.place}\n{self.out}"
        elif "kind: Playbook\n" in block.text:
            (self.folder / "block.yaml").write_text(block.text, encoding="utf-8")
            assert self._noetl(["run", "block.yaml"]) == 0, f"{block.place}\n{self.out}{self.err}"

    def _sh(self, block):
        lines = [line for line in block.text.splitlines() if line.strip()]
        wanted = int(block.more.removeprefix("exits") or 0)
        for number, line in enumerate(lines, 1):
            code = self._line(line)
            expected = wanted if number == len(lines) else 0
            told = f"{block.place}: `{line}` ends with {code}\n{self.out}{self.err}"
            assert code == expected, told

    def _python(self, block):
        done = subprocess.run(
            [sys.executable, "-W", "error", "-c", block.text],
            cwd=self.folder, capture_output=True, text=True, check=False, timeout=50,
        )  # fmt: skip
        self.out, self.err = done.stdout, done.stderr
        assert done.returncode == 0, f"{block.place}\n{self.err}"

    def _text(self, block):
        written = iter((self.out + self.err).splitlines())
        for line in block.text.splitlines():
            pattern = re.escape(line).replace(re.escape("..."), ".*")
            found = any(re.fullmatch(pattern, other) for other in written)
            assert found, f"{block.place}: no line `{line}` in\n{self.out}{self.err}"

    def _json(self, block):
        assert matches(json.loads(block.text), json.loads(self.out)) == [], block.place

    def _line(self, line):
        words = shlex.split(line, comments=True)
        if words[0].endswith("make"):
            target = words[1]
            makefile = (ROOT / "Makefile").read_text(encoding="utf-8")
            return 0 if re.search(rf"^{target}:", makefile, re.MULTILINE) else 2
        if words[0].endswith("noetl") and _PLAIN.match(line):
            return self._noetl(words[1:])
        done = subprocess.run(
            ["/bin/sh", "-c", line], cwd=self.folder, capture_output=True, text=True, check=False,
            env={"PATH": f"{BIN}:/usr/bin:/bin", "LANG": "C.UTF-8"}, timeout=50,
        )  # fmt: skip
        self.out, self.err = done.stdout, done.stderr
        return done.returncode

    def _noetl(self, words):
        self.monkeypatch.chdir(self.folder)
        code = main(words)
        self.out, self.err = self.capsys.readouterr()
        return code
