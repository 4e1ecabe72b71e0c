"""Why a store cannot answer now; whoever asked may ask again."""

from __future__ import annotations

from typing import ClassVar

from noetl.errors import NoetlError


class DatabaseGone(NoetlError):
    """The database cannot be reached, or the connection was lost while it worked."""

    code = "db_unavailable"
    status: ClassVar[int] = 503
    retryable: ClassVar[bool] = True
    retry_after: ClassVar[float] = 1.0


class DatabaseBusy(NoetlError):
    """Every connection is in use."""

    code = "pool_saturated"
    status: ClassVar[int] = 503
    retryable: ClassVar[bool] = True
    retry_after: ClassVar[float] = 1.0


class StorageFull(NoetlError):
    """The database has no space left."""

    code = "storage_full"
    status: ClassVar[int] = 507
    retryable: ClassVar[bool] = True
    retry_after: ClassVar[float] = 5.0


class MigrationRefused(NoetlError):
    """The schema of the database and the migrations of this release do not belong together."""

    code = "migration_refused"
    status: ClassVar[int] = 500


class NoMachine(NoetlError):
    """Every machine number is held by a process that is alive."""

    code = "pool_saturated"
    status: ClassVar[int] = 503
    retryable: ClassVar[bool] = True
    retry_after: ClassVar[float] = 5.0


class NameTaken(NoetlError):
    """Another thing of the tenant has this name."""

    code = "in_use"
    status: ClassVar[int] = 409


class OtherPool(NoetlError):
    """A process of this name is alive in another pool."""

    code = "pool_forbidden"
    status: ClassVar[int] = 403


class TooMany(NoetlError):
    """The tenant has as many of them as it may."""

    code = "quota_exceeded"
    status: ClassVar[int] = 429


class UnsafeDatabase(NoetlError):
    """The database may lose what it has confirmed, or is older than what we rely on."""

    code = "unsafe_database"
    status: ClassVar[int] = 500


class NotNewest(NoetlError):
    """A document was written on top of a version that is not the newest any more."""

    code = "version_conflict"
    status: ClassVar[int] = 409
