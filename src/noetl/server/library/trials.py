"""Plays the tests of playbooks on the server, and keeps versions back that do not pass."""

from __future__ import annotations

from typing import TYPE_CHECKING, Final

from noetl.api.catalog import CasesRun
from noetl.dsl.playbook import Playbook
from noetl.dsl.tasks import PlaybookCall, Playbooks
from noetl.dsl.template import is_template
from noetl.edge.errors import Conflict, Unacceptable, UnknownPath
from noetl.server.access.entry import must
from noetl.server.ingest.wanted import version_of
from noetl.server.library.suites import TEST, suite_of
from noetl.server.library.texts import parsed_of
from noetl.server.plays import Play, Script

if TYPE_CHECKING:
    from collections.abc import Iterator, Sequence

    from noetl.api.catalog import CaseResult, RunTests
    from noetl.server.access.entry import Caller
    from noetl.server.library.documents import Documents
    from noetl.server.library.suites import Suites
    from noetl.server.plays import Player
    from noetl.store.base import Catalog, CatalogEntry

MOST_CALLED: Final = 100
"""Playbooks that those under test call, and that may be called in turn."""
MOST_TOLD: Final = 20


class GateClosed(Conflict):
    """The tests that a version must pass do not pass."""

    def __init__(self, message: str, failed: Sequence[CaseResult] = ()) -> None:
        super().__init__(message, code="test_gate", hint="correct the playbook, or its tests")
        self.errors = tuple(
            {
                "pointer": "",
                "code": "test_failed",
                "suite": case.suite,
                "case": case.name,
                "message": "; ".join(case.diff),
            }
            for case in failed[:MOST_TOLD]
        )


class Trials:
    """Plays tests."""

    def __init__(
        self, catalog: Catalog, documents: Documents, suites: Suites, player: Player | None
    ) -> None:
        self._catalog = catalog
        self._documents = documents
        self._suites = suites
        self._player = player

    async def run(self, caller: Caller, path: str, body: RunTests) -> CasesRun:
        """Play the cases of one document of tests, or all that test a playbook."""
        named = await self._documents.resolved(caller, path)
        must(caller, "execution:run", path)
        entries = [named]
        if named.kind == TEST:
            path = _tested(named)
            must(caller, "execution:run", path)
        else:
            entries = await self._suites.of(caller.tenant_id, path)
        wanted = await self._catalog.resolve(caller.tenant_id, path, version_of(body.version))
        if wanted is None:
            raise UnknownPath(f"the catalog has no {path}, which is to be tested")
        scripts = _scripts(entries, body.cases)
        found = await self._played(caller.tenant_id, path, wanted.content, scripts)
        return _told(found)

    async def must_pass(self, tenant_id: str, path: str, content: str) -> None:
        """Refuse a playbook whose gate does not let it through."""
        gates = await self._suites.gates(tenant_id, path)
        if not gates:
            return
        if self._player is None:
            raise GateClosed(f"{path} has tests to pass, and this server cannot play them")
        told = _told(await self._played(tenant_id, path, content, _scripts(gates, None)))
        if told.failed:
            failed = [case for case in told.cases if not case.ok]
            first = failed[0]
            raise GateClosed(
                f"{told.failed} of {len(told.cases)} cases fail, the first is "
                f"`{first.name}` of {first.suite}",
                failed,
            )

    async def _played(
        self, tenant_id: str, path: str, content: str, scripts: tuple[Script, ...]
    ) -> Sequence[CaseResult]:
        if not scripts:
            return ()
        if self._player is None:
            raise Unacceptable(
                "this server does not play tests", code="not_executable", hint="run `noetl test`"
            )
        called = await self._called(tenant_id, path, content)
        return await self._player.play(
            Play(path=path, playbook=content, called=called, scripts=scripts)
        )

    async def _called(self, tenant_id: str, path: str, content: str) -> tuple[str, ...]:
        """The playbooks that a playbook calls by name, and those that they call."""
        seen, texts, waiting = {path}, [content], [content]
        while waiting and len(texts) <= MOST_CALLED:
            model = (await parsed_of(waiting.pop())).model
            for name in _calls(model) if isinstance(model, Playbook) else ():
                if name in seen:
                    continue
                seen.add(name)
                entry = await self._catalog.resolve(tenant_id, name)
                if entry is not None:
                    texts.append(entry.content)
                    waiting.append(entry.content)
        return tuple(texts[1:])


def _calls(playbook: Playbook) -> Iterator[str]:
    for task in (task for step in playbook.workflow for task in step.tools):
        items: object = ()
        if isinstance(task, PlaybookCall):
            items = (task,)
        elif isinstance(task, Playbooks):
            items = task.items
        for item in items if isinstance(items, tuple) else ():
            if isinstance(item.path, str) and not is_template(item.path):
                yield item.path


def _tested(entry: CatalogEntry) -> str:
    suite = suite_of(entry)
    path = suite.spec.playbook if suite is not None else None
    if path is None:
        raise Unacceptable(
            f"{entry.path} does not test a playbook of the catalog",
            code="not_executable",
            hint="name it with `spec.playbook`; a `file` is not on the server",
        )
    return path


def _scripts(entries: Sequence[CatalogEntry], wanted: tuple[str, ...] | None) -> tuple[Script, ...]:
    """The cases to play; a name that no document has is refused."""
    scripts: list[Script] = []
    known: set[str] = set()
    for entry in entries:
        suite = suite_of(entry)
        names = [case.name for case in suite.spec.cases] if suite is not None else []
        known.update(names)
        chosen = tuple(name for name in names if wanted is None or name in wanted)
        if chosen:
            scripts.append(Script(path=entry.path, content=entry.content, cases=chosen))
    missing = [at for at, name in enumerate(wanted or ()) if name not in known]
    if missing:
        raise Unacceptable(
            "there is no case of that name",
            errors=tuple({"pointer": f"/cases/{at}", "code": "bad_value"} for at in missing),
        )
    return tuple(scripts)


def _told(cases: Sequence[CaseResult]) -> CasesRun:
    passed = sum(1 for case in cases if case.ok)
    return CasesRun(passed=passed, failed=len(cases) - passed, cases=tuple(cases))
