"""Documents in files, as far as a command must know them before a server does."""

from __future__ import annotations

from dataclasses import dataclass
from hashlib import sha256
from typing import TYPE_CHECKING, Any, Final

from noetl.cli.failures import CommandFailed
from noetl.cli.files import names, read
from noetl.cli.parsing import parsed_stored
from noetl.dsl.kinds import AGENT, word_of

if TYPE_CHECKING:
    from collections.abc import Sequence

    from noetl.dsl.parse import Parsed

TESTS: Final = (".test.yaml", ".test.yml")


@dataclass(frozen=True, slots=True, kw_only=True)
class Written:
    """A document in a file: where it belongs, and what it says."""

    file: str
    text: str
    path: str
    kind: str
    parsed: Parsed

    @property
    def digest(self) -> str:
        """As the catalog makes it: line ends make no difference."""
        return sha256(self.text.replace("\r\n", "\n").encode()).hexdigest()

    def refusal(self) -> CommandFailed | None:
        """Why this release would refuse it; nothing when it would not."""
        errors = self.parsed.errors
        if not errors:
            return None
        found = [error.as_json() for error in errors]
        message = f"the document is not valid: {errors[0].message}"
        return CommandFailed("invalid_playbook", message, details={"diagnostics": found})


def files_of(words: Sequence[str], *, is_deep: bool) -> list[str]:
    """The documents that words name; tests of a folder are left out."""
    found = names(words, is_deep=is_deep)
    return [name for name in found if name in words or not name.endswith(TESTS)]


def written(name: str) -> Written:
    """Read one; a fault in it is kept, unless nobody can tell where it belongs."""
    data = read(name).data
    try:
        text = data.decode("utf-8")
    except UnicodeDecodeError as fault:
        message = f"the file is not UTF-8: {fault.reason} at byte {fault.start}"
        raise CommandFailed("invalid_playbook", message) from fault
    parsed = parsed_stored(text)
    metadata = _metadata(parsed)
    path = metadata.get("path") or metadata.get("name") or ""
    is_agent = bool(metadata.get("agent"))
    kind = AGENT if is_agent and parsed.kind == "Playbook" else word_of(parsed.kind)
    found = Written(
        file=name, text=text, path=str(path).removeprefix("/"), kind=kind, parsed=parsed
    )
    if not path:
        message = "the document has no path"
        raise found.refusal() or CommandFailed("invalid_playbook", message)
    return found


def _metadata(parsed: Parsed) -> dict[str, Any]:
    """What a document says of itself, even if the rest of it cannot be read."""
    model: Any = parsed.model
    if model is not None:
        about = model.metadata
        agent = getattr(about, "agent", False)
        return {"path": about.path, "name": about.name, "agent": agent}
    root = parsed.document.root
    found = root.get("metadata") if isinstance(root, dict) else None
    return found if isinstance(found, dict) else {}
