"""`noetl migrate`: older forms rewritten in the author's own text, comments kept."""

from noetl.dsl.migrate.rewrite import Migration, migrate

__all__ = ["Migration", "migrate"]
