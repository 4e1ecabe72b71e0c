"""A push subscription with its secret, and a gateway that writes down what it is sent."""

from __future__ import annotations

from contextlib import nullcontext
from typing import TYPE_CHECKING, Any

import msgspec

from noetl.api.catalog import Register
from noetl.api.credentials import CredentialPut
from noetl.api.executions import Dedup, Execute, Ingress
from noetl.api.http import Answer, NoAnswer
from noetl.api.runtime import WorkerEntry
from noetl.api.subscriptions import PutDeliveries, PutDelivery
from noetl.secrets.sealed import KeyPair
from tests.unit.server.subscriptions.stage import PLAYBOOK, TARGET, document

if TYPE_CHECKING:
    from collections.abc import Mapping

    from noetl.api.client import Client
    from tests.unit.server.rig import Rig

PATH = "subs/orders"
LISTENER = "orders"
SECRET = "push-canary-of-32-characters-0001"  # noqa: S105 - of nobody
PUSH = (
    "source: webhook, mode: push, ingress: {gateway_path: /ingress/%s, "
    "verify: {type: hmac_sha256, secret: [hook, hook_old], header: x-signature}%s}"
)
AT = "2025-12-31T00:00:0%dZ"


class FakeGateway:
    """Takes requests, and answers what a test has put there."""

    def __init__(self) -> None:
        self.asked: list[tuple[str, str, bytes, dict[str, str]]] = []
        self.uris: list[str] = []
        self.answers: list[Answer | NoAnswer] = []

    def way(self, uri: str) -> Any:
        """The way to it, whatever its address is."""
        self.uris.append(uri)
        return nullcontext(self)

    def says(self, code_: int, /, **body: Any) -> None:
        """The next answer."""
        self.answers.append(Answer(code_, {}, msgspec.json.encode(body)))

    async def request(
        self, method: str, path: str, body: bytes, headers: Mapping[str, str]
    ) -> Answer:
        self.asked.append((method, path, body, dict(headers)))
        said = self.answers.pop(0)
        if isinstance(said, NoAnswer):
            raise said
        return said


async def pushed(
    r: Rig, client: Client | None = None, more: str = "", listener: str = LISTENER, beside: str = ""
) -> str:
    """Put the secret, register the target and a push subscription; the id of that."""
    client = client or r.client
    await put(client)
    await client.register(Register(content=PLAYBOOK))
    content = document(f"subs/{listener}", PUSH % (listener, more), beside)
    await client.register(Register(content=content))
    return (await client.register_subscription(f"subs/{listener}")).subscription_id


async def put(client: Client, name: str = "hook", value: str = SECRET) -> None:
    """Put a secret of the listener."""
    await client.put_credential(CredentialPut(name=name, type="secret", data={"value": value}))


async def gateway(client: Client, name: str = "gw-1", uri: str = "http://gw:8090") -> KeyPair:
    """Make a gateway known; its keys."""
    keys = KeyPair.make()
    entry = WorkerEntry(
        name=name, component_type="gateway", uri=uri, runtime={"worker_public_key": keys.public}
    )
    await client.register_worker(entry)
    return keys


def delivery(number: int = 1, **more: Any) -> PutDelivery:
    """What a gateway tells of a delivery."""
    given = {"delivery_id": str(number), "at": AT % number, "outcome": "accepted"}
    return PutDelivery(**(given | {"message_id": f"m{number}", "bytes": 3} | more))


async def tell(client: Client, sub: str, *items: PutDelivery) -> int:
    """Tell the server of deliveries."""
    return (await client.put_deliveries(sub, PutDeliveries(items=items))).count


def wish(sub: str, number: int = 1, **more: Any) -> Execute:
    """What a gateway asks for when a delivery was verified."""
    ingress = {
        "message_id": f"m{number}", "source": "webhook", "listener": LISTENER,
        "delivery_id": str(number),
    }  # fmt: skip
    given = {
        "path": TARGET,
        "payload": {"n": number},
        "execution_pool": "hooks",
        "parent_execution_id": sub,
        "dedup": Dedup(key=f"id:{number}", window_secs=600, replay_key=f"r:{number}"),
        "ingress": Ingress(**(ingress | more.pop("ingress", {}))),
    }
    return Execute(**(given | more))


async def taken(r: Rig, sub: str, number: int = 1, **more: Any) -> str:
    """Start the run of a delivery and tell of it; the id of the run."""
    made = await r.client.execute(wish(sub, number, **more))
    await tell(r.client, sub, delivery(number, execution_id=made.execution_id))
    return made.execution_id
