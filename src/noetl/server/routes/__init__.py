"""Routes, in files named like the wire models of `noetl.api`: each reads, calls and answers."""
