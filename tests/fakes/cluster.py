"""The part of a Kubernetes API that hands out secrets."""

from __future__ import annotations

import base64
from typing import Any

from tests.fakes.web import Asked, Refused, Web

TOKEN = "canary-k8s-token-2112"  # noqa: S105 - of a stand-in


class Cluster(Web):
    """Secrets by namespace and name; each is a map of bytes."""

    def __init__(self) -> None:
        self.kept: dict[tuple[str, str], dict[str, bytes]] = {}
        super().__init__()

    def answer(self, asked: Asked) -> Any:
        if asked.bearer != TOKEN:
            raise Refused(401, {"kind": "Status", "reason": "Unauthorized", "code": 401})
        parts = asked.path.strip("/").split("/")
        if asked.method != "GET" or parts[:3] != ["api", "v1", "namespaces"]:
            raise Refused(404, {"kind": "Status", "reason": "NotFound", "code": 404})
        found = self.kept.get((parts[3], parts[5]))
        if found is None or parts[4] != "secrets":
            raise Refused(404, {"kind": "Status", "reason": "NotFound", "code": 404})
        data = {key: base64.b64encode(value).decode() for key, value in found.items()}
        return {"kind": "Secret", "metadata": {"name": parts[5]}, "data": data}
