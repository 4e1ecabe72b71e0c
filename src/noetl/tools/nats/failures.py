"""What the client of NATS raises as errors of the task."""

from __future__ import annotations

from contextlib import contextmanager
from typing import TYPE_CHECKING, Final

from nats import errors
from nats.js import errors as js

from noetl.sources.connecting import forbidden, refusals
from noetl.tools.base import ToolError, remedied
from noetl.tools.nats.connections import translated

if TYPE_CHECKING:
    from collections.abc import Iterator

    from nats.aio.client import Client

    from noetl.dsl.tasks import Nats


_TOO_LARGE: Final = 10_054
_LARGE: Final = (
    "the message is larger than the broker takes: put it into an object (`object_put`), "
    "or raise `max_payload` of the broker or `max_msg_size` of the stream"
)
_SPELT_WRONG: Final = (errors.BadSubjectError, errors.BadHeaderError, js.InvalidObjectNameError)


@contextmanager
def translating(config: Nats, client: Client) -> Iterator[None]:
    """Translate what an operation raises."""
    before = refusals(client)
    try:
        yield
    except errors.TimeoutError as fault:  # a broker does not answer what it does not allow
        names = (config.bucket, config.stream, config.subject)
        refusal = forbidden(client, before, *(name for name in names if name))
        raise (_translated(fault, config) if refusal is None else translated(refusal)) from fault
    except (errors.Error, js.Error) as fault:
        raise _translated(fault, config) from fault


def _translated(fault: Exception, config: Nats) -> ToolError:
    said = str(fault) or type(fault).__name__
    if isinstance(fault, js.NotFoundError):
        return _missing(fault, config)
    if isinstance(fault, js.ServiceUnavailableError):
        message = f"JetStream is away: {said}"
        return remedied(ToolError("server_error", "jetstream_unavailable", message))
    if isinstance(fault, errors.MaxPayloadError) or getattr(fault, "err_code", 0) == _TOO_LARGE:
        return ToolError("limit", "output_limit", _LARGE)
    if isinstance(fault, js.APIError):
        return ToolError("client_error", f"js_{fault.err_code or fault.code}", said)
    if isinstance(fault, errors.NoRespondersError | js.NoStreamResponseError):
        message = "the broker has no JetStream"
        return remedied(ToolError("server_error", "jetstream_unavailable", message))
    if isinstance(fault, errors.TimeoutError):
        asked = config.operation == "request"
        who = f"nobody answered {config.subject} in {config.timeout_ms} ms"
        message = who if asked else f"the broker did not answer: {said}"
        return remedied(ToolError("timeout", "tool_timeout", message))
    if isinstance(fault, _SPELT_WRONG):
        return ToolError("config", "invalid_config", said)
    message = f"the connection to the broker is gone: {said}"
    return remedied(ToolError("connection", "CONN_RESET", message))


def _missing(fault: js.NotFoundError, config: Nats) -> ToolError:
    """Which of the names is not there."""
    if config.bucket:
        message = f"there is no bucket {config.bucket}"
        return remedied(ToolError("not_found", "bucket_not_found", message))
    if config.operation == "js_get_msg" and "message" in str(fault.description):
        message = f"the stream {config.stream} has no such message"
        return remedied(ToolError("not_found", "message_not_found", message))
    message = f"there is no stream {config.stream}"
    return remedied(ToolError("not_found", "stream_not_found", message))
