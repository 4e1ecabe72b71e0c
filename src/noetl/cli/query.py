"""`noetl query`: short for `noetl db query`."""

from noetl.cli.asked import QUERY

COMMAND = QUERY
