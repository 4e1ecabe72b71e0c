"""An OAuth 2 token endpoint that knows one client and one person."""

from __future__ import annotations

import base64
import os
from typing import Any

from tests.fakes.web import Asked, Refused, Web

CLIENT = "client of/a+test"
SECRET = "canary-oauth-secret:1984/+"  # noqa: S105 - of a stand-in
PERSON = ("ada", "canary-oauth-password-1815")


class OAuth(Web):
    """Grants: client_credentials, refresh_token (each used once), password."""

    def __init__(self) -> None:
        self.refresh = {"canary-refresh-first"}
        self.expires_in: Any = 3600
        super().__init__()

    def answer(self, asked: Asked) -> Any:
        is_json = asked.headers.get("content-type", "").startswith("application/json")
        given = asked.json if is_json else asked.form
        if asked.method != "POST" or asked.path != "/oauth/token":
            raise Refused(404)
        self._check_client(asked, given)
        grant = given.get("grant_type")
        if grant == "refresh_token":
            if given.get("refresh_token") not in self.refresh:
                raise Refused(400, {"error": "invalid_grant"})
            self.refresh.remove(given["refresh_token"])
        elif grant == "password":
            if (given.get("username"), given.get("password")) != PERSON:
                raise Refused(400, {"error": "invalid_grant", "error_description": str(given)})
        elif grant != "client_credentials":
            raise Refused(400, {"error": "unsupported_grant_type"})
        new = f"canary-refresh-{os.urandom(6).hex()}"
        self.refresh.add(new)
        return {
            "access_token": f"canary-access-{os.urandom(6).hex()}",
            "token_type": "bearer",
            "expires_in": self.expires_in,
            "refresh_token": new,
            "scope": given.get("scope", ""),
        }

    @staticmethod
    def _check_client(asked: Asked, given: dict[str, str]) -> None:
        pair = "client%20of%2Fa%2Btest:canary-oauth-secret%3A1984%2F%2B"
        basic = f"Basic {base64.b64encode(pair.encode()).decode()}"
        by_body = (given.get("client_id"), given.get("client_secret")) == (CLIENT, SECRET)
        if not by_body and asked.headers.get("authorization") != basic:
            raise Refused(401, {"error": "invalid_client", "error_description": str(given)})
