"""NoETL runs playbooks; this is the map, one line per package in reading order.

`errors` every error, with its code, exit status and hint.
`ids` snowflakes: made, read, sharded.
`clock` the only reader of time.
`settings` the only reader of the environment.
`telemetry` what the event log does not hold: logs, metrics, the redactor.
`dsl` what the author wrote: text to a checked model, templates, schemas, graphs; pure.
`engine` what should happen next: events, their fold, the decisions that follow; pure.
`store` where facts live: memory or PostgreSQL; only the server may import it.
`bus` hints that wake workers, and word that a run was cancelled: memory or NATS.
`blobs` large bytes, named by `noetl://` references.
`secrets` records, the keys that wrap them, and how a secret travels.
`sources` where messages come from, and the pure rules for them.
`api` the contract between processes: wire models and the one client.
`intake` messages become executions: plan, dispatch, spool, drain.
`tools` what a step can do; user code runs in child interpreters.
`edge` how HTTP comes in: connections, bodies, routes, problems.
`server` the control plane: appends events, folds, decides, hands out commands.
`worker` who does the work: claims, executes, reports.
`subscription` the process that listens to sources.
`gateway` the door for people, browsers, agents and webhooks.
`local` everything on one machine: in one process, or as a stack of them.
`cli` the `noetl` command.
"""

__version__ = "0.1.0"
