"""Refusals that only subscriptions have."""

from __future__ import annotations

from typing import ClassVar

from noetl.errors import NoetlError


class UnknownSubscription(NoetlError):
    """There is no subscription of that id, or at that path."""

    code = "unknown_subscription"
    status: ClassVar[int] = 404


class NotASubscription(NoetlError):
    """The document of a path is of another kind."""

    code = "not_a_subscription"
    status: ClassVar[int] = 422


class UnknownListener(NoetlError):
    """No subscription listens under that name."""

    code = "unknown_listener"
    status: ClassVar[int] = 404


class CannotSign(NoetlError):
    """Only the sender can sign deliveries of this listener, or its secret is not there."""

    code = "cannot_sign"
    status: ClassVar[int] = 422
