"""What a subscription's document says about its spool, and where that lies."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Final

from noetl.blobs.spool.item import CONTROL, DEAD, EVENTS, WAITING, folder_of
from noetl.dsl.subscription.spool import GIB

if TYPE_CHECKING:
    from noetl.dsl.subscription.spool import Spool

STOP_ACKING: Final = "stop_acking"
DROP_TO_DLQ: Final = "drop_to_dlq"
ALERT_ONLY: Final = "alert_only"
_HOUR_S: Final = 3600.0


@dataclass(frozen=True, slots=True, kw_only=True)
class Rules:
    """How much waits, how long, and in which order."""

    ordering: str = "per_key"
    max_bytes: int = GIB
    dlq_max_bytes: int = GIB
    on_full: str = STOP_ACKING
    max_age_s: float | None = None

    @classmethod
    def of(cls, spool: Spool) -> Rules:
        """The rules of a document."""
        kept = spool.retention
        return cls(
            ordering=spool.ordering,
            max_bytes=kept.max_bytes,
            dlq_max_bytes=kept.max_bytes if kept.dlq_max_bytes is None else kept.dlq_max_bytes,
            on_full=kept.on_full,
            max_age_s=None if kept.max_age_hours is None else kept.max_age_hours * _HOUR_S,
        )


@dataclass(frozen=True, slots=True)
class Place:
    """Where the spool of a subscription lies: the folders of its parts, each with a slash."""

    tenant: str
    path: str
    """The catalog path of the subscription."""

    @property
    def folder(self) -> str:
        """All of it."""
        return folder_of(self.tenant, self.path, "")[:-1]

    @property
    def waiting(self) -> str:
        """Messages that wait."""
        return folder_of(self.tenant, self.path, WAITING)

    @property
    def dead(self) -> str:
        """Messages that nobody will run by himself."""
        return folder_of(self.tenant, self.path, DEAD)

    @property
    def events(self) -> str:
        """What the server has not been told yet."""
        return folder_of(self.tenant, self.path, EVENTS)

    @property
    def control(self) -> str:
        """What the command line keeps where there is no server."""
        return folder_of(self.tenant, self.path, CONTROL)
