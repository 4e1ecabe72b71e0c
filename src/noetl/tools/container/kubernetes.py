"""The API of a Kubernetes cluster, as far as jobs need it: plain maps over its client library."""

from __future__ import annotations

import asyncio
from base64 import b64decode
from contextlib import suppress
from pathlib import Path
from typing import TYPE_CHECKING, Any, Final, Self
from urllib.parse import quote

import msgspec

from noetl.errors import NoetlError
from noetl.tools.base import ToolError, bounded, missing_extra
from noetl.tools.container.names import REPORTED, SELECTOR, is_ours

if TYPE_CHECKING:
    from collections.abc import AsyncIterator, Mapping

CALL_S: Final = 30.0
GONE_S: Final = 0.5
_IN_CLUSTER: Final = Path("/var/run/secrets/kubernetes.io/serviceaccount/token")
_TAKEN, _MISSING, _EXPIRED = 409, 404, 410
_OK: Final = range(200, 300)
_BUSY: Final = 500
_MERGE: Final = "application/merge-patch+json"


class ApiRefused(NoetlError):
    """The cluster did not do what it was asked."""

    code = "kubernetes_refused"

    def __init__(self, status: int, reason: str, message: str) -> None:
        super().__init__(bounded(message or reason or f"status {status}", 1000))
        self.http_status = status
        self.reason = reason

    @property
    def is_passing(self) -> bool:
        """Whether the same call may be answered later."""
        return self.http_status >= _BUSY or self.http_status in {408, 425, 429}

    def as_tool_error(self) -> ToolError:
        """The same as an error of a task."""
        status = self.http_status
        if self.is_passing:
            kind = "rate_limit" if status == 429 else "server_error"  # noqa: PLR2004 - its own meaning
            return ToolError(kind, "kubernetes_busy", str(self), status_code=status)
        if status in {401, 403}:
            return ToolError("auth", "kubernetes_forbidden", str(self), status_code=status)
        return ToolError("config", "kubernetes_refused", str(self), status_code=status)


def is_in_cluster() -> bool:
    """Whether this process runs in a pod that may ask its cluster."""
    return _IN_CLUSTER.is_file()


class Cluster:
    """Calls of one cluster."""

    def __init__(self, api: Any) -> None:  # noqa: ANN401 - an ApiClient of the library
        self._api = api

    @classmethod
    async def open(cls) -> Self:
        """The cluster that this process runs in, else that of the person's kubeconfig."""
        library = _library()
        configuration = library.client.Configuration()
        try:
            if is_in_cluster():
                library.config.load_incluster_config(client_configuration=configuration)
            else:
                await library.config.load_kube_config(client_configuration=configuration)
        except library.config.ConfigException as fault:
            message = f"there is no way to a Kubernetes cluster: {fault}"
            raise ToolError("config", "no_cluster", message) from None
        return cls(library.client.ApiClient(configuration))

    @classmethod
    def at(cls, url: str) -> Self:
        """A cluster at an address that asks for no token."""
        library = _library()
        return cls(library.client.ApiClient(library.client.Configuration(host=url)))

    async def close(self) -> None:
        """Close every connection."""
        await self._api.close()

    # ------------------------------------------------------------------ jobs

    async def create(self, job: Mapping[str, Any], secret: Mapping[str, Any]) -> dict[str, Any]:
        """Create a job and its Secret; a job of an earlier attempt is taken as it is."""
        found = await self._created(job)
        owner = {
            "apiVersion": "batch/v1", "kind": "Job", "name": found["metadata"]["name"],
            "uid": found["metadata"]["uid"], "blockOwnerDeletion": True,
        }  # fmt: skip
        about = {**secret["metadata"], "ownerReferences": [owner]}
        path = f"/api/v1/namespaces/{quote(about['namespace'])}/secrets"
        try:
            await self.call("POST", path, {**secret, "metadata": about})
        except ApiRefused as fault:
            if fault.http_status != _TAKEN:
                raise
        return found

    async def _created(self, job: Mapping[str, Any]) -> dict[str, Any]:
        about = job["metadata"]
        while True:
            try:
                return await self.call("POST", _jobs(about["namespace"]), job)
            except ApiRefused as fault:
                if fault.http_status != _TAKEN:
                    raise
            found = await self.job(about["namespace"], about["name"])
            if found is None:
                continue
            if not is_ours(found["metadata"], about):
                message = f"there is another job {about['name']} in {about['namespace']}"
                raise ToolError("config", "job_name_taken", message)
            if "deletionTimestamp" not in found["metadata"]:
                return found
            await asyncio.sleep(GONE_S)  # an earlier attempt was stopped, and its job is going

    async def job(self, namespace: str, name: str) -> dict[str, Any] | None:
        """A job by its name."""
        try:
            return await self.call("GET", f"{_jobs(namespace)}/{quote(name)}")
        except ApiRefused as fault:
            if fault.http_status == _MISSING:
                return None
            raise

    async def values(self, namespace: str, name: str) -> dict[str, bytes]:
        """What lies in a Secret, by its keys."""
        path = f"{_path('secrets', namespace)}/{quote(name)}"
        found = (await self.call("GET", path)).get("data") or {}
        return {key: b64decode(value) for key, value in found.items()}

    async def mark(self, namespace: str, name: str, state: str) -> None:
        """Note on a job what the server was told of it; one that is gone needs no note."""
        body = {"metadata": {"annotations": {REPORTED: state}}}
        path = f"{_jobs(namespace)}/{quote(name)}"
        try:
            await self.call("PATCH", path, body, content_type=_MERGE)
        except ApiRefused as fault:
            if fault.http_status != _MISSING:
                raise

    async def delete(self, namespace: str, name: str, uid: str | None = None) -> None:
        """Delete a job; it is gone when its pods are."""
        body: dict[str, Any] = {"propagationPolicy": "Foreground"}
        if uid is not None:
            body["preconditions"] = {"uid": uid}
        try:
            await self.call("DELETE", f"{_jobs(namespace)}/{quote(name)}", body)
        except ApiRefused as fault:
            if fault.http_status not in {_MISSING, _TAKEN}:
                raise

    async def stop(self, namespace: str, name: str, uid: str | None = None) -> None:
        """Delete a job that nobody waits for any more, and say so on it first."""
        await self.mark(namespace, name, "cancelled")
        await self.delete(namespace, name, uid)

    # ------------------------------------------------------------------ what is there

    async def listed(self, kind: str, namespace: str) -> tuple[list[dict[str, Any]], str]:
        """Every job (`jobs`) or pod (`pods`) of ours, and the version of that list."""
        found = await self.call("GET", _path(kind, namespace), query={"labelSelector": SELECTOR})
        return found.get("items") or [], str((found.get("metadata") or {}).get("resourceVersion"))

    async def pods_of(self, namespace: str, job: str) -> list[dict[str, Any]]:
        """The pods of one job."""
        query = {"labelSelector": f"{SELECTOR},job-name={job}"}
        found = await self.call("GET", _path("pods", namespace), query=query)
        return found.get("items") or []

    async def watch(
        self, kind: str, namespace: str, version: str, within_s: float
    ) -> AsyncIterator[tuple[str, dict[str, Any]]]:
        """Every change since a version, until the time is over; `ApiRefused` 410: list again."""
        query = {
            "labelSelector": SELECTOR, "watch": "1", "resourceVersion": version,
            "allowWatchBookmarks": "true", "timeoutSeconds": str(max(1, round(within_s))),
        }  # fmt: skip
        answer = await self._asked("GET", _path(kind, namespace), None, query, within_s + CALL_S)
        async with answer:
            await _fit(answer)
            async for line in answer.content:
                if not line.strip():
                    continue
                told = msgspec.json.decode(line)
                if told["type"] == "ERROR":
                    status = told["object"]
                    code = int(status.get("code") or _EXPIRED)
                    raise ApiRefused(code, str(status.get("reason")), str(status.get("message")))
                yield told["type"], told["object"]

    async def log(self, namespace: str, pod: str, most_bytes: int) -> bytes:
        """What the container of a pod printed, on both streams; none when it never ran."""
        path = f"{_path('pods', namespace)}/{quote(pod)}/log"
        answer = await self._asked("GET", path, None, {"limitBytes": str(most_bytes)}, CALL_S)
        async with answer:
            if answer.status in {400, _MISSING}:
                return b""
            await _fit(answer)
            found = bytearray()
            async for part in answer.content.iter_chunked(1 << 16):
                found += part
                if len(found) >= most_bytes:
                    break
            return bytes(found[:most_bytes])

    # ------------------------------------------------------------------ one call

    async def call(  # noqa: PLR0913 - what a call is made of
        self,
        method: str,
        path: str,
        body: Mapping[str, Any] | None = None,
        *,
        query: Mapping[str, str] | None = None,
        content_type: str = "application/json",
        within_s: float = CALL_S,
    ) -> dict[str, Any]:
        """One call and its answer; `ApiRefused` when it says no."""
        answer = await self._asked(method, path, body, query, within_s, content_type)
        async with answer:
            await _fit(answer)
            found: dict[str, Any] = msgspec.json.decode(await answer.read())
            return found

    async def _asked(  # noqa: PLR0913, PLR0917 - as above
        self,
        method: str,
        path: str,
        body: Mapping[str, Any] | None,
        query: Mapping[str, str] | None,
        within_s: float,
        content_type: str = "application/json",
    ) -> Any:  # noqa: ANN401 - an answer of the library underneath
        headers = {"Accept": "application/json", "Content-Type": content_type}
        queries: list[tuple[str, str]] = list((query or {}).items())
        await self._api.update_params_for_auth(headers, queries, ["BearerToken"])
        try:
            return await self._api.rest_client.request(
                method,
                self._api.configuration.host + path,
                query_params=queries,
                headers=headers,
                body=body,
                _preload_content=False,
                _request_timeout=within_s,
            )
        except (
            OSError
        ) as fault:  # refused, reset, unknown name: the library's errors are among them
            raise ConnectionError(f"the Kubernetes API does not answer: {fault}") from None


async def _fit(answer: Any) -> None:  # noqa: ANN401 - as above
    if answer.status in _OK:
        return
    told: dict[str, Any] = {}
    with suppress(msgspec.DecodeError):
        told = msgspec.json.decode(await answer.read(), type=dict[str, Any])
    raise ApiRefused(answer.status, str(told.get("reason") or ""), str(told.get("message") or ""))


def _library() -> Any:  # noqa: ANN401 - a module
    try:
        import kubernetes_asyncio  # noqa: PLC0415 - an extra
        import kubernetes_asyncio.client  # noqa: PLC0415 - as above
        import kubernetes_asyncio.config  # noqa: PLC0415 - as above
    except ImportError:
        raise missing_extra("container", "kubernetes") from None
    return kubernetes_asyncio


def _jobs(namespace: str) -> str:
    return _path("jobs", namespace)


def _path(kind: str, namespace: str) -> str:
    group = "/apis/batch/v1" if kind == "jobs" else "/api/v1"
    return f"{group}/namespaces/{quote(namespace)}/{kind}"
