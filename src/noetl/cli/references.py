"""What a command line calls a run or a playbook, and what a server knows it by."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Final

from noetl.api.problems import Refused
from noetl.cli.failures import CommandFailed
from noetl.cli.files import SUFFIXES

if TYPE_CHECKING:
    from noetl.api.client import Client

LATEST: Final = "@latest"
_EXECUTION: Final = "execution/"
_PLAYBOOK: Final = "playbook/"
_SCHEDULE: Final = "schedule/"
_SUBSCRIPTION: Final = "subscription/"
_CATALOG: Final = "catalog://"
_NOT_THERE: Final = (403, 404, 422)


async def execution_of(client: Client, word: str) -> str:
    """The id of a run: itself, `execution/<id>`, `@latest` or `@latest:PATH`."""
    name = word.removeprefix(_EXECUTION)
    if not name.startswith(LATEST):
        if not (name.isascii() and name.isdigit()):
            message = f"`{word}` is not the id of an execution"
            raise CommandFailed("usage", message, hint="an id, `@latest` or `@latest:PATH`")
        return name
    path = name.removeprefix(LATEST).removeprefix(":")
    filters = {"path": path} if path else {}
    page = await client.executions(limit=1, **filters)
    if not page.items:
        of_path = f" of {path}" if path else ""
        hint = "`noetl executions list` shows what there is"
        raise CommandFailed("not_found", f"there is no execution{of_path}", hint=hint)
    return page.items[0].execution_id


@dataclass(frozen=True, slots=True, kw_only=True)
class Playbook:
    """A playbook: in the catalog, or still in a file."""

    path: str | None = None
    catalog_id: str | None = None
    version: str | None = None
    file: str | None = None


async def playbook_of(client: Client, word: str, version: str | None) -> Playbook:
    """The playbook that a word names."""
    if _is_file(word):
        await _must_be_file_alone(client, word)
        if version is not None:
            raise CommandFailed("usage", "a file has no version", hint="leave -V out")
        return Playbook(file=word)
    name = word.removeprefix(_CATALOG).removeprefix(_PLAYBOOK)
    if name.isascii() and name.isdigit():
        return Playbook(catalog_id=name, version=version)
    path, at, of_word = name.rpartition("@")
    if not at:
        return Playbook(path=name, version=version)
    if version is not None and version != of_word:
        message = f"`{word}` and `-V {version}` name two versions"
        raise CommandFailed("usage", message, hint="leave one of them out")
    return Playbook(path=path, version=of_word)


@dataclass(frozen=True, slots=True, kw_only=True)
class Named:
    """A document of the catalog; no version: what its path means, or all of it."""

    path: str
    version: str | None = None

    def __str__(self) -> str:
        """As a person writes it."""
        return self.path if self.version is None else f"{self.path}@{self.version}"


async def document_of(client: Client, word: str) -> Named:
    """The document that a word names: PATH, PATH@VERSION, KIND/PATH@VERSION or a catalog id."""
    if word.startswith(_CATALOG):
        return _named(word.removeprefix(_CATALOG))
    if word.isascii() and word.isdigit():
        entry = await client.entry(word)
        return Named(path=entry.path, version=str(entry.version))
    whole = _named(word)
    kind, slash, rest = whole.path.partition("/")
    if not slash or kind not in _words():
        return whole
    kinds = [await _kind_at(client, path) for path in (whole.path, rest)]
    if kinds[0] and kinds[1] == kind:
        message = f"`{word}` means {_CATALOG}{whole.path}, and {_CATALOG}{rest} too"
        raise CommandFailed("usage", message, hint="write the one that is meant")
    return whole if kinds[0] else Named(path=rest, version=whole.version)


async def schedule_of(client: Client, word: str) -> str:
    """The id of a schedule: itself, `schedule/<id>`, or its name."""
    from noetl.cli.paging import all_pages
    from noetl.cli.text import nearest

    name = word.removeprefix(_SCHEDULE)
    if name.isascii() and name.isdigit():
        return name
    found, _ = await all_pages(client, lambda at, more: at.schedules(**more), None)
    known = {item["name"]: str(item["schedule_id"]) for item in found}
    if name not in known:
        hint = nearest(name, tuple(known)) if known else "make one with `noetl schedules create`"
        raise CommandFailed("not_found", f"there is no schedule `{name}`", hint=hint)
    return known[name]


async def subscription_of(client: Client, word: str) -> str:
    """The id of a subscription: itself, `subscription/<id>`, or its path."""
    from noetl.cli.text import nearest

    name = word.removeprefix(_CATALOG).removeprefix(_SUBSCRIPTION)
    if name.isascii() and name.isdigit():
        return name
    found = (await client.subscriptions()).subscriptions
    known = {item.path: item.subscription_id for item in found}
    for path in (word.removeprefix(_CATALOG), name):
        if path in known:
            return known[path]
    hint = "make one known with `noetl subscriptions register PATH`"
    if known:
        hint = nearest(name, tuple(known))
    raise CommandFailed("not_found", f"there is no subscription `{name}`", hint=hint)


def _named(text: str) -> Named:
    path, at, version = text.rpartition("@")
    return Named(path=path, version=version) if at else Named(path=text)


def _words() -> frozenset[str]:
    """The kinds of documents as `-o name` shows them."""
    from noetl.dsl.kinds import AGENT, KINDS

    return frozenset((AGENT, *(kind.word for kind in KINDS.values())))


async def _kind_at(client: Client, path: str) -> str:
    """The kind of what lies at a path; none when nothing does."""
    try:
        return (await client.versions(path, limit=1)).items[0].kind
    except Refused as fault:
        if fault.problem.status in _NOT_THERE:
            return ""
        raise


def _is_file(word: str) -> bool:
    if word.startswith((_CATALOG, _PLAYBOOK)):
        return False
    return word.endswith(SUFFIXES) or ("/" in word and Path(word).is_file())


async def _must_be_file_alone(client: Client, word: str) -> None:
    """A word that is a file and a path of the catalog could mean both."""
    if word.startswith(("/", "./", "../")):
        return
    try:
        await client.resolve(word)
    except Refused as fault:
        if fault.problem.status in _NOT_THERE:
            return
        raise
    message = f"`{word}` is a file, and a path of the catalog too"
    raise CommandFailed("usage", message, hint=f"write `./{word}` or `{_CATALOG}{word}`")
