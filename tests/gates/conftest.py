import shutil
import subprocess
import sys
import tomllib
from pathlib import Path

import pytest

ROOT = Path(__file__).resolve().parents[2]


@pytest.fixture(scope="session")
def root():
    return ROOT


@pytest.fixture(scope="session")
def config():
    return tomllib.loads((ROOT / "pyproject.toml").read_text(encoding="utf-8"))


@pytest.fixture(scope="session")
def run():
    """Run a tool of this environment and return its exit code and everything it printed."""

    def run(tool, *arguments, cwd=ROOT, text=None):
        done = subprocess.run(
            [str(Path(sys.executable).parent / tool), *map(str, arguments)],
            cwd=cwd,
            input=text,
            capture_output=True,
            text=True,
            check=False,
        )
        return done.returncode, done.stdout + done.stderr

    return run


@pytest.fixture
def tree(tmp_path):
    """A copy of the product and its configuration, to plant violations in."""
    shutil.copytree(
        ROOT / "src" / "noetl", tmp_path / "noetl", ignore=shutil.ignore_patterns("__pycache__")
    )
    shutil.copy(ROOT / "pyproject.toml", tmp_path)
    return tmp_path


@pytest.fixture(scope="session")
def files():
    """Every text file that belongs to the repository: all but the folders that git ignores."""
    ignored = {
        line.rstrip("/")
        for line in (ROOT / ".gitignore").read_text(encoding="utf-8").splitlines()
        if line.endswith("/")
    }
    return sorted(_walk(ROOT, ignored | {".git"}))


def _walk(folder, ignored):
    for path in folder.iterdir():
        if path.name in ignored or path.suffix in {".pyc", ".egg-info"}:
            continue
        if path.is_dir():
            yield from _walk(path, ignored)
        elif not path.name.startswith(".coverage"):
            yield path
