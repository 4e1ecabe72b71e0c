"""NoETL runs playbooks; this is the map, one line per package in reading order.

`errors` every error, with its code, exit status and hint.
`settings` the only reader of the environment.
`dsl` what the author wrote: text to a checked model, templates, schemas, graphs; pure.
`cli` the `noetl` command.
"""

__version__ = "0.1.0"
