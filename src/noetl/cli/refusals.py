"""Documents that a server refused: the others are not kept out, and the end tells of them."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, Final

from noetl.api.problems import Problem
from noetl.cli.failures import Answered, CommandFailed
from noetl.cli.text import visible

if TYPE_CHECKING:
    from collections.abc import Sequence

    from noetl.api.problems import Refused
    from noetl.cli.output import Output

REFUSED: Final = "refused"
# A code of its own that all of them share is the code of the command.
_SHARED: Final = {"forbidden": 403, "test_gate": 409, "version_conflict": 409}
# A version that is taken, a document that is too large, one that is not valid.
_OF_FILE: Final = (409, 413, 422)


def is_of_file(fault: Refused) -> bool:
    """Whether a refusal is about one document, and says nothing of the others."""
    return fault.problem.status in _OF_FILE or fault.code == "reserved_namespace"


def refusal(
    name: str, code: str, detail: str, errors: Sequence[dict[str, Any]] = ()
) -> dict[str, Any]:
    """What is told of a document that was refused."""
    found = [{"file": name, **error} for error in errors]
    return {"file": name, "status": REFUSED, "code": code, "detail": detail, "errors": found}


def refusal_of(name: str, fault: CommandFailed) -> dict[str, Any]:
    """The same of one that was refused here."""
    errors = fault.details.get("diagnostics", ())
    found: Any = errors if isinstance(errors, list | tuple) else ()
    return refusal(name, fault.code, fault.message, found)


def failure(items: Sequence[dict[str, Any]], refused: Sequence[dict[str, Any]]) -> CommandFailed:
    """How a command ends that met some of them."""
    first = refused[0]
    message = f"{len(refused)} of {len(items)} documents were refused"
    if len(items) == 1:
        message = f"{first['file']} was refused: {first['detail']}"
    diagnostics = [error for item in refused for error in item["errors"]]
    hint = f"check it with `noetl validate {first['file']}`"
    details = {"diagnostics": diagnostics, "items": list(items)}
    (code, *others) = {item["code"] for item in refused}
    if code in _SHARED and not others:
        made: CommandFailed = Answered(
            Problem(type="", title="", status=_SHARED[code], code=code, detail=message)
        )
        made.details = details
        return made
    return CommandFailed("invalid_playbook", message, hint=hint, details=details)


def tell(out: Output, item: dict[str, Any]) -> None:
    """Say what is wrong with a document, each finding at its place."""
    out.note(f"{visible(item['file'])}: {item['code']}: {visible(item['detail'])}")
    for error in item["errors"]:
        where = f":{error['line']}:{error.get('column', 0)}" if error.get("line") else ""
        told = f"{error.get('code', '')}: {error.get('message', '')}"
        out.note(f"{visible(item['file'])}{where}: {visible(told)}")
