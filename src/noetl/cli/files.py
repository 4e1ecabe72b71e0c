"""The files that a command line names: files, folders and standard input."""

from __future__ import annotations

import os
import sys
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, BinaryIO, Final, TextIO

from noetl.cli.failures import CommandFailed

if TYPE_CHECKING:
    from collections.abc import Iterator, Sequence

STDIN: Final = "-"
WHOLE: Final = -1
SUFFIXES: Final = (".yaml", ".yml")


@dataclass(frozen=True, slots=True)
class Source:
    """One document: how messages name it, its bytes, and its file unless it is stdin."""

    name: str
    data: bytes
    path: Path | None


def sources(words: Sequence[str]) -> list[Source]:
    """Every document that the words name, each once, folders in sorted order."""
    return [read(name) for name in names(words)]


def names(words: Sequence[str], *, is_deep: bool = True) -> list[str]:
    """The files that the words name, each once; of folders also those of their folders."""
    return list(dict.fromkeys(name for word in words for name in _expanded(word, is_deep=is_deep)))


def read(name: str, most: int | None = None) -> Source:
    """Read one file, or standard input."""
    if most is None:
        from noetl.dsl.yaml import MOST_BYTES

        # One byte more than a document may have: the reader then refuses it, whatever its size.
        most = MOST_BYTES + 1
    if name == STDIN:
        return Source("<stdin>", _stdin().read(most), None)
    path = Path(name)
    try:
        with path.open("rb") as file:
            return Source(name, file.read(most), path)
    except FileNotFoundError as fault:
        raise _missing(name) from fault
    except (OSError, ValueError) as fault:
        why = getattr(fault, "strerror", None) or str(fault)
        raise CommandFailed(
            "file_unreadable", f"`{name}` cannot be read: {why}", hint="check its permissions"
        ) from fault


def _stdin() -> BinaryIO:
    stdin: TextIO | None = sys.stdin
    if stdin is None:
        raise CommandFailed("file_unreadable", "standard input is closed", hint="name a file")
    return stdin.buffer


def _expanded(word: str, *, is_deep: bool) -> Iterator[str]:
    if word == STDIN or not Path(word).is_dir():
        yield word
        return
    found = sorted(_below(word, is_deep=is_deep))
    if not found:
        hint = "name a file, or a folder with `*.yaml` or `*.yml` files"
        raise CommandFailed("file_not_found", f"`{word}` holds no YAML file", hint=hint)
    yield from found


def _below(folder: str, *, is_deep: bool) -> Iterator[str]:
    """YAML files of a folder and its folders; hidden ones belong to tools, not to authors."""
    for where, folders, files in os.walk(folder, onerror=_refused):
        folders[:] = [name for name in folders if is_deep and not name.startswith(".")]
        for name in files:
            if name.endswith(SUFFIXES) and not name.startswith("."):
                yield str(Path(where) / name)


def _refused(fault: OSError) -> None:
    raise CommandFailed(
        "file_unreadable",
        f"`{fault.filename}` cannot be read: {fault.strerror}",
        hint="check its permissions",
    ) from fault


def _missing(name: str) -> CommandFailed:
    from difflib import get_close_matches

    folder = Path(name).parent
    try:
        beside = [str(folder / entry.name) for entry in os.scandir(folder)]
    except OSError:
        beside = []
    near = get_close_matches(str(Path(name)), beside, n=1)
    hint = f"did you mean `{near[0]}`?" if near else "check the path"
    return CommandFailed("file_not_found", f"there is no file `{name}`", hint=hint)
