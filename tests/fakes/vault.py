"""Vault: the transit engine and the key-value engine, as far as its HTTP API tells of them."""

from __future__ import annotations

import base64
import os
import re
from typing import Any

from cryptography.exceptions import InvalidTag
from cryptography.hazmat.primitives.ciphers.aead import AESGCM

from tests.fakes.web import Asked, Refused, Web

TOKEN = "hvs.canary-vault-token-90125"  # noqa: S105 - of a stand-in
CIPHERTEXT = re.compile(r"vault:v(\d+):(.+)\Z")


class TransitKey:
    """The versions of one key."""

    def __init__(self) -> None:
        self.versions = [os.urandom(32)]
        self.least = 1

    def rotate(self) -> None:
        self.versions.append(os.urandom(32))


class Vault(Web):
    """One namespace with one token."""

    def __init__(self) -> None:
        self.keys = {"transit/noetl": TransitKey(), "transit/other": TransitKey()}
        self.kept: dict[str, list[dict[str, Any] | None]] = {}
        self.namespace = ""
        self.token = TOKEN
        self.is_sealed = False
        super().__init__()

    def answer(self, asked: Asked) -> Any:
        if self.is_sealed:
            raise Refused(503, {"errors": ["Vault is sealed"]})
        if asked.headers.get("x-vault-namespace", "") != self.namespace:
            raise Refused(404, {"errors": ["no handler for route"]})
        if asked.headers.get("x-vault-token") != self.token:
            raise Refused(403, {"errors": ["permission denied"]})
        head, _, path = asked.path.removeprefix("/v1/").partition("/")
        if path.startswith("data/"):
            return self._secret(f"{head}/{path.removeprefix('data/')}", asked)
        action, _, name = path.partition("/")
        key = self.keys.get(f"{head}/{name}")
        match asked.method, action:
            case "GET", "keys" if key:
                return {"data": {"name": name, "latest_version": len(key.versions)}}
            case "POST", "encrypt" if key:
                return {"data": _encrypted(key, asked.json["plaintext"])}
            case "POST", "decrypt" if key:
                return {"data": {"plaintext": _decrypted(key, asked.json["ciphertext"])}}
            case "POST", "encrypt" | "decrypt":
                raise Refused(400, {"errors": ["encryption key not found"]})
        raise Refused(404, {"errors": []})

    def _secret(self, path: str, asked: Asked) -> Any:
        versions = self.kept.get(path)
        if asked.method != "GET" or not versions:
            raise Refused(404, {"errors": []})
        which = int(asked.query.get("version", 0)) or len(versions)
        data = versions[which - 1] if which <= len(versions) else None
        answer = {"data": {"data": data, "metadata": {"version": which}}}
        if data is None:
            raise Refused(404, answer)
        return answer


def _encrypted(key: TransitKey, plaintext: str) -> dict[str, Any]:
    nonce = os.urandom(12)
    sealed = AESGCM(key.versions[-1]).encrypt(nonce, base64.b64decode(plaintext), None)
    text = base64.b64encode(nonce + sealed).decode()
    return {"ciphertext": f"vault:v{len(key.versions)}:{text}", "key_version": len(key.versions)}


def _decrypted(key: TransitKey, ciphertext: str) -> str:
    found = CIPHERTEXT.match(ciphertext)
    if found is None or not key.least <= int(found[1]) <= len(key.versions):
        raise Refused(400, {"errors": ["ciphertext version is disallowed by policy (too old)"]})
    try:
        raw = base64.b64decode(found[2], validate=True)
        plain = AESGCM(key.versions[int(found[1]) - 1]).decrypt(raw[:12], raw[12:], None)
    except (ValueError, InvalidTag):
        raise Refused(400, {"errors": ["cipher: message authentication failed"]}) from None
    return base64.b64encode(plain).decode()
