"""Lines of a log."""

from __future__ import annotations

import io
import json
import logging
from datetime import UTC, datetime

import pytest

from noetl.telemetry.log import Lines, configure
from noetl.telemetry.redact import Redactor

ASKED = ("_srcfile", "logThreads", "logProcesses", "logMultiprocessing")


class Hands:
    """A clock that is set by hand."""

    seconds = 0.0

    def now(self) -> datetime:
        return datetime(2026, 1, 1, 12, 0, 0, 500, tzinfo=UTC)

    def monotonic(self) -> float:
        return self.seconds


class Log:
    """A logger with a stream of its own."""

    def __init__(self, **more) -> None:
        self.stream = io.StringIO()
        self.clock = Hands()
        self.lines = Lines(self.stream, clock=self.clock, **more)
        self.logger = logging.Logger("noetl.test")  # noqa: LOG001 - one that the process does not keep
        self.logger.addHandler(self.lines)

    @property
    def written(self) -> list[dict]:
        return [json.loads(line) for line in self.stream.getvalue().splitlines()]


def test_a_line_is_one_object_with_its_fields() -> None:
    log = Log()
    log.logger.warning("a lease %s", "ended", extra={"execution_id": "12", "duration_ms": 1.5})
    assert log.written == [{
        "ts": "2026-01-01T12:00:00.000500Z", "level": "warning", "event": "a lease ended",
        "logger": "noetl.test", "execution_id": "12", "duration_ms": 1.5,
    }]  # fmt: skip
    assert log.lines.written["warning"] == 1


def test_a_stack_is_one_field_and_anything_can_be_told() -> None:
    log = Log()
    try:
        int("no")
    except ValueError:
        log.logger.exception("it has failed", extra={"what": {1, 2}.__class__})
    assert "ValueError: invalid literal" in log.written[0]["stack"]
    assert log.written[0]["what"] == "<class 'set'>"


def test_a_secret_is_never_written() -> None:
    log = Log(redactor=Redactor(["s3cret-value"]))
    log.logger.info("it is s3cret-value", extra={"header": "Bearer abcdefgh12345678"})
    assert "s3cret" not in log.stream.getvalue()
    assert "abcdefgh" not in log.stream.getvalue()


def test_a_person_reads_text() -> None:
    log = Log(is_readable=True)
    log.logger.info("it runs", extra={"port": 80})
    log.logger.error("it fell")
    assert log.stream.getvalue() == (
        "12:00:00.000 info    it runs  port=80\n12:00:00.000 \x1b[31merror  \x1b[0m it fell\n"
    )


def test_equal_lines_beyond_ten_a_second_are_counted() -> None:
    log = Log()
    for number in range(25):
        log.logger.warning("the bus is away", extra={"n": number})
    log.logger.warning("something else")
    assert len(log.written) == 11
    log.clock.seconds = 1.0
    log.logger.warning("the bus is away")
    assert log.written[11]["suppressed"] == 15
    assert log.written[12]["event"] == "the bus is away"
    for _ in range(12):
        log.logger.warning("the bus is away")
    log.lines.close()
    assert log.written[-1]["suppressed"] == 3


def test_lines_about_two_runs_are_not_equal() -> None:
    log = Log()
    for number in range(25):
        log.logger.info("an execution begins", extra={"execution_id": str(number)})
    assert [line["execution_id"] for line in log.written] == [str(n) for n in range(25)]
    for _ in range(11):
        log.logger.warning("it waits", extra={"execution_id": "7"})
    log.lines.close()
    assert log.written[-1] == {
        "ts": "2026-01-01T12:00:00.000500Z", "level": "warning", "event": "it waits",
        "logger": "noetl.test", "execution_id": "7", "suppressed": 1,
    }  # fmt: skip


def test_what_belongs_to_every_line_is_said_once_for_all() -> None:
    log = Log()
    log.lines.always.update(worker_id="w-1", pool="shared")
    log.logger.info("a", extra={"execution_id": "12"})
    assert log.written[0]["worker_id"] == "w-1"
    assert log.written[0]["pool"] == "shared"


@pytest.fixture
def root():
    logger = logging.getLogger()
    before = (list(logger.handlers), logger.level)
    asked = {name: getattr(logging, name) for name in ASKED}
    yield logger
    logger.handlers[:], _ = before
    logger.setLevel(before[1])
    for name, value in asked.items():
        setattr(logging, name, value)


def test_the_log_of_the_process_goes_to_one_stream(root: logging.Logger) -> None:
    stream = io.StringIO()
    lines = configure("info", stream)
    logging.getLogger("noetl.anything").info("told")
    logging.getLogger("noetl.anything").debug("not told")
    logging.getLogger("uvicorn.error").info("not told")
    assert root.handlers == [lines]
    assert [json.loads(line)["event"] for line in stream.getvalue().splitlines()] == ["told"]
