"""NoETL runs playbooks; this is the map, one line per package in reading order.

`errors` every error, with its code, exit status and hint.
`settings` the only reader of the environment.
`telemetry` what the event log does not hold; today the redactor.
`dsl` what the author wrote: text to a checked model, templates, schemas, graphs; pure.
`engine` what should happen next: events, their fold, the decisions that follow; pure.
`tools` what a step can do; user code runs in child interpreters.
`cli` the `noetl` command.
"""

__version__ = "0.1.0"
