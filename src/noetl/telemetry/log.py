"""Logs: one JSON object per line, or readable text on a terminal; secrets never, floods counted."""

from __future__ import annotations

import logging
import traceback
from typing import TYPE_CHECKING, Any, Final, TextIO, TypeAlias

import msgspec

from noetl.clock import SystemClock, rfc3339
from noetl.telemetry.redact import Redactor

if TYPE_CHECKING:
    from noetl.clock import Clock

LEVELS: Final = ("debug", "info", "warning", "error")
MOST_EQUAL: Final = 10
"""Equal lines that are written within a second; the rest is counted."""
MOST_REMEMBERED: Final = 1_000
_STACK_CHARACTERS: Final = 32 * 1024
_OWN: Final = frozenset(vars(logging.makeLogRecord({}))) | {"message", "asctime", "taskName"}
_COLOURS: Final = {"warning": "\x1b[33m", "error": "\x1b[31m", "debug": "\x1b[2m"}
_PLAIN: Final = "\x1b[0m"
_NOISY: Final = ("uvicorn.error", "uvicorn.access", "asyncio", "nats")
_Kind: TypeAlias = tuple[str, str, str, Any]
"""What equal lines share: level, logger, message, and the run that they are about."""
_encode: Final = msgspec.json.Encoder(enc_hook=str).encode


class Lines(logging.Handler):
    """Writes records to a stream."""

    def __init__(
        self,
        stream: TextIO,
        *,
        redactor: Redactor | None = None,
        clock: Clock | None = None,
        is_readable: bool | None = None,
    ) -> None:
        super().__init__()
        self._stream = stream
        self._redactor = redactor or Redactor()
        self._clock = clock or SystemClock()
        self._is_readable = stream.isatty() if is_readable is None else is_readable
        self._second = -1.0
        self._equal: dict[_Kind, int] = {}
        self.always: dict[str, str] = {}
        """Fields of every line, such as the name of a worker."""
        self.written: dict[str, int] = dict.fromkeys(LEVELS, 0)
        """Lines by level."""

    def emit(self, record: logging.LogRecord) -> None:
        """Write a record, unless it is one of a flood."""
        try:
            level = _level(record)
            if self._is_flood(level, record):
                return
            self._write(level, self._fields(record))
        except Exception:  # noqa: BLE001 - a log that cannot be written must not stop the work
            self.handleError(record)

    def _fields(self, record: logging.LogRecord) -> dict[str, Any]:
        made = {"event": record.getMessage(), "logger": record.name, **self.always}
        made |= {key: value for key, value in vars(record).items() if key not in _OWN}
        if record.exc_info and record.exc_info[0] is not None:
            made["stack"] = "".join(traceback.format_exception(*record.exc_info))[
                -_STACK_CHARACTERS:
            ]
        return made

    def _write(self, level: str, fields: dict[str, Any]) -> None:
        ts = rfc3339(self._clock.now())
        if self._is_readable:
            text = _readable(ts, level, fields)
        else:
            text = _encode({"ts": ts, "level": level, **fields}).decode()
        self.written[level] += 1
        self._stream.write(self._redactor.redact(text) + "\n")
        self._stream.flush()

    def _is_flood(self, level: str, record: logging.LogRecord) -> bool:
        second = self._clock.monotonic() // 1
        if second != self._second:
            self._second = second
            self._tell_suppressed()
        # Lines about two runs are not equal, whatever they say.
        about = getattr(record, "execution_id", None)
        key = (level, record.name, str(record.msg), about)
        count = self._equal.get(key, 0) + 1
        if count > 1 or len(self._equal) < MOST_REMEMBERED:
            self._equal[key] = count
        return count > MOST_EQUAL

    def _tell_suppressed(self) -> None:
        equal, self._equal = self._equal, {}
        for (level, logger, message, about), count in equal.items():
            if count > MOST_EQUAL:
                fields = {"event": message, "logger": logger, **self.always}
                more = {} if about is None else {"execution_id": about}
                self._write(level, {**fields, **more, "suppressed": count - MOST_EQUAL})

    def close(self) -> None:
        """Tell what was counted last."""
        self._tell_suppressed()
        super().close()


def configure(
    level: str,
    stream: TextIO,
    *,
    redactor: Redactor | None = None,
    clock: Clock | None = None,
) -> Lines:
    """Send every log of this process to a stream; loggers of libraries only when they warn."""
    lines = Lines(stream, redactor=redactor, clock=clock)
    root = logging.getLogger()
    for handler in list(root.handlers):
        root.removeHandler(handler)
    root.addHandler(lines)
    root.setLevel(level.upper())
    for name in _NOISY:
        logging.getLogger(name).setLevel(logging.WARNING)
    _spare()
    return lines


def _spare() -> None:
    """Look up nothing that no line shows: file, thread and process cost more than the line."""
    logging._srcfile = None  # noqa: SLF001 - as its manual advises
    logging.logThreads = False
    logging.logProcesses = False
    logging.logMultiprocessing = False


def _level(record: logging.LogRecord) -> str:
    if record.levelno >= logging.ERROR:
        return "error"
    if record.levelno >= logging.WARNING:
        return "warning"
    return "info" if record.levelno >= logging.INFO else "debug"


def _readable(ts: str, level: str, fields: dict[str, Any]) -> str:
    colour = _COLOURS.get(level, "")
    rest = dict(fields)
    event, stack = rest.pop("event"), rest.pop("stack", None)
    rest.pop("logger", None)
    shown = " ".join(f"{key}={value}" for key, value in rest.items())
    head = f"{ts[11:23]} {colour}{level:7}{_PLAIN if colour else ''} {event}"
    text = f"{head}  {shown}" if shown else head
    return text if stack is None else f"{text}\n{stack.rstrip()}"
