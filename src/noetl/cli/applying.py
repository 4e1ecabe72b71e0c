"""Makes a catalog equal to files: first a plan, then exactly what it says."""

from __future__ import annotations

import asyncio
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, Any, Final

from noetl.api.catalog import CatalogQuery, Register, Removal, Validate
from noetl.api.problems import Refused
from noetl.cli.documents import Written, written
from noetl.cli.failures import CommandFailed
from noetl.cli.paging import all_pages
from noetl.cli.refusals import is_of_file, refusal, refusal_of

if TYPE_CHECKING:
    from collections.abc import Awaitable, Callable, Sequence

    from noetl.api.client import Client

AT_ONCE: Final = 8
_NOT_THERE: Final = 404
_FORBIDDEN: Final = 403
_TESTS: Final = "playbook_test"
_RESERVED: Final = "system"
UNCHANGED: Final = "unchanged"
PRUNE: Final = "prune"

Item = dict[str, Any]


@dataclass(frozen=True, slots=True, kw_only=True)
class Action:
    """What is to be done with one path.

    `create`, `update` (a new version), `promote` (the newest version is this document, but its
    path means an older one), `unchanged`, `prune`.
    """

    action: str
    path: str
    kind: str
    before: int | None = None
    """The newest version that the catalog has."""
    document: Written | None = None

    def told(self, version: int | None = None) -> Item:
        """As it is shown: the version is what was made of it."""
        return {
            "action": self.action,
            "path": self.path,
            "kind": self.kind,
            "from": self.before,
            "version": version,
            "file": None if self.document is None else self.document.file,
        }


@dataclass(slots=True, kw_only=True)
class Plan:
    """What is to be done, and which documents were refused already."""

    actions: list[Action]
    refused: list[Item]

    @property
    def prunes(self) -> list[Action]:
        """What would be gone."""
        return [one for one in self.actions if one.action == PRUNE]


async def plan(
    client: Client, files: Sequence[str], *, on_server: bool, prefix: str | None
) -> Plan:
    """Compare files with a catalog; with a prefix, what else lies below it is to go."""
    found = await _each(files, lambda name: _planned(client, name, on_server=on_server))
    made = Plan(actions=[], refused=[])
    taken: dict[str, str] = {}
    for name, one in zip(files, found, strict=True):
        if isinstance(one, dict):
            made.refused.append(one)
        elif one.path in taken:
            detail = f"{taken[one.path]} has the path {one.path}, too"
            made.refused.append(refusal(name, "invalid_playbook", detail))
        else:
            taken[one.path] = name
            made.actions.append(one)
    if prefix is not None and not made.refused:
        made.actions += await _others(client, prefix, frozenset(taken))
    return made


async def _planned(client: Client, name: str, *, on_server: bool) -> Action | Item:
    """What is to be done with one file, or why it is refused."""
    try:
        document = written(name)
        action = await _compared(client, document)
        if action.action not in {UNCHANGED, "promote"}:
            await _must_be_valid(client, document, on_server=on_server)
    except CommandFailed as fault:
        return refusal_of(name, fault)
    except Refused as fault:
        if not _is_of_path(fault):
            raise
        return refusal(name, fault.code, fault.message, fault.problem.errors)
    return action


async def _compared(client: Client, document: Written) -> Action:
    """A document beside the newest version of its path."""
    made = Action(action="create", path=document.path, kind=document.kind, document=document)
    try:
        newest = (await client.versions(document.path, limit=1)).items[0]
    except Refused as fault:
        if fault.problem.status == _NOT_THERE:
            return made
        raise
    is_same = newest.digest == document.digest and not newest.archived
    word = (UNCHANGED if newest.active else "promote") if is_same else "update"
    return replace(made, action=word, before=newest.version)


async def _must_be_valid(client: Client, document: Written, *, on_server: bool) -> None:
    if not on_server:
        fault = document.refusal()
        if fault is not None:
            raise fault
        return
    found = await client.validate(Validate(content=document.text))
    if not found.valid:
        errors = [item for item in found.diagnostics if item.get("severity") == "error"]
        details = {"diagnostics": errors}
        raise CommandFailed("invalid_playbook", "the document is not valid", details=details)


async def _others(client: Client, prefix: str, kept: frozenset[str]) -> list[Action]:
    """What a catalog has besides; tests and the platform's own documents stay."""
    asked: dict[str, Any] = {"path_prefix": prefix} if prefix else {}
    reserved = (_RESERVED, f"{(await client.whoami()).tenant_id}/{_RESERVED}")
    entries, _ = await all_pages(
        client, lambda at, more: at.catalog(CatalogQuery(**asked, **more)), None, part="entries"
    )
    return [
        Action(action=PRUNE, path=one["path"], kind=one["kind"], before=one["version"])
        for one in entries
        if one["path"] not in kept
        and one["kind"] != _TESTS
        and not f"{one['path']}/".startswith(tuple(f"{place}/" for place in reserved))
    ]


async def perform(client: Client, made: Plan, message: str) -> list[Item]:
    """Do what a plan says, path by path; what became of each."""
    done = await _each(made.actions, lambda one: _done(client, one, message))
    return [*done, *made.refused]


async def _done(client: Client, one: Action, message: str) -> Item:
    try:
        return one.told(await _version(client, one, message))
    except Refused as fault:
        if not _is_of_path(fault):
            raise
        name = one.path if one.document is None else one.document.file
        told = refusal(name, fault.code, fault.message, fault.problem.errors)
        return {**one.told(), **told}


async def _version(client: Client, one: Action, message: str) -> int | None:
    """Do it; the version that the path has then."""
    if one.action == PRUNE:
        await client.delete_document(Removal(path=one.path))
        return None
    if one.action == "promote" and one.before is not None:
        return (await client.promote(one.path, one.before)).version
    if one.action == UNCHANGED or one.document is None:
        return one.before
    # What somebody else has written since the plan was made is not written over.
    body = Register(content=one.document.text, message=message, if_version=one.before or 0)
    return (await client.register(body)).version


def _is_of_path(fault: Refused) -> bool:
    """Whether a refusal is about one path, and says nothing of the others."""
    return is_of_file(fault) or fault.problem.status in {_FORBIDDEN, _NOT_THERE}


async def _each(items: Sequence[Any], work: Callable[[Any], Awaitable[Any]]) -> list[Any]:
    """Do something with each, some at a time; the answers in their order."""
    slots = asyncio.Semaphore(AT_ONCE)

    async def one(item: object) -> Any:  # noqa: ANN401 - what the work answers
        async with slots:
            return await work(item)

    return list(await asyncio.gather(*(one(item) for item in items)))
