"""The kinds of documents: where the model of each lies, and which versions it may name.

A model is imported when its kind is met: a run of a playbook never pays for the other kinds.
"""

from __future__ import annotations

import re
from dataclasses import dataclass
from importlib import import_module
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from noetl.dsl.shape import Model
    from noetl.dsl.shape.reader import Reader

PLAYBOOK_VERSIONS = ("noetl.io/v2", "noetl.io/v10")
_BOTH = ("noetl.io/v1", "noetl.io/v2")
_V2 = ("noetl.io/v2",)
_HUMP = re.compile(r"(?<=[a-z])(?=[A-Z])")
AGENT = "agent"
"""The catalog's word for a Playbook that is an agent."""


@dataclass(frozen=True, slots=True)
class Kind:
    """A kind of document: its model, its whole-document rules, and the versions it may name."""

    name: str
    model_at: str
    versions: tuple[str, ...]
    check_at: str = ""

    @property
    def word(self) -> str:
        """The name in the catalog: `PlaybookTest` is a `playbook_test`."""
        return _HUMP.sub("_", self.name).lower()

    @property
    def model(self) -> type[Model]:
        """The class that the document is read into."""
        model: type[Model] = _at(self.model_at)
        return model

    def check(self, model: Model, reader: Reader) -> None:
        """Apply what only the document as a whole can tell."""
        if self.check_at:
            _at(self.check_at)(model, reader)


def _at(place: str) -> Any:  # noqa: ANN401 - a class or a function
    module, _, name = place.partition(":")
    return getattr(import_module(f"noetl.dsl.{module}"), name)


KINDS: dict[str, Kind] = {
    kind.name.lower(): kind
    for kind in (
        Kind(
            "Playbook",
            "playbook.document:Playbook",
            PLAYBOOK_VERSIONS,
            "check.playbook:check_playbook",
        ),
        Kind(
            "Subscription",
            "subscription.document:Subscription",
            _BOTH,
            "subscription.check:check_subscription",
        ),
        Kind("Credential", "documents.credential:Credential", _BOTH),
        Kind("WasmPlaybook", "documents.wasm:WasmPlaybook", _V2),
        Kind("Mcp", "documents.mcp:McpServer", _BOTH),
        Kind("PlaybookTest", "documents.testcase:PlaybookTest", _V2),
    )
}


def word_of(kind: str) -> str:
    """The catalog's word for a kind, however it is written; an unknown one in lower case."""
    name = kind.lower()
    found = KINDS.get(name.replace("_", ""))
    return name if found is None else found.word
