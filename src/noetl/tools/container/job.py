"""The manifest of a job: what the author asked for, inside walls that he cannot take down.

Values of the author lie in a Secret that the job owns and that goes with it: the input, and what
of `env`, `command` and `args` holds something that is known to be secret. So whoever may read jobs
reads no secret, and nobody has to guess whether an input holds one. Beside them lie the secret
texts themselves, so that whoever tells how the job ended can cover them.
"""

from __future__ import annotations

import math
from base64 import b64encode
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any, Final

import msgspec

from noetl.dsl.tasks.process import Resources
from noetl.tools.base import ToolError
from noetl.tools.container import names
from noetl.tools.container.quantity import amount
from noetl.tools.container.volumes import camel, mounts_of, volumes_of

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping

    from noetl.dsl.tasks.process import Container, EnvVar
    from noetl.tools.container.ticket import Ticket

MOST_ENV_INPUT: Final = 32 * 1024
MOST_INPUT: Final = 900 * 1024
"""A Secret has at most one MiB, in base64 and with all that is around it."""
USER: Final = 65_532
INPUT_KEY: Final = "input.json"
SECRETS_KEY: Final = "secrets.json"
"""What a job was given that nobody may see: kept with its files, and not among them."""
FOLDER: Final = "/noetl"
_LIMITS: Final = {"cpu": "1", "memory": "1Gi"}


@dataclass(frozen=True, slots=True, kw_only=True)
class Variable:
    """One variable of the environment: its value, or where Kubernetes keeps it."""

    name: str
    value: str = ""
    secret: tuple[str, str] | None = None
    """Name and key of a Secret of the cluster."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Order:
    """One job that is to run."""

    ticket: Ticket
    config: Container
    input: bytes
    env: tuple[Variable, ...]
    limits: Mapping[str, str]
    files: Mapping[str, bytes] = field(default_factory=dict)
    """More files beside the input, by name: the text of a script."""
    is_secret: Callable[[str], bool] = field(default=lambda _text: False)
    secrets: tuple[str, ...] = ()
    """The secret texts in all that it is given."""

    @property
    def texts(self) -> str:
        """All that the author gives the container, as one text."""
        given = [self.input, *self.files.values()]
        words = [word for part in self.words for word in part]
        return "\n".join(
            [raw.decode("utf-8", "replace") for raw in given]
            + [one.value for one in self.env]
            + words
        )

    @property
    def secrets_json(self) -> bytes:
        """The secret texts as they are kept."""
        return msgspec.json.encode(self.secrets)

    @property
    def words(self) -> tuple[list[str], list[str]]:
        """The entry point and its arguments, as texts."""
        return [*self.config.command], [_text(word) for word in self.config.arguments]

    @property
    def own_env(self) -> dict[str, str]:
        """What every container is told of itself."""
        ticket = self.ticket
        told = {
            "NOETL_EXECUTION_ID": ticket.execution_id,
            "NOETL_STEP": ticket.step,
            "NOETL_IDEMPOTENCY_KEY": ticket.key,
        }
        if len(self.input) <= MOST_ENV_INPUT:
            told["NOETL_INPUT"] = self.input.decode()
        return told


def limits_of(config: Container) -> dict[str, str]:
    """What the container may use at most; never less than it asks for."""
    given = config.resources or Resources()
    asked, most = given.requests or {}, given.limits or {}
    for part, values in (("requests", asked), ("limits", most)):
        for name, value in values.items():
            amount(value, f"/resources/{part}/{name}")
    found = {name: str(value) for name, value in most.items()}
    for name, default in _LIMITS.items():
        wanted = str(asked.get(name, default))
        least = max((default, wanted), key=lambda text: amount(text, "/resources"))
        found.setdefault(name, least)
    return found


def env_of(config: Container) -> tuple[Variable, ...]:
    """The author's variables, from a list or a map."""
    if config.env is None:
        return ()
    if isinstance(config.env, dict):
        return tuple(_variable(name, _text(value), "/env") for name, value in config.env.items())
    return tuple(_listed(one, f"/env/{place}") for place, one in enumerate(config.env))


def _listed(one: EnvVar, where: str) -> Variable:
    if one.value_from is None:
        return _variable(one.name, _text(one.value), where)
    name, key = one.value_from.secret_name, one.value_from.secret_key
    if one.value is not None or not name or not key:
        raise _unfit(f"{where}/value_from", "needs `secret_name` and `secret_key`, and no `value`")
    made = _variable(one.name, "", where)
    return Variable(name=made.name, secret=(name, key))


def _variable(name: object, value: str, where: str) -> Variable:
    if not isinstance(name, str) or not name or "=" in name or "\0" in f"{name}{value}":
        raise _unfit(where, f"{name!r} is no name of a variable")
    if name.startswith("NOETL_"):
        raise _unfit(where, f"`{name}` is told by NoETL itself")
    return Variable(name=name, value=value)


@dataclass(slots=True)
class _Safe:
    """The Secret of a job while its manifest is made."""

    name: str
    is_secret: Callable[[str], bool]
    values: dict[str, str] = field(default_factory=dict)

    def variable(self, name: str, value: str) -> dict[str, Any]:
        if not self.is_secret(value):
            return {"name": name, "value": value}
        self.values[f"env-{name}"] = value
        return self.named(name, f"env-{name}")

    def word(self, text: str) -> tuple[str, dict[str, Any] | None]:
        """A word of the command; a secret one is taken from a variable by Kubernetes."""
        if not self.is_secret(text):
            return text, None
        name = f"NOETL_WORD_{len(self.values)}"
        self.values[name] = text
        return f"$({name})", self.named(name, name)

    def named(self, name: str, key: str) -> dict[str, Any]:
        return {"name": name, "valueFrom": {"secretKeyRef": {"name": self.name, "key": key}}}


def manifests(order: Order) -> tuple[dict[str, Any], dict[str, Any]]:
    """The job and its Secret; whoever creates them says in the Secret which job owns it."""
    ticket, config = order.ticket, order.config
    safe = _Safe(ticket.name, order.is_secret)
    container = _container(order, safe)
    pod: dict[str, Any] = {
        "restartPolicy": config.restart_policy,
        "automountServiceAccountToken": config.service_account is not None,
        "enableServiceLinks": False,
        "securityContext": {
            "runAsNonRoot": True, "runAsUser": USER, "runAsGroup": USER, "fsGroup": USER,
            "seccompProfile": {"type": "RuntimeDefault"},
        },
        "containers": [container],
        "volumes": [
            {"name": "noetl-input", "secret": {
                "secretName": ticket.name,
                "items": [{"key": name, "path": name} for name in (INPUT_KEY, *order.files)],
            }},
            *volumes_of(config.volumes),
        ],
    }  # fmt: skip
    if config.service_account is not None:
        pod["serviceAccountName"] = config.service_account
    if config.node_selector:
        pod["nodeSelector"] = {key: _text(value) for key, value in config.node_selector.items()}
    if config.tolerations:
        pod["tolerations"] = [camel(one) for one in config.tolerations]
    if config.image_pull_secrets:
        pod["imagePullSecrets"] = [{"name": name} for name in config.image_pull_secrets]
    about = metadata(ticket)
    job = {
        "apiVersion": "batch/v1",
        "kind": "Job",
        "metadata": about,
        "spec": {
            "backoffLimit": int(config.backoff_limit),
            "activeDeadlineSeconds": math.ceil(ticket.timeout_s),
            "ttlSecondsAfterFinished": int(config.ttl_seconds_after_finished),
            "template": {
                "metadata": {"labels": about["labels"], "annotations": about["annotations"]},
                "spec": pod,
            },
        },
    }
    words = {name: text.encode() for name, text in safe.values.items()}
    values = {**words, **order.files, INPUT_KEY: order.input}
    if order.secrets:
        values[SECRETS_KEY] = order.secrets_json
    data = {key: b64encode(value).decode() for key, value in values.items()}
    secret = {"apiVersion": "v1", "kind": "Secret", "metadata": metadata(ticket), "data": data}
    return job, secret


def metadata(ticket: Ticket) -> dict[str, Any]:
    """The name and the marks of a job."""
    about = (ticket.execution_id, ticket.step, ticket.command_id)
    return {
        "name": ticket.name,
        "namespace": ticket.namespace,
        "labels": names.labels(*about),
        "annotations": names.notes(*about, ticket.key),
    }


def _container(order: Order, safe: _Safe) -> dict[str, Any]:
    config, env = order.config, []
    words: list[list[str]] = []
    for given in order.words:
        made = [safe.word(text) for text in given]
        words.append([text for text, _ in made])
        env += [variable for _, variable in made if variable is not None]
    for name, value in order.own_env.items():
        is_input = name == "NOETL_INPUT"
        env.append(safe.named(name, INPUT_KEY) if is_input else {"name": name, "value": value})
    env.append({"name": "NOETL_TERMINATION_LOG", "value": "/dev/termination-log"})
    for one in order.env:
        if one.secret is None:
            env.append(safe.variable(one.name, one.value))
        else:
            where = {"name": one.secret[0], "key": one.secret[1]}
            env.append({"name": one.name, "valueFrom": {"secretKeyRef": where}})
    made_of: dict[str, Any] = {
        "name": "main",
        "image": config.image,
        "env": env,
        "resources": {"limits": dict(order.limits), **_requests(config)},
        "securityContext": {
            "allowPrivilegeEscalation": False, "privileged": False,
            "capabilities": {"drop": ["ALL"]},
        },
        "volumeMounts": [
            {"name": "noetl-input", "mountPath": FOLDER, "readOnly": True},
            *mounts_of(config.volume_mounts, config.volumes),
        ],
    }  # fmt: skip
    if words[0]:
        made_of["command"] = words[0]
    if words[1]:
        made_of["args"] = words[1]
    if config.image_pull_policy is not None:
        made_of["imagePullPolicy"] = config.image_pull_policy
    return made_of


def _requests(config: Container) -> dict[str, Any]:
    asked = config.resources and config.resources.requests
    return {"requests": {name: str(value) for name, value in asked.items()}} if asked else {}


def _text(value: object) -> str:
    if value is None:
        return ""
    return str(value).lower() if isinstance(value, bool) else str(value)


def _unfit(where: str, message: str) -> ToolError:
    return ToolError("config", "invalid_config", f"{where}: {message}")
