"""Lines of the generated page about processes: readiness, exit codes, codes of refused starts."""

from __future__ import annotations

from typing import TYPE_CHECKING, Final

from noetl.bus.streams import StreamDrift
from noetl.edge.door import UndeclaredRoute
from noetl.edge.http import PortTaken
from noetl.local.embedded.home import FOLDERS
from noetl.local.embedded.supervisor import StackFailed
from noetl.local.lodging import EmbeddedUnavailable
from noetl.local.nats import NatsNotStarted
from noetl.server.backends import NotMigrated, SeatLost
from noetl.server.vitals import REASONS
from noetl.settings import BadSetting
from noetl.store.errors import DatabaseGone, MigrationRefused, UnsafeDatabase
from noetl.worker.identity import CannotStart

if TYPE_CHECKING:
    from collections.abc import Iterator

_WORKER_READY: Final = {
    "warming_up": "Its child interpreters and connections are being made.",
    "not_registered": "No server has taken it into its pool yet.",
    "token_refused": "The server does not accept its token.",
    "draining": "It was told to stop and finishes what it runs.",
    "outbox_full": "The disk has no room for reports that the server has not taken.",
    "no_claims": "Its requests for work fail, and it hears no hints either.",
}
_GATEWAY_READY: Final = {
    "server": "The server does not answer, or is not ready itself.",
    "nats": "The bus is away.",
    "kv": "The buckets of sessions and requests do not answer.",
    "shards": "The server sees the shards differently.",
    "task:NAME": "A loop of the gateway has failed three times within a minute.",
}
_EXITS: Final = (
    ("`noetl server`", 0, "It was told to stop, and what it had begun has ended."),
    (
        "`noetl server`",
        1,
        "It could not start, or a loop has failed; the last line says why.",
    ),
    ("`noetl worker`", 0, "It was told to stop, and has drained."),
    ("`noetl worker`", 1, "A second signal ended it by force, or it has failed."),
    ("`noetl worker`", 2, "It was not started; somebody must change something."),
    ("`noetl gateway`", 0, "It was told to stop, and its streams and calls have ended."),
    ("`noetl gateway`", 1, "It could not start, or has failed; the last line says why."),
    ("`noetl gateway`", 78, "A setting cannot be used (`gateway.bad_setting`)."),
    (
        "`noetl worker --mode subscription`",
        78,
        "A subscription cannot be listened to as it is; somebody must change something.",
    ),
    ("server, worker", 2, "A setting cannot be used (`bad_setting`, `worker.bad_pool`)."),
)
_STARTS: Final = (
    (BadSetting.code, "every process", "A setting is not what it has to be, or two contradict."),
    (PortTaken.code, "server", "The address or the port cannot be listened on."),
    (DatabaseGone.code, "server", "The database did not answer for 30 s."),
    (NotMigrated.code, "server", "The database lacks migrations: run `noetl db migrate`."),
    (UnsafeDatabase.code, "server", "In production: a database that may forget, or is too old."),
    (SeatLost.code, "server", "It was cut off for an hour, and its machine number was given away."),
    (UndeclaredRoute.code, "server", "A route asks for no permission; a defect of the build."),
    (StreamDrift.code, "server, worker", "The broker has something else under a name of ours."),
    (MigrationRefused.code, "`noetl db`", "The database and this release do not belong together."),
    ("worker.bad_pool", "worker", "The pool is missing, or is not the name of one."),
    ("worker.bad_id", "worker", "`WORKER_ID` is not the name of a worker."),
    ("worker.already_running", "worker", "A worker with this `WORKER_ID` runs in the same folder."),
    ("worker.bad_bind", "worker", "`WORKER_METRICS_BIND` cannot be listened on."),
    (CannotStart.code, "worker", "Another reason that needs a person; the message names it."),
    ("gateway.bad_setting", "gateway", "A setting of the gateway or a line of its file is wrong."),
    ("broker_too_old", "gateway", "The broker is older than 2.11 and forgets times to live."),
    (EmbeddedUnavailable.code, "`noetl up`", "The embedded PostgreSQL cannot run on this machine."),
    (NatsNotStarted.code, "`noetl up`", "The embedded NATS did not come up."),
    (StackFailed.code, "`noetl up`", "A part did not come up, or ended five times in a minute."),
)  # fmt: skip
_FOLDERS: Final = {
    "pg": "Data of the embedded PostgreSQL; for root they lie under `/var/lib/noetl`.",
    "nats": "Configuration and streams of the embedded NATS.",
    "logs": "What each part said, one file per part; `noetl logs` shows them.",
    "run": "`stack.json`, what runs; `lock`, which one stack holds.",
    "blobs": "Large values of `noetl run`.",
    "objects": "Large values of the server: the object store of the embedded stack.",
    "secrets": "Tokens, passwords, the encryption key and addresses, each in a file 0600.",
    "data": "Files of playbooks: the data root of the workers.",
    "worker": "One folder per worker: its name, and its reports, lines and results on their way.",
    "runs": "Event logs of `noetl run`.",
    "spool": "Messages that wait while what they are for is away.",
}


def process_lines() -> Iterator[str]:
    """When a process is ready, how it ends, and why it does not start."""
    yield "What probes, supervisors and people ask of the processes, and of `noetl up`."
    yield ""
    yield "## Readiness"
    yield ""
    yield "`/readyz` answers 200, or 503 with the reasons."
    yield "The server names them in `failing`, a worker in `reasons`."
    yield "A gateway answers at `/ready`, with `failing`; while it stops, `draining` is true."
    yield "A bus that is away does not make a server unready: work goes on, only slower."
    yield ""
    yield from _rows("process", "reason", "meaning")
    yield from (f"| server | `{name}` | {about} |" for name, about in REASONS.items())
    yield from (f"| worker | `{name}` | {about} |" for name, about in _WORKER_READY.items())
    yield from (f"| gateway | `{name}` | {about} |" for name, about in _GATEWAY_READY.items())
    yield ""
    yield "## Exit codes of processes"
    yield ""
    yield "Other commands end as [the command line](cli.md#exit-codes) says."
    yield ""
    yield from _rows("process", "code", "meaning")
    yield from (f"| {process} | {code} | {about} |" for process, code, about in _EXITS)
    yield ""
    yield "## Why a process does not start"
    yield ""
    yield "The code stands in the last line of its log, or after `error[...]`."
    yield ""
    yield from _rows("code", "of", "meaning")
    yield from (f"| `{code}` | {process} | {about} |" for code, process, about in _STARTS)
    yield ""
    yield "## Files under NOETL_HOME"
    yield ""
    yield "`.noetl` unless `NOETL_HOME` or `--home` says otherwise; for its owner alone (0700)."
    yield "`config.toml` there holds settings of its stack."
    yield ""
    yield from _rows("folder", "holds")
    yield from (f"| `{name}/` | {_FOLDERS[name]} |" for name in (*FOLDERS, "runs"))


def _rows(*titles: str) -> Iterator[str]:
    yield f"| {' | '.join(titles)} |"
    yield f"|{'---|' * len(titles)}"
