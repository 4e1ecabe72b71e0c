"""The `noetl` command: one file per command, each imported only when its command runs."""
