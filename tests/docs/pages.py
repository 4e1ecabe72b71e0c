"""Reads the pages of the documentation, and does what their blocks say.

A fence names what a block is: `yaml NAME.yaml` is a file, and so are `python NAME.py` and `json
NAME.json`; `yaml fragment` is a part of one, other `yaml` a whole document; `sh` is run line by
line and must end with 0, or as `sh exits 3` says; `sh stack` is run as one script beside an
embedded stack, `sh not run: REASON` is not run; `python` is run; `text` and `json` after a command
are what it writes, `...` for what varies.
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
from noetl.local.embedded.ports import free_port

ROOT = Path(__file__).parents[2]
BIN = Path(sys.executable).parent
_FENCE = re.compile(
    r"^```(?P<word>\w+)(?P<more>[^\n]*)\n(?P<text>.*?)^```$", re.MULTILINE | re.DOTALL
)
SPARE = "8182"  # stands for a port that is free
_FILE = re.compile(r"[\w-]+\.(py|json)")
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

    @property
    def is_run(self):
        return not self.is_fragment and not self.more.startswith("not run")

    @property
    def is_file(self):
        return bool(_FILE.fullmatch(self.more))

    @property
    def needs_stack(self):
        return self.word == "sh" and self.more.split(" ")[0] == "stack"

    @property
    def exit_code(self):
        return int(self.more.removeprefix("stack").strip().removeprefix("exits") or 0)


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
        if block.is_file:
            (self.folder / block.more).write_text(block.text, encoding="utf-8")
        elif act is not None and is_output and block.is_run:
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
        wanted = block.exit_code
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


class Operator(Follower):
    """Somebody who reads pages beside an embedded stack; `.noetl` of the folder is its home."""

    def __init__(self, folder, config, capsys, monkeypatch):
        super().__init__(folder, capsys, monkeypatch)
        self._spare = str(free_port())
        self._env = {
            "PATH": f"{BIN}:/usr/bin:/bin",
            "LANG": "C.UTF-8",
            "HOME": str(folder),
            "XDG_CONFIG_HOME": str(config),
        }

    def up(self):
        """The stack as `make up` starts it; one that runs already stays."""
        self._make("up", "ARGS=--detach --port auto")

    def down(self):
        """The end of the stack, of its data, and of what a page did not come to stop."""
        if (self.folder / "worker.pid").exists():
            self._script('grep -q "has left" worker.log || kill "$(cat worker.pid)"')
        if (self.folder / "server.pid").exists():
            self._script('[ -e server.gone ] || kill "$(cat server.pid)"')
        if (self.folder / "store.pid").exists():
            self._script('kill "$(cat store.pid)" || true')
        assert self._script("noetl down --wipe --yes") == 0, self.err

    def _make(self, *words):
        env = self._env | {"NOETL_HOME": str(self.folder / ".noetl")}
        done = subprocess.run(
            ["/usr/bin/env", "make", "--no-print-directory", "--assume-old=.venv/.ready", *words],
            cwd=ROOT, capture_output=True, text=True, check=False, env=env, timeout=90,
        )  # fmt: skip
        assert done.returncode == 0, done.stderr

    def _sh(self, block):
        if not block.needs_stack:
            super()._sh(block)
            return
        lines = [line for line in block.text.splitlines() if not line.startswith("make ")]
        text = "\n".join(lines).replace(".venv/bin/noetl", "noetl")
        text = text.replace("http://127.0.0.1:8082", self._told("url"))
        text = text.replace("http://127.0.0.1:8090", self._told("gateway_url"))
        text = text.replace(SPARE, self._spare)
        code = self._script(text)
        told = f"{block.place} ends with {code}\n{self.out}{self.err}"
        assert code == block.exit_code, told

    def _json(self, block):
        # A script may write other things before its last document.
        self.out = self.out[[m.start() for m in re.finditer(r"^\{", self.out, re.MULTILINE)][-1] :]
        super()._json(block)

    def _told(self, name):
        record = self.folder / ".noetl" / "run" / "stack.json"
        is_up = record.exists()
        return json.loads(record.read_text(encoding="utf-8"))[name] if is_up else "http://none"

    def _script(self, text):
        # A file and not a pipe: what a script leaves in the background would hold a pipe open.
        out, err = self.folder / "out.txt", self.folder / "err.txt"
        with out.open("w") as stdout, err.open("w") as stderr:
            done = subprocess.run(
                ["/bin/sh", "-ec", text], cwd=self.folder, stdin=subprocess.DEVNULL,
                stdout=stdout, stderr=stderr, check=False, env=self._env, timeout=60,
            )  # fmt: skip
        self.out, self.err = out.read_text(encoding="utf-8"), err.read_text(encoding="utf-8")
        return done.returncode
