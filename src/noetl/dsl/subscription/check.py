"""Whole-document rules of a Subscription: what one key says about another."""

from __future__ import annotations

import re
from collections.abc import Mapping
from typing import TYPE_CHECKING

from noetl.dsl.metadata import is_path
from noetl.dsl.shape.reader import value_at
from noetl.dsl.subscription.sections import POOL_PATTERN, SYSTEM
from noetl.dsl.subscription.verify import ApiKeyVerify, JwtVerify, SignedVerify, placeholders
from noetl.dsl.yaml import Place

if TYPE_CHECKING:
    from noetl.dsl.shape import Model
    from noetl.dsl.shape.reader import Reader
    from noetl.dsl.subscription.document import Directive, Subscription, SubscriptionSpec
    from noetl.dsl.subscription.ingress import Ingress
    from noetl.dsl.subscription.spool import Downstream, Spool

CONNECTION = ("auth", "url", "user", "password", "token", "endpoint", "brokers")
SOURCE_FIELDS = {
    "nats": ("stream", "consumer"),
    "kafka": ("topic", "group", "brokers"),
    "pubsub": ("subscription",),
    "webhook": (),
}
PULL_ONLY = frozenset({"nats", "kafka"})
TRIGGERS = {"nats": "nats-jetstream", "kafka": "kafka", "pubsub": "pubsub"}
NEVER_DIRECTIVES = frozenset({
    "authorization", "proxy-authorization", "cookie", "set-cookie", "x-api-key", "x-noetl-session",
})  # fmt: skip
_POOL = re.compile(POOL_PATTERN[1:-1])
_LISTED = frozenset({"dispatch.playbook", "dispatch.execution_pool"})
_SCHEMES = {"s3://": "s3", "gs://": "gcs"}
_TARGETS = {
    "http": (re.compile(r"https?://\S+"), "http://host/path"),
    "tcp": (re.compile(r"(tcp://)?(\[[0-9A-Fa-f:.]+\]|[^\s:/\[\]]+):[0-9]{1,5}"), "host:port"),
    "nats": (re.compile(r"\S+"), "nats://host:4222"),
}


def check_subscription(model: Subscription, reader: Reader) -> None:
    """Check what only the whole document can tell."""
    spec = model.spec
    if spec.place.container is not None:
        _Subscription(spec, reader).check()


class _Subscription:
    """The rules over one Subscription."""

    def __init__(self, spec: SubscriptionSpec, reader: Reader) -> None:
        self._spec = spec
        self._reader = reader

    def check(self) -> None:
        self._limits()
        self._dispatch()
        self._headers()
        self._scaling()
        if self._mode_fits():
            self._activation()
            self._cadence()
            self._source_fields()
            self._ingress()
            if self._spec.spool is not None:
                self._spool(self._spec.spool)

    # ------------------------------------------------------------------ places

    def _at(self, model: Model, name: str) -> Place:
        return Place(value_at(model.place), name, model.place)

    def _given(self, model: Model, name: str) -> bool:
        value = value_at(model.place)
        return isinstance(value, Mapping) and value.get(name) is not None

    def _wrong(self, code: str, message: str, model: Model, name: str, hint: str = "") -> None:
        """Report a value that another key does not allow."""
        self._reader.report(code, message, self._at(model, name), hint=hint)

    def _superfluous(
        self, code: str, message: str, model: Model, name: str, hint: str = "remove it"
    ) -> None:
        """Report a key that another key does not allow."""
        self._reader.report(code, message, self._at(model, name), on_key=True, hint=hint)

    def _lacking(self, code: str, message: str, model: Model, hint: str) -> None:
        """Report a key that another key asks for."""
        self._reader.report(code, message, model.place, into=True, hint=hint)

    # ------------------------------------------------------------------ the source

    def _mode_fits(self) -> bool:
        """Whether source and mode are right and fit together; the other rules need both."""
        source, mode = self._spec.source, self._spec.mode
        if not source or not mode:
            return False
        wanted = "push" if source == "webhook" else "pull" if source in PULL_ONLY else mode
        if wanted == mode:
            return True
        message = f"`{source}` is {wanted} only"
        self._wrong("mode_invalid", message, self._spec, "mode", f"write `mode: {wanted}`")
        return False

    def _activation(self) -> None:
        if self._spec.mode == "push" and self._given(self._spec, "activation"):
            message = "`activation` belongs to `mode: pull`"
            self._superfluous("activation_invalid", message, self._spec, "activation")

    def _cadence(self) -> None:
        spec = self._spec
        given = self._given(spec, "cadence")
        if spec.activation == "scheduled" and spec.mode == "pull":
            if not given:
                message = "a scheduled subscription needs `cadence`"
                hint = "add `cadence`: five fields, or an interval such as 30s"
                self._lacking("cadence_invalid", message, spec, hint)
        elif given:
            message = "`cadence` belongs to `activation: scheduled`"
            self._superfluous("cadence_invalid", message, spec, "cadence")
        unread = given and spec.cadence is None
        if spec.timezone and not unread and not (spec.cadence and spec.cadence.cron):
            message = "`timezone` belongs to a `cadence` of five fields"
            self._superfluous("timezone_invalid", message, spec, "timezone")

    def _source_fields(self) -> None:
        spec = self._spec
        own = SOURCE_FIELDS[spec.source]
        for name in (name for names in SOURCE_FIELDS.values() for name in names):
            if name not in own and self._given(spec, name):
                message = f"`{name}` is not a key of source `{spec.source}`"
                self._superfluous("DSL030", message, spec, name)
        if spec.mode != "pull":
            return
        for name in own:
            from_auth = name == "brokers" and self._given(spec, "auth")
            if not from_auth and not self._given(spec, name):
                message = f"source `{spec.source}` needs `{name}`"
                self._lacking("source_field_missing", message, spec, f"add `{name}`")
        if not any(self._given(spec, name) for name in CONNECTION):
            message = f"source `{spec.source}` needs `auth` or connection fields"
            hint = "add `auth` with the name of a credential; there is no default connection"
            self._lacking("connection_missing", message, spec, hint)

    # ------------------------------------------------------------------ runtime, dispatch, limits

    def _limits(self) -> None:
        runtime, limits = self._spec.runtime, self._spec.limits
        both = runtime.max_in_flight and limits.max_in_flight
        if both and runtime.max_in_flight != limits.max_in_flight:
            message = "`max_in_flight` differs from `runtime.max_in_flight`"
            self._wrong("limits_invalid", message, limits, "max_in_flight", "keep one of them")
        insecure = runtime.server_url and not runtime.server_url.startswith("https://")
        if runtime.target == "cloud-run" and insecure:
            message = "`cloud-run` needs an https address"
            self._wrong("server_url_invalid", message, runtime, "server_url", "write https://...")

    def _dispatch(self) -> None:
        dispatch = self._spec.dispatch
        if _is_reserved(dispatch.playbook):
            message = "playbooks under `system/` belong to the platform"
            hint = "name a playbook of your own"
            self._wrong("reserved_namespace", message, dispatch, "playbook", hint)
        if dispatch.ack_after == "completed" and self._spec.mode == "push":
            message = "a push is answered when it is accepted"
            hint = "write `ack_after: accepted`"
            self._wrong("dispatch_invalid", message, dispatch, "ack_after", hint)

    def _scaling(self) -> None:
        spec = self._spec
        keda = spec.scaling.keda if spec.scaling else None
        if keda is None:
            return
        if keda.min > keda.max:
            message = f"`min` {keda.min} is more than `max` {keda.max}"
            self._wrong("scaling_invalid", message, keda, "min")
        if keda.max > 1 and spec.spool is not None and spec.spool.ordering == "global":
            message = "`ordering: global` allows one listener"
            self._wrong("scaling_invalid", message, keda, "max", "write `max: 1`")
        fitting = TRIGGERS.get(spec.source)
        if spec.source and keda.trigger and keda.trigger != fitting:
            message = f"`{keda.trigger}` does not measure source `{spec.source}`"
            hint = f"write `trigger: {fitting}`" if fitting else "remove `keda`"
            self._wrong("scaling_invalid", message, keda, "trigger", hint)

    # ------------------------------------------------------------------ headers

    def _headers(self) -> None:
        headers = self._spec.headers
        if headers.directives and not headers.normalize:
            message = "directives need headers; `normalize` is false"
            self._superfluous("directive_invalid", message, headers, "directives")
        for directive in headers.directives:
            self._directive(directive)

    def _directive(self, directive: Directive) -> None:
        verify = self._spec.ingress.verify if self._spec.ingress else None
        if directive.header in NEVER_DIRECTIVES or (
            verify and directive.header == verify.signed_by
        ):
            message = f"`{directive.header}` carries a credential and steers nothing"
            self._wrong("directive_invalid", message, directive, "header", "use another header")
        if directive.controls in _LISTED and directive.allowed is None:
            message = f"`{directive.controls}` needs `allowed`"
            hint = "list in `allowed` the values that are followed"
            self._lacking("directive_invalid", message, directive, hint)
        if directive.controls == "priority" and directive.map is None:
            hint = "write in `map` the pool of each value"
            self._lacking("directive_invalid", "`priority` needs `map`", directive, hint)
        if directive.map is not None and directive.controls not in {"priority", ""}:
            message = f"`map` belongs to `priority`, not to `{directive.controls}`"
            self._superfluous("directive_invalid", message, directive, "map")
        for name in ("allowed", "map"):
            if getattr(directive, name) is not None and not getattr(directive, name):
                self._wrong("directive_invalid", f"`{name}` is empty", directive, name)
        self._allowed(directive)

    def _allowed(self, directive: Directive) -> None:
        place = self._at(directive, "allowed")
        values = value_at(place)
        for index, value in enumerate(directive.allowed or ()):
            where = Place(values, index, place)
            if directive.controls == "dispatch.playbook":
                right, what = is_path(value) and not _is_reserved(value), "a playbook of your own"
            elif directive.controls == "dispatch.execution_pool":
                right, what = bool(_POOL.fullmatch(value)) and value != SYSTEM, "a pool of your own"
            else:
                right, what = bool(value), "a value"
            if not right:
                self._reader.report("directive_invalid", f"`{value[:80]}` is not {what}", where)

    # ------------------------------------------------------------------ ingress

    def _ingress(self) -> None:
        spec = self._spec
        given = self._given(spec, "ingress")
        if spec.mode == "push" and not given:
            hint = "add `ingress` with `gateway_path` and `verify`"
            self._lacking("ingress_invalid", "`mode: push` needs `ingress`", spec, hint)
        elif spec.mode == "pull" and given:
            message = "`ingress` belongs to `mode: push`"
            self._superfluous("ingress_invalid", message, spec, "ingress")
        elif spec.ingress is not None:
            self._verify(spec.ingress)

    def _verify(self, ingress: Ingress) -> None:
        match ingress.verify:
            case SignedVerify() as verify:
                for name in ("timestamp", "id"):
                    if name in placeholders(verify.template or "") and not self._given(
                        verify, name
                    ):
                        message = f"`{{{name}}}` needs `{name}`"
                        self._wrong("ingress_invalid", message, verify, "template", f"add `{name}`")
            case ApiKeyVerify(query=str(), allow_query=False) as verify:
                message = "a key in the query ends up in logs"
                hint = "use `header`, or add `allow_query: true`"
                self._superfluous("ingress_invalid", message, verify, "query", hint)
            case JwtVerify(key_=()) as verify if "hs256" in verify.algorithms:
                message = "HS256 needs `key`"
                hint = "add `key` with the name of a credential"
                self._wrong("ingress_invalid", message, verify, "algorithms", hint)

    # ------------------------------------------------------------------ spool

    def _spool(self, spool: Spool) -> None:
        if spool.auth and spool.credential and spool.auth != spool.credential:
            message = "`credential` differs from `auth`"
            self._wrong("spool_invalid", message, spool, "credential", "keep one of them")
        if spool.ordering == "global" and spool.drain.on_recovery == "interleave":
            message = "`interleave` breaks `ordering: global`"
            hint = "write `on_recovery: ordered_then_live`"
            self._wrong("spool_invalid", message, spool.drain, "on_recovery", hint)
        unset = "off" if self._spec.mode == "pull" else "buffer_and_ack"
        if (unset if spool.mode is None else spool.mode) not in {"off", ""}:
            self._backend(spool)
        self._downstream(spool.circuit.downstream)

    def _backend(self, spool: Spool) -> None:
        if not spool.backend:
            return
        needed, other = ("bucket", "path") if spool.backend != "local_disk" else ("path", "bucket")
        if not self._given(spool, needed):
            message = f"backend `{spool.backend}` needs `{needed}`"
            self._lacking("spool_invalid", message, spool, f"add `{needed}`")
        if self._given(spool, other):
            message = f"`{other}` is not a key of backend `{spool.backend}`"
            self._superfluous("spool_invalid", message, spool, other)
        if spool.path is not None and ".." in spool.path.split("/"):
            self._wrong("spool_invalid", "the path leads out with `..`", spool, "path")
        scheme = _SCHEMES.get((spool.bucket or "")[:5])
        if scheme is not None and scheme != spool.backend and needed == "bucket":
            message = f"the bucket is not one of backend `{spool.backend}`"
            self._wrong("spool_invalid", message, spool, "bucket")

    def _downstream(self, items: tuple[Downstream, ...]) -> None:
        seen: set[str] = set()
        for item in items:
            if item.name and item.name in seen:
                message = f"another downstream is named `{item.name}`"
                self._wrong("spool_invalid", message, item, "name")
            seen.add(item.name)
            if item.probe in _TARGETS:
                self._target(item)
            elif item.target and not (self._given(item, "probe") or self._given(item, "type")):
                message = "`target` needs `probe`"
                self._lacking("spool_invalid", message, item, "add `probe`: http, tcp or nats")

    def _target(self, item: Downstream) -> None:
        pattern, example = _TARGETS[item.probe]
        if not self._given(item, "target"):
            message = f"probe `{item.probe}` needs `target`"
            self._lacking("spool_invalid", message, item, f"add `target`, such as {example}")
        elif item.target and not pattern.fullmatch(item.target):
            message = f"`{item.target[:80]}` cannot be probed with `{item.probe}`"
            self._wrong("spool_invalid", message, item, "target", f"write {example}")


def _is_reserved(path: str) -> bool:
    return path.partition("/")[0].lower() == SYSTEM
