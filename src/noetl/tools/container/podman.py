"""Jobs in podman, for machines without a cluster; found again by their names."""

from __future__ import annotations

import asyncio
import os
import shutil
from datetime import datetime
from typing import TYPE_CHECKING, Any, Final

import msgspec

from noetl.clock import rfc3339
from noetl.tools.base import ToolError
from noetl.tools.container import names
from noetl.tools.container.job import FOLDER, INPUT_KEY, SECRETS_KEY, USER
from noetl.tools.container.process import refuse_secrets
from noetl.tools.container.quantity import amount
from noetl.tools.container.ticket import MOST_LOG_BYTES, MOST_MESSAGE_BYTES, End, output_of
from noetl.tools.container.volumes import mounts_of, volumes_of

if TYPE_CHECKING:
    from collections.abc import Mapping
    from pathlib import Path

    from noetl.clock import Clock
    from noetl.tools.container.job import Order
    from noetl.tools.container.ticket import Secrets, Ticket

CALL_S: Final = 60.0
PULL_S: Final = 900.0
MOST_PROCESSES: Final = 512
_LAST_WORD: Final = "/dev/termination-log"
_REFUSED: Final = 125
_PULL: Final = {"Always": "always", "IfNotPresent": "missing", "Never": "never"}
_NO_IMAGE: Final = (
    "initializing source", "unable to pull", "no such image", "image not known", "manifest unknown",
    "short-name", "invalid reference format", "repository name must be lowercase",
)  # fmt: skip


class Podman:
    """Runs containers with the program `podman`."""

    name = "podman"

    def __init__(self, home: Path, environ: Mapping[str, str], clock: Clock) -> None:
        self._home = home
        self._environ = dict(environ)
        self._clock = clock

    @staticmethod
    def program() -> str | None:
        """Where podman is, if it is here."""
        return shutil.which("podman")

    @staticmethod
    def check(order: Order) -> None:
        """Refuse what podman cannot give."""
        config = order.config
        mounts_of(config.volume_mounts, config.volumes)
        for place, made in enumerate(volumes_of(config.volumes)):
            if "emptyDir" not in made:
                message = f"/volumes/{place}: podman has only `empty_dir`"
                raise ToolError("config", "invalid_config", message)
        refuse_secrets(order)

    async def run(self, ticket: Ticket, order: Order | None) -> tuple[End, bytes]:
        """Run a container, or find it by its name, and wait for its end."""
        found = await self._found(ticket)
        if found is None:
            if order is None:
                return End(state="failed_node_lost", reason="the container is gone"), b""
            refusal = await self._started(ticket, order)
            if refusal is not None:
                return refusal, b""
        is_late = not await self._waited(ticket)
        if is_late:
            await self.stop(ticket)
        found = await self._found(ticket)
        log = await self._log(ticket)
        if found is None:
            return End(state="failed_node_lost", reason="the container was removed"), log
        return self._end(ticket, found["State"], is_late=is_late), log

    async def secrets(self, ticket: Ticket) -> Secrets:
        """The texts that lie beside the files of a container."""
        kept = self._home / ticket.name / SECRETS_KEY
        if not await asyncio.to_thread(kept.is_file):
            return ()
        return msgspec.json.decode(await asyncio.to_thread(kept.read_bytes), type=tuple[str, ...])

    async def stop(self, ticket: Ticket) -> None:
        """End the container: it is asked to, and killed after five seconds."""
        await self._call("stop", "--time", "5", "--ignore", ticket.name)

    async def clear(self, ticket: Ticket) -> None:
        """Remove the container and its files."""
        await self._call("rm", "--force", "--ignore", "--time", "0", ticket.name)
        await asyncio.to_thread(shutil.rmtree, self._home / ticket.name, ignore_errors=True)

    # ------------------------------------------------------------------ one container

    async def _found(self, ticket: Ticket) -> dict[str, Any] | None:
        code, said = await self._call("container", "inspect", ticket.name)
        if code != 0:
            return None
        found: dict[str, Any] = msgspec.json.decode(said)[0]
        if (found["Config"].get("Labels") or {}).get(names.KEY) != ticket.key:
            message = f"there is another container {ticket.name}"
            raise ToolError("config", "job_name_taken", message)
        return found

    async def _started(self, ticket: Ticket, order: Order) -> End | None:
        """Start the container; how it ended when it did not even start."""
        argv, extra = await asyncio.to_thread(self._argv, ticket, order)
        code, said = await self._call(*argv, within_s=PULL_S, extra=extra)
        if code == 0:
            return None
        reason = said.decode("utf-8", "replace").strip()[-1000:]
        now = rfc3339(self._clock.now())
        if code == _REFUSED and any(word in reason.lower() for word in _NO_IMAGE):
            return End(state="failed_image_pull", reason=reason, completed_at=now)
        return End(state="failed", exit_code=code, reason=reason, completed_at=now)

    def _argv(self, ticket: Ticket, order: Order) -> tuple[list[str], dict[str, str]]:
        config = order.config
        folder = self._filled(ticket, order)
        marks = names.labels(ticket.execution_id, ticket.step, ticket.command_id)
        memory = round(amount(order.limits["memory"], "/resources/limits/memory"))
        cpus = amount(order.limits["cpu"], "/resources/limits/cpu")
        argv = [
            "run", "--detach", "--name", ticket.name, "--user", f"{USER}:{USER}",
            "--cap-drop", "ALL", "--security-opt", "no-new-privileges",
            "--pids-limit", str(MOST_PROCESSES), "--memory", f"{memory}b", "--cpus", f"{cpus:g}",
            "--pull", _PULL.get(config.image_pull_policy or "", "missing"),
            "--env-file", str(folder / "env"), "--volume", f"{folder / 'last'}:{_LAST_WORD}",
        ]  # fmt: skip
        for key, value in {**marks, names.KEY: ticket.key}.items():
            argv += ["--label", f"{key}={value}"]
        for name in (INPUT_KEY, *order.files):
            argv += ["--volume", f"{folder / 'files' / name}:{FOLDER}/{name}:ro"]
        for mount in config.volume_mounts:
            argv += ["--tmpfs", str(mount["mount_path"])]
        given = order.own_env | {one.name: one.value for one in order.env}
        extra = {name: value for name, value in given.items() if "\n" in value}
        for name in extra:  # a file of variables has one line for each
            argv += ["--env", name]
        entry, words = order.words
        if entry:
            argv += ["--entrypoint", msgspec.json.encode(entry).decode()]
        return [*argv, config.image, *words], extra

    def _filled(self, ticket: Ticket, order: Order) -> Path:
        """The files of a container; its own user may read them and write its last word."""
        folder = self._home / ticket.name
        shutil.rmtree(folder, ignore_errors=True)
        (folder / "files").mkdir(parents=True, mode=0o755)
        folder.chmod(0o700)
        for name, data in {INPUT_KEY: order.input, **order.files}.items():
            file = folder / "files" / name
            file.write_bytes(data)
            file.chmod(0o444)
        last = folder / "last"
        last.touch()
        last.chmod(0o666)
        given = order.own_env | {one.name: one.value for one in order.env}
        lines = [f"{name}={value}" for name, value in given.items() if "\n" not in value]
        env = "\n".join([*lines, f"NOETL_TERMINATION_LOG={_LAST_WORD}", ""])
        for name, data in {"env": env.encode(), SECRETS_KEY: order.secrets_json}.items():
            handle = os.open(folder / name, os.O_WRONLY | os.O_CREAT, 0o600)
            with os.fdopen(handle, "wb") as own:
                own.write(data)
        return folder

    async def _waited(self, ticket: Ticket) -> bool:
        """Wait for the end; false when the container's time is over before."""
        began = datetime.fromisoformat(ticket.began_at)
        left = ticket.timeout_s - (self._clock.now() - began).total_seconds()
        try:
            await self._call("wait", ticket.name, within_s=max(1.0, left))
        except TimeoutError:
            return False
        return True

    async def _log(self, ticket: Ticket) -> bytes:
        return (await self._call("logs", ticket.name))[1]

    def _end(self, ticket: Ticket, state: Mapping[str, Any], *, is_late: bool) -> End:
        code = int(state.get("ExitCode") or 0)
        last = self._home / ticket.name / "last"
        said = last.read_bytes()[: MOST_MESSAGE_BYTES + 1] if last.is_file() else None
        told: dict[str, Any] = {
            "exit_code": code, "output": output_of(said),
            "completed_at": _moment(state, self._clock),
        }  # fmt: skip
        if is_late:
            reason = f"DeadlineExceeded: over {ticket.timeout_s:g} s"
            return End(state="failed_timeout", reason=reason, **told)
        if state.get("OOMKilled"):
            return End(state="failed_oom", reason="OOMKilled", **told)
        if code == 0:
            return End(state="succeeded", **told)
        return End(state="failed", reason=state.get("Error") or f"exit code {code}", **told)

    async def _call(
        self, *words: str, within_s: float = CALL_S, extra: Mapping[str, str] | None = None
    ) -> tuple[int, bytes]:
        """Call podman; its exit code and what it printed, as much as is of use."""
        program = self.program()
        if program is None:
            message = "podman is not installed on this machine"
            raise ToolError("config", "no_container_runtime", message)
        process = await asyncio.create_subprocess_exec(
            program, *words, stdin=asyncio.subprocess.DEVNULL, stdout=asyncio.subprocess.PIPE,
            stderr=asyncio.subprocess.STDOUT, env={**self._environ, **(extra or {})},
        )  # fmt: skip
        found = bytearray()
        try:
            async with asyncio.timeout(within_s):
                while process.stdout is not None and (part := await process.stdout.read(1 << 16)):
                    found += part[: MOST_LOG_BYTES - len(found)]
                code = await process.wait()
        finally:
            if process.returncode is None:
                process.kill()
                await asyncio.shield(process.wait())
        return code, bytes(found)


def _moment(state: Mapping[str, Any], clock: Clock) -> str:
    """When the container ended; podman writes more digits than a time of ours has."""
    text = str(state.get("FinishedAt") or "")
    head, _, rest = text.partition(".")
    digits = rest[: len(rest) - len(rest.lstrip("0123456789"))]
    try:
        ended = datetime.fromisoformat(f"{head}.{digits[:6]:0<6}{rest[len(digits) :]}")
    except ValueError:
        return rfc3339(clock.now())
    return rfc3339(ended if ended.tzinfo is not None else clock.now())
