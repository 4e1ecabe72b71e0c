"""A server process for tests with mocks: it leaves steps to workers that the engine could run.

`noetl run --mock` and `noetl test` tell their own server which steps are mocked; a server process
has no such option and needs none. Here the last line of the playbook says it, in a comment.
"""

from __future__ import annotations

import re
import sys
from typing import TYPE_CHECKING

from noetl.server import plane
from noetl.server.ingest.programs import Programs
from noetl.server.process import serve
from noetl.settings import ServerSettings

if TYPE_CHECKING:
    from noetl.engine.program import Program
    from noetl.store.base import CatalogEntry

_MARK = re.compile(r"\n# on worker:(.*)\n\Z")


def marked(text: str, steps: frozenset[str]) -> str:
    """The playbook with its mocked steps named."""
    return f"{text}\n# on worker: {' '.join(sorted(steps))}\n" if steps else text


class StagedPrograms(Programs):
    """Programs that know which of their steps are mocked."""

    def of(self, entry: CatalogEntry) -> Program:
        program = super().of(entry)
        found = _MARK.search(entry.content)
        program.on_worker = frozenset(found[1].split()) if found else frozenset()
        return program


if __name__ == "__main__":
    plane.Programs = StagedPrograms  # type: ignore[misc]  # the one difference to `noetl server`
    sys.exit(serve(ServerSettings.read()))
