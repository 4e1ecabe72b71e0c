"""Kinds that call others: services, brokers, playbooks, and the waiting for them."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, ClassVar, Final

from noetl.dsl.shape import (
    ByType,
    Constraint,
    Definitions,
    ExactlyOne,
    Flag,
    JsonSchema,
    ListOf,
    Model,
    Name,
    NotBoth,
    Number,
    Of,
    Text,
    Written,
    choice,
    key,
    model,
    whole,
)
from noetl.dsl.shape.reader import WORKER
from noetl.dsl.shape.units import Condition, Duration, Size
from noetl.dsl.tasks.shared import ANY, FILLED, MAP, ROWS, TEXT, TEXTS, needed
from noetl.dsl.tasks.task import Task
from noetl.dsl.yaml import Place

if TYPE_CHECKING:
    from collections.abc import Mapping

    from noetl.dsl.shape.reader import Reader


@model
class Paginate(Model):
    """Follows pages inside the task."""

    next: str = key(Text(WORKER), "template of the next page's address or token")
    into: str = key(choice("url", "params", "json"), "where it goes", default="url")
    items: str | None = key(Text(), "path of the items in a page", default=None)
    max_pages: int | str = key(whole(1, 100_000, role=WORKER), "most pages", default=100)
    max_items: int | str = key(whole(1, role=WORKER), "most items", default=100_000)
    until: bool | str | None = key(Condition(WORKER), "stop when true", default=None)
    param: str | None = key(Text(), "name of the parameter", default=None)


@model
class Part(Model):
    """One part of an upload: a field with `value`, else a file."""

    name: str | None = key(TEXT, "name of the field; in a map its key", default=None)
    value: Any = key(ANY, "value of a plain field", default=None)
    filename: str | None = key(TEXT, "name of the file", default=None)
    content_type: str | None = key(TEXT, "its media type", default=None)
    content: Any = key(
        ANY, "its content: text, or what is sent as JSON", default=None, aliases=("data",)
    )
    content_b64: str | None = key(TEXT, "its content in base64", default=None)
    ref: str | None = key(TEXT, "reference of its content", default=None)
    path: str | None = key(TEXT, "its content as a file under the data roots", default=None)


class Upload:
    """Parts of an upload by their names, or a list of them; kept as their author wrote them."""

    documented: ClassVar[type[Model]] = Part
    role: ClassVar[str] = WORKER
    _part = Written(Part)

    def read(self, value: Any, place: Place, reader: Reader) -> Any:  # noqa: ANN401 - see Shape
        """Check the keys of every part; what is no map is the content of a file."""
        if isinstance(value, dict):
            for name, given in value.items():
                where = Place(value, name, place)
                reader.name(name, where, WORKER)
                self._named(given, where, reader)
        elif isinstance(value, list):
            ListOf(ByType(text=TEXT, map=self._part)).read(value, place, reader)
        else:
            TEXT.read(value, place, reader)
        return value

    def _named(self, given: Any, place: Place, reader: Reader) -> None:  # noqa: ANN401 - as above
        if isinstance(given, dict):
            self._part.read(given, place, reader)
        elif isinstance(given, list) and all(isinstance(one, dict) for one in given):
            ListOf(self._part).read(given, place, reader)
        else:
            reader.walk(given, place, WORKER)

    def schema(self, definitions: Definitions) -> JsonSchema:
        """Any of the forms."""
        part = self._part.schema(definitions)
        text: JsonSchema = {"type": "string"}
        content: JsonSchema = {
            "type": ["string", "number", "boolean", "null", "array"],
            "contains": {"not": {"type": "object"}},
        }
        named = {"anyOf": [part, {"type": "array", "items": part}, content]}
        listed = {"type": "array", "items": {"anyOf": [part, text]}}
        return {"anyOf": [{"type": "object", "additionalProperties": named}, listed, text]}

    def words(self) -> str:
        """An upload."""
        return "map of name to content or Part, or list of Part"


@model
class Http(Task):
    """Sends one HTTP request."""

    constraints: ClassVar[tuple[Constraint, ...]] = (
        NotBoth(("json", "form")), NotBoth(("json", "body")), NotBoth(("json", "data")),
        NotBoth(("form", "body")), NotBoth(("form", "data")), NotBoth(("body", "data")),
        NotBoth(("files", "json")), NotBoth(("files", "form")), NotBoth(("files", "body")),
        NotBoth(("files", "data")),
    )  # fmt: skip

    url: str = needed(FILLED, "address", aliases=("endpoint",))
    method: str = key(
        choice("GET", "POST", "PUT", "PATCH", "DELETE", "HEAD", "OPTIONS", "get", "post", "put",
               "patch", "delete", "head", "options", role=WORKER),
        "HTTP method", default="GET",
    )  # fmt: skip
    headers: Mapping[str, Any] = key(MAP, "request headers", default_factory=dict)
    params: Any = key(ROWS, "query parameters", default=None)
    json: Any = key(ANY, "JSON body", default=None)
    form: Any = key(MAP, "form fields", default=None)
    files: Any = key(Upload(), "files to upload", default=None)
    body: Any = key(ANY, "raw body", default=None)
    data: Any = key(ANY, "a map is sent as JSON, text as it is", default=None, aliases=("payload",))
    response_type: str = key(
        choice("auto", "json", "text", "binary", "blob"), "how the answer is read", default="auto"
    )
    follow_redirects: bool | str = key(Flag(WORKER), "follow up to 5", default=True)
    verify: bool | str = key(Flag(WORKER), "check the certificate", default=True)
    ok_status: tuple[int, ...] = key(ListOf(whole(100, 599)), "statuses that are ok", default=())
    max_bytes: int | str = key(Size(WORKER), "largest answer kept inline", default=16_777_216)
    paginate: Paginate | None = key(Of(Paginate), "follow pages", default=None)


@model
class Mcp(Task):
    """Calls an MCP server."""

    server: str | None = key(TEXT, "name of the server", default=None)
    endpoint: str | None = key(TEXT, "address", default=None, aliases=("url", "server_url"))
    method: str = key(
        choice("tools/call", "tools/list", "resources/read", "prompts/get", "health"),
        "method", default="tools/call",
    )  # fmt: skip
    tool: str | None = key(TEXT, "tool to call", default=None)
    arguments: Any = key(ByType(map=MAP, text=TEXT), "arguments", default=None)
    uri: str | None = key(TEXT, "resource to read", default=None)
    prompt: str | None = key(TEXT, "prompt to get", default=None)
    transport: str = key(choice("http", "sse", "stdio"), "transport", default="http")
    argv: tuple[str, ...] = key(TEXTS, "program of a stdio server", default=())


_NATS = (
    "kv_get", "kv_put", "kv_create", "kv_update", "kv_delete", "kv_keys", "kv_purge",
    "object_get", "object_put", "object_delete", "object_list", "object_info",
    "js_publish", "js_publish_batch", "js_consume", "js_get_msg", "js_stream_info", "request",
)  # fmt: skip


@model
class Nats(Task):
    """Reads and writes NATS JetStream."""

    operation: str = needed(choice(*_NATS, role=WORKER), "what to do")
    url: str | None = key(TEXT, "server address", default=None)
    bucket: str | None = key(TEXT, "bucket", default=None)
    key_: str | None = key(TEXT, "key", name="key", default=None)
    name: str = key(Name(), "name of the task in its pipeline", default="")
    object: str | None = key(TEXT, "object name", default=None)
    ref: str | None = key(TEXT, "reference to the bytes of an object", default=None)
    value: Any = key(ANY, "value to write", default=None)
    data: Any = key(ANY, "message", default=None, aliases=("payload",))
    ttl: Any = key(Duration(WORKER), "time to live", default=None)
    revision: Any = key(whole(0, role=WORKER), "expected revision", default=None)
    pattern: str | None = key(TEXT, "key pattern", default=None)
    subject: str | None = key(TEXT, "subject", default=None)
    headers: Mapping[str, Any] = key(MAP, "headers", default_factory=dict)
    msg_id: str | None = key(TEXT, "id for deduplication", default=None)
    messages: Any = key(ByType(list=ANY, text=TEXT), "messages of a batch", default=None)
    stream: str | None = key(TEXT, "stream", default=None)
    consumer: str | None = key(TEXT, "consumer", default=None)
    batch: int | str = key(whole(1, 1000, role=WORKER), "messages a fetch", default=100)
    timeout_ms: int | str = key(whole(0, 5000, role=WORKER), "wait of a fetch", default=1000)
    ack: Any = key(ByType(flag=Flag(), text=choice("defer", "true", "false", role=WORKER)),
                   "when to acknowledge", default=True)  # fmt: skip
    seq: Any = key(whole(0, role=WORKER), "sequence to get", default=None)
    last: bool = key(Flag(), "get the last message", default=False)


@model
class Subscription(Task):
    """Polls or acknowledges a bounded batch of messages."""

    source: str = needed(choice("nats", "kafka", "pubsub"), "kind of source")
    operation: str = key(
        choice("poll", "ack", "nack", "nak", "term", "drain"), "what to do", default="poll"
    )
    batch: int | str = key(whole(1, 1000, role=WORKER), "messages a poll", default=100)
    timeout_ms: int | str | None = key(whole(0, 20_000, role=WORKER), "wait", default=None)
    ack: Any = key(
        ByType(
            flag=Flag(),
            text=choice("on_success", "auto", "manual", "defer", "none", "peek", role=WORKER),
        ),
        "when to acknowledge",
        default="on_success",
    )
    ack_ids: Any = key(ByType(list=ANY, text=TEXT), "messages to settle", default=None)
    nack_delay_ms: int | str = key(whole(0, 3_600_000, role=WORKER), "delay", default=0)
    url: str | None = key(TEXT, "server address", default=None)
    user: str | None = key(TEXT, "user", default=None)
    password: str | None = key(TEXT, "password", default=None)
    token: str | None = key(TEXT, "token", default=None)
    endpoint: str | None = key(TEXT, "endpoint", default=None)
    stream: str | None = key(TEXT, "NATS stream", default=None)
    consumer: str | None = key(TEXT, "NATS consumer", default=None)
    subscription: str | None = key(TEXT, "Pub/Sub subscription", default=None)
    brokers: Any = key(ByType(text=TEXT, list=TEXTS), "Kafka brokers", default=None)
    topic: str | None = key(TEXT, "Kafka topic", default=None)
    group: str | None = key(TEXT, "Kafka group", default=None)


@model
class Secrets(Task):
    """Makes a secret of a provider usable as a keychain handle."""

    provider: str = needed(choice("wallet", "gcp", "aws", "azure", "vault", "env"), "provider")
    name: str = needed(TEXT, "name of the secret")
    version: Any = key(ByType(text=TEXT, number=whole(0)), "version", default=None)


REQUEST_ID: Final = "{{ workload.request_id | default(none) }}"
"""The request of a gateway task that names none."""


@model
class Gateway(Task):
    """Sends progress or a result to the waiting client."""

    operation: str = key(choice("result", "progress"), "what to send", default="result")
    request_id: str | None = key(TEXT, "whose client is told (`workload.request_id`)", default=None)
    status: str | None = key(
        TEXT, "of a result: `COMPLETED` (without one), `FAILED`, `CANCELLED`, `TIMEOUT`",
        default=None,
    )  # fmt: skip
    data: Any = key(ANY, "of a result: what the client is given", default=None)
    message: str | None = key(
        TEXT, "of progress: what goes on; of a result that failed: why", default=None
    )
    progress: float | str | None = key(
        Number(0, 1, role=WORKER), "of progress: how far it is", default=None
    )


@model
class PlaybookCall(Task):
    """Runs another playbook and waits for its result without a slot."""

    constraints: ClassVar[tuple[Constraint, ...]] = (ExactlyOne(("path", "catalog_id"), "DSL051"),)

    path: str | None = key(FILLED, "catalog path", default=None)
    catalog_id: Any = key(ByType(text=TEXT, number=whole(1)), "catalog id", default=None)
    version: Any = key(ByType(text=TEXT, number=whole(1)), "version", default=None)
    input: Mapping[str, Any] = key(
        MAP, "payload of the child", default_factory=dict, aliases=("args", "payload", "workload")
    )
    return_step: str | None = key(
        Text(), "step whose data is returned", default=None, aliases=("result_step",)
    )
    return_result: bool = key(Flag(), "accepted; the default", default=True)
    wait: bool | str = key(Flag(WORKER), "false: do not wait", default=True)
    pool: str | None = key(TEXT, "pool of the child", default=None)
    dedup_key: str | None = key(TEXT, "starts one child per key", default=None)


@model
class PlaybookItem(Model):
    """One child of `playbooks`."""

    constraints: ClassVar[tuple[Constraint, ...]] = (ExactlyOne(("path", "catalog_id"), "DSL051"),)

    path: str | None = key(FILLED, "catalog path", default=None)
    catalog_id: Any = key(ByType(text=TEXT, number=whole(1)), "catalog id", default=None)
    version: Any = key(ByType(text=TEXT, number=whole(1)), "version", default=None)
    input: Mapping[str, Any] = key(
        MAP, "payload of the child", default_factory=dict, aliases=("args", "payload", "workload")
    )


@model
class Playbooks(Task):
    """Runs several playbooks together; results in order."""

    items: Any = needed(ByType(list=ListOf(Of(PlaybookItem)), text=TEXT), "the children")
    best_effort: bool = key(Flag(), "a failed child does not fail the task", default=False)
    pool: str | None = key(TEXT, "pool of the children", default=None)


@model
class Wait(Task):
    """Sleeps, or waits for an answer, without a slot."""

    constraints: ClassVar[tuple[Constraint, ...]] = (
        ExactlyOne(("seconds", "until", "callback"), "DSL051"),
    )

    seconds: Any = key(Duration(WORKER, zero=True), "how long", default=None)
    until: str | None = key(TEXT, "RFC 3339 time", default=None)
    callback: bool | None = key(Flag(), "wait for a callback", default=None)


@model
class Noop(Task):
    """Does nothing; its data is `result`."""

    result: Any = key(ANY, "data of the step", default=None)
    message: Any = key(ANY, "data of the step", default=None)


@model
class Plugin(Task):
    """A tool that a plug-in brings; its keys are checked by the plug-in."""

    keeps_unknown: ClassVar[bool] = True
