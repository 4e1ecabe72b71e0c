"""Everything about secrets, wired."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

from noetl.server.wallet.box import Box
from noetl.server.wallet.credentials import Credentials
from noetl.server.wallet.delivery import Deliveries
from noetl.server.wallet.ending import Ending
from noetl.server.wallet.keychain.entries import Entries
from noetl.server.wallet.keychain.flights import Flights
from noetl.server.wallet.keychain.kept import Kept
from noetl.server.wallet.keychain.managers import Managers
from noetl.server.wallet.keychain.opened import Opened
from noetl.server.wallet.keychain.renewals import Renewals
from noetl.server.wallet.keychain.resolution import Resolution
from noetl.server.wallet.keychain.values import Keychain
from noetl.server.wallet.listeners import Listeners
from noetl.server.wallet.listening import Listening
from noetl.server.wallet.naming import Usage
from noetl.server.wallet.regions import Regions
from noetl.server.wallet.rotation import Rotation
from noetl.server.wallet.runs import Runs
from noetl.server.wallet.sealing import Sealing
from noetl.server.wallet.sign_in import SignInSecrets
from noetl.server.wallet.uses import SecretAudit

if TYPE_CHECKING:
    from noetl.edge.cursor import Cursors
    from noetl.server.auditing.audit import Audits
    from noetl.server.fleet.workers import Workers
    from noetl.server.ingest.programs import Programs
    from noetl.server.metrics import ServerMetrics
    from noetl.server.parts import ServerParts
    from noetl.server.signals import Signals
    from noetl.server.subscriptions.desk import SubscriptionDesk
    from noetl.server.wallet.inputs import RunSecrets
    from noetl.server.wallet.probes import Probes


@dataclass(slots=True, kw_only=True)
class SecretDesk:
    """What routes and loops ask about secrets."""

    credentials: Credentials
    keychain: Keychain
    deliveries: Deliveries
    resolution: Resolution
    inputs: RunSecrets
    rotation: Rotation
    regions: Regions
    ending: Ending
    renewals: Renewals
    audit: SecretAudit
    probes: Probes
    listening: Listening
    listeners: Listeners
    sign_in: SignInSecrets

    @classmethod
    def of(  # noqa: PLR0913 - the parts it is made from
        cls,
        parts: ServerParts,
        cursors: Cursors,
        programs: Programs,
        workers: Workers,
        *,
        audits: Audits,
        metrics: ServerMetrics,
        inputs: RunSecrets,
        probes: Probes,
        credentials: Credentials,
        subscriptions: SubscriptionDesk,
        signals: Signals,
    ) -> SecretDesk:
        """Make the parts that follow from the given ones."""
        store, clock, ids, region = parts.store, parts.clock, parts.ids, parts.region
        box = Box(parts.wallet, parts.seen)
        managers = Managers(
            parts.fetch, parts.metadata, parts.surroundings,
            seen=parts.seen, clock=clock, metrics=metrics,
        )  # fmt: skip
        keychain = Keychain(store, box, cursors=cursors, clock=clock, ids=ids)
        flights = Flights()
        kept = Kept(keychain, flights, store.turns, clock)
        opened = Opened(store.credentials, credentials, managers, kept, region=region)
        runs = Runs(store.executions, programs, signals.recent)
        sealing = Sealing(workers, metrics=metrics, seen=parts.seen, clock=clock)
        resolution = Resolution(
            runs,
            opened,
            Entries(opened, managers, clock),
            keychain,
            kept,
            inputs=inputs,
            clock=clock,
            region=region,
        )
        return cls(
            credentials=credentials,
            keychain=keychain,
            deliveries=Deliveries(
                store.commands,
                runs,
                resolution,
                inputs,
                credentials=store.credentials,
                sealing=sealing,
                claimed=signals.claimed,
                clock=clock,
            ),
            resolution=resolution,
            inputs=inputs,
            rotation=Rotation(store.records, box, metrics, clock),
            regions=Regions(opened, runs, workers, sealing, region=region),
            ending=Ending(store.tenants, credentials, keychain),
            renewals=Renewals(store, runs, resolution, kept, flights=flights, clock=clock),
            audit=SecretAudit(store.audit, audits, cursors),
            probes=probes,
            listening=Listening(subscriptions, resolution, sealing),
            listeners=Listeners(parts, subscriptions, resolution, sealing),
            sign_in=SignInSecrets(opened, sealing),
        )


def credentials_of(
    parts: ServerParts, cursors: Cursors, subscriptions: SubscriptionDesk
) -> Credentials:
    """Credentials, which the catalog needs before all else of this."""
    store = parts.store
    return Credentials(
        store.credentials,
        Box(parts.wallet, parts.seen),
        Usage(store.catalog),
        cursors=cursors,
        clock=parts.clock,
        ids=parts.ids,
        changed=subscriptions.hints.credential,
    )
