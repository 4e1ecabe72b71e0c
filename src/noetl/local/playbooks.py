"""The catalog of a local run: documents under ids of their content, others found in a folder.

Ids made from the content let a log that was cut short find the very documents it was made with.
"""

from __future__ import annotations

import os
from hashlib import sha256
from pathlib import Path
from typing import TYPE_CHECKING, Final

import msgspec

from noetl.dsl.parse import parse
from noetl.dsl.playbook import Playbook
from noetl.dsl.plugins import STORED
from noetl.dsl.yaml import MOST_BYTES, load
from noetl.errors import NoetlError
from noetl.store.base import CatalogEntry

if TYPE_CHECKING:
    from collections.abc import Iterator

    from noetl.store.base import Catalog, CatalogListing

SUFFIXES: Final = (".yaml", ".yml")
MOST_FILES: Final = 5_000


class PlaybookChanged(NoetlError):
    """The playbook is not the one that the log was made with."""

    code = "playbook_changed"


class Shelf:
    """A catalog that looks for what it lacks among the files of a folder."""

    def __init__(self, catalog: Catalog, folder: Path) -> None:
        self._catalog = catalog
        self._finder = Finder(folder)

    async def add(
        self, entry: CatalogEntry, *, activate: bool = True, if_version: int | None = None
    ) -> CatalogEntry:
        """Keep a document under the id of its content."""
        named = msgspec.structs.replace(entry, catalog_id=id_of(entry.path, entry.content))
        return await self._catalog.add(named, activate=activate, if_version=if_version)

    async def get(self, catalog_id: str) -> CatalogEntry | None:
        """One document by its id; a file that has the id counts."""
        found = await self._catalog.get(catalog_id)
        if found is not None:
            return found
        for path, file in self._finder.paths().items():
            if (text := _text(file)) is not None and id_of(path, text) == catalog_id:
                return await self.shelve(text)
        return None

    async def resolve(
        self, tenant_id: str, path: str, version: int | None = None
    ) -> CatalogEntry | None:
        """A document by its path, or by the name of its file."""
        found = await self._catalog.resolve(tenant_id, path, version)
        if found is not None or version is not None:
            return found
        file = self._finder.file(path)
        text = None if file is None else _text(file)
        return None if text is None else await self.shelve(text)

    async def listed(self, tenant_id: str, listing: CatalogListing) -> list[CatalogEntry]:
        """A page of documents that are kept; files that nobody asked for are not among them."""
        return await self._catalog.listed(tenant_id, listing)

    async def shelve(self, text: str) -> CatalogEntry | None:
        """Keep a playbook; none when the text is something else."""
        model = parse(text, plugins=STORED).model
        if not isinstance(model, Playbook):
            return None
        return await self.add(
            CatalogEntry(
                catalog_id="",
                path=model.path,
                version=1,
                kind="playbook",
                content=text,
                digest=sha256(text.encode()).hexdigest(),
                created_at="",
            )
        )


class Finder:
    """The playbooks below a folder, by path and by name."""

    def __init__(self, folder: Path) -> None:
        self._folder = folder
        self._files: dict[str, Path] | None = None

    def file(self, path: str) -> Path | None:
        """The file of a playbook: one that has the path, else one that has the name."""
        named = self._named(path)
        if named is not None and _path_of(named) == path:
            return named
        return self.paths().get(path, named)

    def _named(self, path: str) -> Path | None:
        """`etl/notify` is `etl/notify.yaml`, or else `notify.yaml`."""
        if path.startswith("/") or ".." in path.split("/"):
            return None
        stems = (path, path.rpartition("/")[2])
        names = (f"{stem}{suffix}" for stem in stems for suffix in SUFFIXES)
        return next((file for name in names if (file := self._folder / name).is_file()), None)

    def paths(self) -> dict[str, Path]:
        """The playbooks of the folder by their own paths, looked for once."""
        if self._files is None:
            self._files = {}
            for file in self._below():
                if (path := _path_of(file)) is not None:
                    self._files.setdefault(path, file)
        return self._files

    def _below(self) -> Iterator[Path]:
        """YAML files of the folder and its folders; hidden ones belong to tools."""
        number = 0
        for where, folders, files in os.walk(self._folder):
            folders[:] = sorted(name for name in folders if not name.startswith("."))
            for name in sorted(files):
                if name.endswith(SUFFIXES) and number < MOST_FILES:
                    number += 1
                    yield Path(where) / name


def id_of(path: str, content: str) -> str:
    """The id of a document: 62 bits of its digest."""
    digest = sha256(f"{path}\0{content}".encode()).digest()
    return str(int.from_bytes(digest[:8], "big") >> 2 or 1)


def _text(file: Path) -> str | None:
    try:
        data = file.read_bytes()
    except OSError:
        return None
    return data.decode("utf-8", "replace") if len(data) <= MOST_BYTES else None


def _path_of(file: Path) -> str | None:
    """The catalog path that a playbook's file names; none when it is something else."""
    text = _text(file)
    if text is None or "Playbook" not in text:
        return None
    root = load(text).root
    if not isinstance(root, dict) or root.get("kind") != "Playbook":
        return None
    metadata = root.get("metadata")
    path = metadata.get("path") if isinstance(metadata, dict) else None
    return path if isinstance(path, str) else None


def file_of(path: str, folder: Path) -> Path | None:
    """The file of a playbook below a folder."""
    return Finder(folder).file(path)
