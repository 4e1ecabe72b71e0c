"""What makes two deliveries the same: the sender's word, and what was signed.

The two keys go with the start of a run and are checked there, in one transaction, so that neither
a crash nor a changed header starts a second run.
"""

from __future__ import annotations

import hashlib
from typing import TYPE_CHECKING, Any, Final

from noetl.dsl.subscription.verify import ApiKeyVerify
from noetl.gateway.ingress.raw import Doubled, text_at
from noetl.sources.base import lowered
from noetl.sources.workloads import LONGEST_KEY

if TYPE_CHECKING:
    from collections.abc import Iterable, Mapping

    from noetl.dsl.subscription.ingress import Ingress
    from noetl.gateway.ingress.verify.verdict import Verified

WINDOW_S: Final = 86_400


def dedup_of(
    ingress: Ingress,
    verified: Verified,
    message: Mapping[str, Any],
    *,
    idempotency_key: str | None,
    fresh: str,
) -> dict[str, Any]:
    """The keys of a delivery and how long each is remembered, as a start carries them.

    `message` has all its headers; `fresh` is a new id, for a delivery that is like no other.
    """
    text = _first(_candidates(ingress, verified, message, idempotency_key))
    rule = ingress.dedup
    made: dict[str, Any] = {
        "key": f"m:{short(text)}" if text is not None else f"d:{fresh}",
        "window_secs": rule.window_secs if rule is not None else WINDOW_S,
    }
    if verified.replay_key is not None:
        made["replay_key"] = verified.replay_key
        made["replay_window_secs"] = verified.replay_window_s
    return made


def short(text: str) -> str:
    """A key that the table of keys can hold."""
    raw = text.encode(errors="surrogatepass")
    return text if len(raw) <= LONGEST_KEY else hashlib.sha256(raw).hexdigest()


def _candidates(
    ingress: Ingress,
    verified: Verified,
    message: Mapping[str, Any],
    idempotency_key: str | None,
) -> Iterable[str | None]:
    """What may be the key, in order."""
    yield idempotency_key
    for rule in ingress.dedup.key_ if ingress.dedup is not None else ():
        yield _found(ingress, verified, message, rule)
    yield verified.id
    told = message["metadata"].get("messageId")
    yield told if isinstance(told, str) else None
    yield verified.replay_key


def _found(
    ingress: Ingress, verified: Verified, message: Mapping[str, Any], rule: str
) -> str | None:
    """The value that a rule such as `header:x-delivery` names; one that comes twice is none."""
    where, _, name = rule.partition(":")
    if where == "body":
        return text_at(message.get("data"), name)
    if where == "header":
        found = lowered((message.get("attributes") or {}).items()).get(name.lower())
        return found if isinstance(found, str) else None
    config = ingress.verify
    if isinstance(config, ApiKeyVerify) and name == config.query:
        return None  # a key is a secret
    try:
        return verified.raw.parameter(name)
    except Doubled:
        return None


def _first(candidates: Iterable[str | None]) -> str | None:
    return next((one for one in candidates if one), None)
