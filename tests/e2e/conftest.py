"""The stack that tests of both wirings share."""

from tests.servers.stack import full_stack

__all__ = ["full_stack"]
