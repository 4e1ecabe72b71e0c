"""Azure: Entra's token endpoint and a Key Vault, under one address."""

from __future__ import annotations

import os
from typing import Any

from tests.fakes.web import Asked, Refused, Web

TENANT = "0f0a1b2c-0000-4000-8000-00000000acme".replace("acme", "ac3e")
CLIENT = "app-of-a-test"
SECRET = "canary-azure-client-5150"  # noqa: S105 - of a stand-in
SCOPE = "https://vault.azure.net/.default"


class Azure(Web):
    """One tenant, one application, one vault."""

    def __init__(self) -> None:
        self.kept: dict[str, list[str]] = {}
        self.tokens: set[str] = set()
        super().__init__()

    @property
    def fields(self) -> dict[str, str]:
        return {
            "tenant_id": TENANT,
            "client_id": CLIENT,
            "client_secret": SECRET,
            "authority": self.url,
            "vault_url": self.url,
        }

    def answer(self, asked: Asked) -> Any:
        if asked.path == f"/{TENANT}/oauth2/v2.0/token":
            return self._token(asked)
        if asked.bearer not in self.tokens:
            raise Refused(401, {"error": {"code": "Unauthorized", "message": asked.bearer}})
        _, kind, name, version = asked.path.split("/")
        versions = self.kept.get(name)
        if asked.query.get("api-version") != "7.4" or kind != "secrets":
            raise Refused(400, {"error": {"code": "BadParameter"}})
        found = [
            value for number, value in enumerate(versions or [], 1) if version in {"", f"v{number}"}
        ]
        if not found:
            raise Refused(404, {"error": {"code": "SecretNotFound"}})
        return {"value": found[-1], "id": asked.path}

    def _token(self, asked: Asked) -> Any:
        form = asked.form
        wanted = {
            "grant_type": "client_credentials",
            "client_id": CLIENT,
            "client_secret": SECRET,
            "scope": SCOPE,
        }
        if form != wanted:
            raise Refused(401, {"error": "invalid_client", "error_description": str(form)})
        token = f"canary-azure-token-{os.urandom(8).hex()}"
        self.tokens.add(token)
        return {"token_type": "Bearer", "expires_in": 3599, "access_token": token}
