"""The stack that the tests of traces share."""

from tests.servers.otlp import traced_stack

__all__ = ["traced_stack"]
