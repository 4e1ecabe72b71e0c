"""`kind: Playbook`: what the author wrote, in its one normal form."""

from noetl.dsl.playbook.document import Playbook
from noetl.dsl.playbook.routing import Arc
from noetl.dsl.playbook.step import Step

__all__ = ["Arc", "Playbook", "Step"]
