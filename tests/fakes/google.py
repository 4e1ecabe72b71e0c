"""Google Cloud: tokens for signed words, KMS, Secret Manager, IAM, and the metadata service."""

from __future__ import annotations

import base64
import json
import os
import time
from typing import Any

from cryptography.exceptions import InvalidSignature, InvalidTag
from cryptography.hazmat.primitives import hashes, serialization
from cryptography.hazmat.primitives.asymmetric import padding, rsa
from cryptography.hazmat.primitives.ciphers.aead import AESGCM

from tests.fakes.web import Asked, Refused, Web

EMAIL = "runner@acme-demo.iam.gserviceaccount.com"
OTHER = "target@acme-demo.iam.gserviceaccount.com"
KMS_KEY = "projects/acme-demo/locations/global/keyRings/noetl/cryptoKeys/wallet"
KMS_OTHER = "projects/acme-demo/locations/global/keyRings/noetl/cryptoKeys/other"
GRANT = "urn:ietf:params:oauth:grant-type:jwt-bearer"
KEY = rsa.generate_private_key(public_exponent=65537, key_size=2048)
PEM = KEY.private_bytes(
    serialization.Encoding.PEM,
    serialization.PrivateFormat.PKCS8,
    serialization.NoEncryption(),
).decode()


def encoded(data: bytes) -> str:
    return base64.urlsafe_b64encode(data).rstrip(b"=").decode()


def decoded(text: str) -> bytes:
    return base64.urlsafe_b64decode(text + "=" * (-len(text) % 4))


def jwt(claims: dict[str, Any]) -> str:
    """A token of the issuer; the reader of it here never checks it."""
    head = encoded(b'{"alg":"RS256"}')
    return f"{head}.{encoded(json.dumps(claims).encode())}.{encoded(os.urandom(16))}"


class Google(Web):
    """Every service under one address."""

    def __init__(self) -> None:
        self.kms = {KMS_KEY: [os.urandom(32)], KMS_OTHER: [os.urandom(32)]}
        self.disabled: set[tuple[str, int]] = set()
        self.secrets: dict[str, list[bytes]] = {}
        self.tokens: dict[str, str] = {}
        self.lifetime_s = 3600
        super().__init__()

    @property
    def account(self) -> dict[str, str]:
        """The file of keys that Google hands out."""
        return {
            "type": "service_account",
            "project_id": "acme-demo",
            "client_email": EMAIL,
            "private_key": PEM,
            "private_key_id": "key-1",
            "token_uri": f"{self.url}/token",
        }

    def answer(self, asked: Asked) -> Any:
        if asked.path == "/token":
            return self._exchanged(asked)
        if asked.path.startswith("/computeMetadata/v1/instance/service-accounts/default/"):
            return self._of_machine(asked)
        scope = self.tokens.get(asked.bearer)
        if scope is None:
            raise Refused(401, {"error": {"code": 401, "status": "UNAUTHENTICATED"}})
        if asked.path.startswith("/v1/projects/-/serviceAccounts/"):
            return self._impersonated(asked)
        if "/cryptoKeys/" in asked.path:
            return self._kms(asked)
        return self._secret(asked)

    def issue(self, scope: str) -> str:
        token = f"ya29.canary-{os.urandom(8).hex()}"
        self.tokens[token] = scope
        return token

    def _exchanged(self, asked: Asked) -> Any:
        """Verify the signature and every claim."""
        form = asked.form
        head, body, signature = form["assertion"].split(".")
        bad = Refused(400, {"error": "invalid_grant", "error_description": form["assertion"]})
        if form["grant_type"] != GRANT or json.loads(decoded(head)) != {
            "alg": "RS256", "typ": "JWT", "kid": "key-1",
        }:  # fmt: skip
            raise bad
        try:
            KEY.public_key().verify(
                decoded(signature), f"{head}.{body}".encode(), padding.PKCS1v15(), hashes.SHA256()
            )
        except InvalidSignature:
            raise bad from None
        claims = json.loads(decoded(body))
        now = time.time()  # noqa: TID251 - the other side's own clock
        is_good = (
            claims["iss"] == EMAIL
            and claims["aud"] == f"{self.url}/token"
            and claims["iat"] - 60 <= now < claims["exp"] <= claims["iat"] + 3600
        )
        if not is_good:
            raise bad
        if "target_audience" in claims:
            return {"id_token": self._id_token(claims["target_audience"], EMAIL)}
        token = self.issue(claims["scope"])
        return {"access_token": token, "expires_in": self.lifetime_s, "token_type": "Bearer"}

    def _id_token(self, audience: str, email: str) -> str:
        now = int(time.time())  # noqa: TID251 - as above
        return jwt({"aud": audience, "email": email, "exp": now + self.lifetime_s})

    def _of_machine(self, asked: Asked) -> Any:
        if asked.headers.get("metadata-flavor") != "Google":
            raise Refused(403)
        if asked.path.endswith("/identity"):
            return self._id_token(asked.query["audience"], EMAIL) + "\n"
        token = self.issue(asked.query["scopes"])
        return {"access_token": token, "expires_in": self.lifetime_s, "token_type": "Bearer"}

    def _impersonated(self, asked: Asked) -> Any:
        email, _, action = asked.path.rpartition("/")[2].partition(":")
        if email != OTHER:
            raise Refused(403, {"error": {"status": "PERMISSION_DENIED"}})
        if action == "generateIdToken":
            return {"token": self._id_token(asked.json["audience"], OTHER)}
        token = self.issue(" ".join(asked.json["scope"]))
        until = time.gmtime(time.time() + 3600)  # noqa: TID251 - as above
        return {"accessToken": token, "expireTime": time.strftime("%Y-%m-%dT%H:%M:%SZ", until)}

    def _kms(self, asked: Asked) -> Any:
        name, _, action = asked.path.removeprefix("/v1/").partition(":")
        versions = self.kms.get(name)
        if versions is None:
            raise Refused(404, {"error": {"code": 404, "status": "NOT_FOUND"}})
        primary = f"{name}/cryptoKeyVersions/{len(versions)}"
        if asked.method == "GET" and not action:
            return {"name": name, "primary": {"name": primary, "state": "ENABLED"}}
        if action == "encrypt":
            return {"name": primary, "ciphertext": self._encrypted(versions, asked)}
        if action == "decrypt":
            return {"plaintext": self._decrypted(name, versions, asked)}
        raise Refused(404)

    @staticmethod
    def _encrypted(versions: list[bytes], asked: Asked) -> str:
        nonce = os.urandom(12)
        plain = base64.b64decode(asked.json["plaintext"])
        head = bytes([len(versions)])
        sealed = AESGCM(versions[-1]).encrypt(nonce, plain, head)
        return base64.b64encode(head + nonce + sealed).decode()

    def _decrypted(self, name: str, versions: list[bytes], asked: Asked) -> str:
        raw = base64.b64decode(asked.json["ciphertext"])
        which = raw[0] if raw else 0
        if (name, which) in self.disabled:
            raise Refused(400, {"error": {"code": 400, "status": "FAILED_PRECONDITION"}})
        try:
            key = versions[which - 1] if which else b""
            plain = AESGCM(key).decrypt(raw[1:13], raw[13:], raw[:1])
        except (IndexError, ValueError, InvalidTag):
            raise Refused(400, {"error": {"code": 400, "status": "INVALID_ARGUMENT"}}) from None
        return base64.b64encode(plain).decode()

    def _secret(self, asked: Asked) -> Any:
        path, _, action = asked.path.removeprefix("/v1/").partition(":")
        name, _, version = path.rpartition("/versions/")
        versions = self.secrets.get(name)
        if action != "access" or not versions:
            raise Refused(404, {"error": {"code": 404, "status": "NOT_FOUND"}})
        which = len(versions) if version == "latest" else int(version)
        if not 1 <= which <= len(versions):
            raise Refused(404, {"error": {"code": 404, "status": "NOT_FOUND"}})
        return {"name": path, "payload": {"data": base64.b64encode(versions[which - 1]).decode()}}
