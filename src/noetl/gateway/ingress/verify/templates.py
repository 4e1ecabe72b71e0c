"""What a signature of one's own covers: a template, filled with what was received."""

from __future__ import annotations

import re
from dataclasses import dataclass
from typing import TYPE_CHECKING, Final

from noetl.gateway.ingress.raw import Doubled, json_of, text_at
from noetl.gateway.ingress.verify.proof import Proof, Unproven
from noetl.gateway.ingress.verify.signatures import must_be_recent, stamp

if TYPE_CHECKING:
    from noetl.dsl.subscription.verify import DeliveryId, SignedVerify
    from noetl.gateway.ingress.raw import Raw

BODY: Final = "{body}"
_PLACEHOLDER: Final = re.compile(r"\{([^{}]*)\}")
_LIKE: Final = ("sha256=", "sha512=")


@dataclass(frozen=True, slots=True)
class Filled:
    """A template that is filled: what was signed, and when it says that this was."""

    signed: bytes
    sent: float | None
    tolerance_s: int
    is_time_signed: bool

    def proof(self, now: float, delivery_id: str | None) -> Proof:
        """The proof of a signature that was right."""
        if self.sent is not None:
            must_be_recent(self.sent, now, self.tolerance_s)
        if not self.is_time_signed:
            return Proof(signed=self.signed, id=delivery_id)
        return Proof(
            signed=self.signed,
            signed_time=self.sent,
            tolerance_s=self.tolerance_s,
            id=delivery_id,
        )


def filled(config: SignedVerify, raw: Raw) -> Filled:
    """The template of a listener, with what this delivery has for each placeholder."""
    template = config.template or BODY
    time = stamp(raw, config.timestamp.header) if config.timestamp else b""
    names = _PLACEHOLDER.findall(template)
    if "body" not in names or ("timestamp" in names and not time):
        raise Unproven("misconfigured")
    return Filled(
        signed=_signed(config, template, raw, time),
        sent=float(time) if time else None,
        tolerance_s=config.timestamp.tolerance_secs if config.timestamp else 0,
        is_time_signed="timestamp" in names,
    )


def bare(config: SignedVerify, text: bytes, algorithm: str = "") -> bytes:
    """A signature without what stands before it."""
    prefixes = [config.prefix] if config.prefix else []
    prefixes += [one for one in _LIKE if one == _LIKE[0] or one == f"{algorithm}="]
    for prefix in prefixes:
        if text.startswith(prefix.encode()):
            return text[len(prefix.encode()) :]
    if config.prefix:
        raise Unproven("bad_signature")
    return text


def id_of(rule: DeliveryId | None, raw: Raw, *, is_signed: bool = False) -> str | None:
    """The sender's id of a delivery; one that nobody signed and that comes twice is none."""
    if rule is None:
        return None
    if rule.body:
        return text_at(json_of(raw.body), rule.body)
    return header_text(raw, rule.header or "", is_signed=is_signed)


def header_text(raw: Raw, name: str, *, is_signed: bool = False) -> str | None:
    """The text of a header; one that nobody signed and that comes twice is none."""
    try:
        found = raw.one(name)
    except Doubled:
        if is_signed:
            raise
        return None
    return found.decode("latin-1") if found else None


def _signed(config: SignedVerify, template: str, raw: Raw, time: bytes) -> bytes:
    if template == BODY:
        return raw.body
    parts, end = [], 0
    for found in _PLACEHOLDER.finditer(template):
        parts.append(template[end : found.start()].encode())
        parts.append(_value(config, found[1], raw, time))
        end = found.end()
    return b"".join([*parts, template[end:].encode()])


def _value(config: SignedVerify, name: str, raw: Raw, time: bytes) -> bytes:
    if name.startswith("header:"):
        return raw.one(name.removeprefix("header:").lower()) or b""
    match name:
        case "body":
            return raw.body
        case "timestamp":
            return time
        case "id":
            # As bytes of the header, or as the text of the body: what the sender has signed.
            told = id_of(config.id, raw, is_signed=True) or ""
            return told.encode("utf-8" if config.id and config.id.body else "latin-1")
        case "method":
            return raw.method.encode()
        case "path":
            return raw.path.encode()
        case _:
            raise Unproven("misconfigured")
