"""`kind: Subscription`: a message source, and the playbook that each message starts."""

from noetl.dsl.subscription.document import Subscription

__all__ = ["Subscription"]
