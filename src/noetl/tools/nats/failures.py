"""What the client of NATS raises as errors of the task."""

from __future__ import annotations

from contextlib import contextmanager
from typing import TYPE_CHECKING, Final

from nats import errors
from nats.js import errors as js

from noetl.tools.base import ToolError

if TYPE_CHECKING:
    from collections.abc import Iterator

    from noetl.dsl.tasks import Nats


_SPELT_WRONG: Final = (errors.BadSubjectError, errors.BadHeaderError, js.InvalidObjectNameError)


@contextmanager
def translating(config: Nats) -> Iterator[None]:
    """Translate what an operation raises."""
    try:
        yield
    except (errors.Error, js.Error) as fault:
        raise _translated(fault, config) from fault


def _translated(fault: Exception, config: Nats) -> ToolError:
    said = str(fault) or type(fault).__name__
    if isinstance(fault, js.NotFoundError):
        return _missing(fault, config)
    if isinstance(fault, js.ServiceUnavailableError):
        return ToolError("server_error", "jetstream_unavailable", f"JetStream is away: {said}")
    if isinstance(fault, js.APIError):
        return ToolError("client_error", f"js_{fault.err_code or fault.code}", said)
    if isinstance(fault, errors.NoRespondersError | js.NoStreamResponseError):
        return ToolError("server_error", "jetstream_unavailable", "the broker has no JetStream")
    if isinstance(fault, errors.TimeoutError):
        return ToolError("timeout", "tool_timeout", f"the broker did not answer: {said}")
    if isinstance(fault, errors.MaxPayloadError):
        return ToolError("limit", "output_limit", "the message is larger than the broker takes")
    if isinstance(fault, _SPELT_WRONG):
        return ToolError("config", "invalid_config", said)
    return ToolError("connection", "CONN_RESET", f"the connection to the broker is gone: {said}")


def _missing(fault: js.NotFoundError, config: Nats) -> ToolError:
    """Which of the names is not there."""
    if config.bucket:
        message = f"there is no bucket {config.bucket}"
        return ToolError("not_found", "bucket_not_found", message)
    if config.operation == "js_get_msg" and "message" in str(fault.description):
        message = f"the stream {config.stream} has no such message"
        return ToolError("not_found", "message_not_found", message)
    message = f"there is no stream {config.stream}"
    return ToolError("not_found", "stream_not_found", message)
