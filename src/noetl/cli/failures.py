"""How a command fails: exit codes, error codes, and the one exception that carries them."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Final

from noetl.errors import NoetlError

if TYPE_CHECKING:
    from collections.abc import Mapping

    from noetl.api.problems import Problem

EXIT_OF_STATUS: Final = {"COMPLETED": 0, "FAILED": 3, "CANCELLED": 9}
"""The exit code of a command that waited for a run."""
DOC_PAGE: Final = "/docs/reference/errors"

EXITS: Final[dict[int, str]] = {
    0: "Success; the awaited execution is COMPLETED.",
    1: "Any other error.",
    2: "Usage: a bad option, a missing argument, or a confirmation that was not given.",
    3: "The awaited execution is FAILED.",
    4: "Not authenticated, or not permitted (401, 403).",
    5: "Not found (404): a file, a topic, a kind, or something on the server.",
    6: "Conflict (409, 412): version, state or digest.",
    7: "Validation failed: playbook, workload, test assertions, `lint --strict`.",
    8: "Timed out waiting (`--timeout`).",
    9: "The awaited execution was CANCELLED.",
    10: "Server, database or broker unreachable.",
    11: "Overloaded or rate limited after retries (429, 503).",
    78: "A setting of the gateway, or a credential of a listener, is missing or cannot be used.",
    130: "Stopped by SIGINT (Ctrl-C).",
    143: "Stopped by SIGTERM.",
}


@dataclass(frozen=True, slots=True)
class Failure:
    """What an error code stands for."""

    exit_code: int
    status: int
    meaning: str


FAILURES: Final[dict[str, Failure]] = {
    "usage": Failure(2, 400, "The command line cannot be understood."),
    "file_not_found": Failure(5, 404, "A named file does not exist, or a folder holds no YAML."),
    "file_unreadable": Failure(1, 500, "A file exists but cannot be read."),
    "file_unwritable": Failure(1, 500, "A file cannot be rewritten; it is left as it was."),
    "events_write_failed": Failure(1, 507, "The event log of a run cannot be written."),
    "not_found": Failure(5, 404, "A topic or a kind does not exist."),
    "invalid_playbook": Failure(7, 422, "A document breaks the language."),
    "invalid_workload": Failure(7, 422, "The inputs of a run are not what its playbook takes."),
    "test_failed": Failure(7, 422, "A test failed, or less was covered than `--min` asks for."),
    "wait_timeout": Failure(8, 504, "A run did not end within `--timeout`."),
    "context_not_found": Failure(5, 404, "There is no server under this name."),
    "runs_differ": Failure(7, 422, "Two runs differ, with `--exit-code`."),
    "playbook_changed": Failure(6, 409, "A playbook is not the one that a log was made with."),
    "corrupt_log": Failure(1, 500, "A log was damaged after it was written."),
    "migration_needed": Failure(7, 422, "`migrate --check` found forms that it would rewrite."),
    "confirmation_required": Failure(2, 400, "Something is lost by this: it needs `--yes`."),
    "bad_setting": Failure(2, 400, "A setting of a process cannot be used."),
    "gateway.bad_setting": Failure(78, 400, "A setting of the gateway cannot be used."),
    "worker.bad_pool": Failure(2, 400, "A worker was given no pool, or no name of one."),
    "stack_not_running": Failure(10, 503, "No embedded stack runs in this folder."),
    "stack_running": Failure(6, 409, "An embedded stack runs in this folder."),
    "stack_failed": Failure(1, 500, "The embedded stack did not come up, or stay up, or go down."),
    "port_in_use": Failure(1, 409, "A port that is needed is taken."),
    "embedded_unavailable": Failure(1, 500, "The embedded database cannot run on this machine."),
    "nats_not_started": Failure(1, 500, "The embedded broker did not come up."),
    "spool_locked": Failure(6, 409, "Another process uses the folder of waiting messages."),
    "unreachable": Failure(10, 503, "The server, the database or the broker does not answer."),
    "db_unavailable": Failure(10, 503, "The database does not answer."),
    "migration_refused": Failure(6, 409, "A database and this release do not belong together."),
    "backup_damaged": Failure(1, 422, "A file is no backup, or not the one that was written."),
    "restore_refused": Failure(6, 409, "A backup cannot be restored into this database."),
    "bad_statement": Failure(7, 422, "A statement is none that reads, or cannot be run."),
    "check_failed": Failure(1, 500, "`db check`, `doctor` or `audit verify` found a fault."),
    "bulk_failed": Failure(6, 409, "Some of many runs could not be dealt with."),
    "sign_in_failed": Failure(4, 401, "Nobody signed in at the provider: refused, or not in time."),
    "interrupted": Failure(130, 499, "The command was stopped by SIGINT."),
    "internal_error": Failure(1, 500, "A fault of NoETL itself."),
}


class CommandFailed(NoetlError):
    """A command that ends with an error code of the table and its exit code."""

    def __init__(
        self,
        code: str,
        message: str,
        *,
        hint: str = "",
        details: Mapping[str, object] | None = None,
    ) -> None:
        super().__init__(message, hint=hint, code=code)
        self.details = details or {}
        self.request_id: str | None = None

    @property
    def exit_code(self) -> int:
        """The exit code of the process."""
        return FAILURES[self.code].exit_code

    @property
    def http_status(self) -> int:
        """The status that an answer with this error has."""
        return FAILURES[self.code].status

    def as_json(self) -> dict[str, object]:
        """The object that replaces stdout's data in the structured formats."""
        return {
            "error": {
                "code": self.code,
                "message": self.message,
                "hint": self.hint,
                "docs_url": f"{DOC_PAGE}#{self.code}",
                "status": self.http_status,
                "request_id": self.request_id,
                "details": dict(self.details),
            }
        }


def failure_of(fault: NoetlError) -> CommandFailed:
    """A failure below in the words of the command line; one without a code of ours is a fault."""
    from noetl.api.problems import Refused

    if isinstance(fault, CommandFailed):
        return fault
    if isinstance(fault, Refused):
        return Answered(fault.problem)
    if fault.code == "no_answer":
        hint = "is the server running? `noetl status` shows the embedded one"
        return CommandFailed("unreachable", fault.message, hint=hint)
    if fault.code == "bad_address":
        return CommandFailed("usage", fault.message, hint=fault.hint)
    if fault.code not in FAILURES:
        raise fault
    return CommandFailed(fault.code, fault.message.rstrip("."), hint=fault.hint)


class Answered(CommandFailed):
    """A call that the server refused: its code, and the exit code that its status stands for."""

    def __init__(self, problem: Problem) -> None:
        details = {"diagnostics": list(problem.errors)} if problem.errors else {}
        of_status = _HINTS.get(problem.status, "")
        # A person has no header to send, but a token to name.
        hint = of_status if problem.status == _UNKNOWN_CALLER else problem.hint or of_status
        super().__init__(problem.code, problem.detail, hint=hint, details=details)
        self.request_id = problem.request_id
        self._status = problem.status

    @property
    def exit_code(self) -> int:
        """By the table of exit codes."""
        return _EXITS_OF_STATUSES.get(self._status, 1)

    @property
    def http_status(self) -> int:
        """As it was answered."""
        return self._status


_UNKNOWN_CALLER: Final = 401
_HINTS: Final = {
    _UNKNOWN_CALLER: "sign in with `noetl login`, or name a token: `--token-file`, NOETL_TOKEN",
    403: "this needs another role, or another token",
    429: "wait a little, then try again",
    503: "wait a little, then try again",
}
_EXITS_OF_STATUSES: Final = {
    400: 7, 401: 4, 403: 4, 404: 5, 409: 6, 412: 6, 413: 7, 422: 7, 429: 11, 502: 10, 503: 11,
    504: 10,
}  # fmt: skip
