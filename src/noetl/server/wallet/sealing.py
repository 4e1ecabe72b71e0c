"""How a secret leaves the server: counted, known by value from then on, sealed to one process."""

from __future__ import annotations

from contextlib import contextmanager
from datetime import timedelta
from typing import TYPE_CHECKING, Final

import msgspec

from noetl.api.credentials import SealedAnswer
from noetl.clock import rfc3339
from noetl.dsl.documents.credential_types import secrets_in
from noetl.edge.errors import Forbidden
from noetl.errors import NoetlError
from noetl.secrets.sealed import is_public_key, seal_to
from noetl.server.wallet.errors import WorkerKeyMissing

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Iterator

    from noetl.clock import Clock
    from noetl.server.fleet.workers import Workers
    from noetl.server.metrics import ServerMetrics
    from noetl.telemetry.fingerprints import Fingerprints

KEPT: Final = timedelta(minutes=5)
"""Whoever was given a secret drops it after this time at the latest."""
_encode: Final = msgspec.json.Encoder().encode


class Sealing:
    """Seals values to the keys that processes have registered."""

    def __init__(
        self, workers: Workers, *, metrics: ServerMetrics, seen: Fingerprints, clock: Clock
    ) -> None:
        self._workers = workers
        self._metrics = metrics
        self._seen = seen
        self._clock = clock

    @contextmanager
    def counted(self) -> Iterator[None]:
        """Count what was refused and what failed within; `seal` counts what was given."""
        try:
            yield
        except NoetlError as refusal:
            is_refused = isinstance(refusal, Forbidden)
            self._metrics.credentials_sealed.inc("refused" if is_refused else "error")
            raise

    async def key_of(self, process: str, *kinds: str) -> str:
        """The key that a process of one of these kinds has registered."""
        key = await self._workers.key_of(process, kinds)
        if key is None or not is_public_key(key):
            raise WorkerKeyMissing(
                f"the {' or '.join(kinds)} {process[:80]!r} has registered no key to seal to",
                hint="register it with `runtime.worker_public_key`",
            )
        return key

    def seal(
        self,
        key: str,
        value: object,
        about: str,
        until: str | None,
        *,
        secrets: Callable[[object], Iterable[str]] = secrets_in,
    ) -> SealedAnswer:
        """A value for the holder of a key alone; when it ends by itself, it is kept no longer."""
        self._seen.add(*secrets(value))
        sealed = seal_to(key, _encode(value), about)
        ends = rfc3339(self._clock.now() + KEPT)
        self._metrics.credentials_sealed.inc("ok")
        return SealedAnswer(
            alg=sealed.alg,
            v=sealed.v,
            eph_pub=sealed.eph_pub,
            ciphertext=sealed.ciphertext,
            expires_at=ends if until is None else min(until, ends),
        )
