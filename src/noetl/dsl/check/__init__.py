"""Whole-document rules: what only the document as a whole can tell."""

from __future__ import annotations

from typing import TYPE_CHECKING

from noetl.dsl.check.playbook import PlaybookCheck
from noetl.dsl.playbook import Playbook
from noetl.dsl.subscription import Subscription
from noetl.dsl.subscription.check import check_subscription

if TYPE_CHECKING:
    from noetl.dsl.shape import Model
    from noetl.dsl.shape.reader import Reader


def check(model: Model, reader: Reader) -> None:
    """Check a document of any kind."""
    if isinstance(model, Playbook):
        PlaybookCheck(model, reader).run()
    elif isinstance(model, Subscription):
        check_subscription(model, reader)
