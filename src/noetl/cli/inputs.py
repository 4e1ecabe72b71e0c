"""The payload of a run, put together from a command line: file, then payload, then single keys."""

from __future__ import annotations

import json
from dataclasses import dataclass
from typing import Any

from noetl.cli.failures import CommandFailed
from noetl.cli.files import STDIN, read


@dataclass(frozen=True, slots=True, kw_only=True)
class Inputs:
    """What was asked for, as it was written."""

    file: str | None = None
    payload: str | None = None
    files: tuple[str, ...] = ()
    texts: tuple[str, ...] = ()
    values: tuple[str, ...] = ()


def payload_of(inputs: Inputs) -> dict[str, Any]:
    """One payload; the later source wins, key by key, inside maps too."""
    made: dict[str, Any] = {}
    if inputs.file is not None:
        made = merged(made, document(inputs.file, f"-i {inputs.file}"))
    if inputs.payload is not None:
        made = merged(made, _payload(inputs.payload))
    for word in inputs.files:
        key, name = pair("--set-file", word)
        _put("--set-file", made, key, read(name).data.decode("utf-8", "replace"))
    for word in inputs.texts:
        key, text = pair("--set-string", word)
        _put("--set-string", made, key, text)
    for word in inputs.values:
        key, text = pair("--set", word)
        _put("--set", made, key, loose(text))
    return made


def _payload(word: str) -> dict[str, Any]:
    if word == STDIN:
        return document(STDIN, "--payload -")
    if word.startswith("@"):
        return document(word[1:], f"--payload {word}")
    found = _json(word)
    if found is None:
        message = "`--payload` is not JSON"
        raise CommandFailed("usage", message, hint="a file is written `@FILE`, stdin `-`")
    return _map(found[0], "--payload")


def document(name: str, place: str) -> dict[str, Any]:
    """A file that holds one map of JSON or YAML."""
    data = read(name).data
    found = _json(data)
    return _map(_yaml(data, place) if found is None else found[0], place)


def _yaml(data: bytes, place: str) -> Any:  # noqa: ANN401 - a value of the caller's own
    from noetl.dsl.yaml import load

    document = load(data)
    first = next((item for item in document.findings.sorted() if item.severity == "error"), None)
    if first is not None:
        where = f"line {first.span.line}, column {first.span.column}"
        message = f"`{place}` cannot be read: {first.message} ({where})"
        raise CommandFailed("invalid_workload", message, hint=first.hint)
    # The reader's maps know their places in the file; what is sent are plain ones.
    return json.loads(json.dumps(document.root))


def _map(value: object, place: str) -> dict[str, Any]:
    if not isinstance(value, dict):
        message = f"`{place}` is not a map of inputs"
        raise CommandFailed("invalid_workload", message, hint='write it like {"name": "Ada"}')
    return value


def _json(text: str | bytes) -> tuple[Any] | None:
    try:
        return (json.loads(text, parse_constant=_refused),)
    except (ValueError, RecursionError):
        return None


def _refused(name: str) -> None:
    raise ValueError(f"{name} is not JSON")


def value_of(option: str, word: str) -> Any:  # noqa: ANN401 - a value of the caller's own
    """One value: JSON, or a file that holds it."""
    text = read(word[1:]).data if word.startswith("@") else word
    found = _json(text)
    if found is None:
        message = f"`{option}` is not JSON"
        raise CommandFailed("usage", message, hint="quote a text twice, or write `@FILE`")
    return found[0]


def loose(text: str) -> Any:  # noqa: ANN401 - a value of the caller's own
    """JSON, else the text itself."""
    found = _json(text)
    return text if found is None else found[0]


def pair(option: str, word: str) -> tuple[str, str]:
    """The two sides of `key=value`."""
    key, equals, value = word.partition("=")
    if not key or not equals:
        message = f"`{option} {word}` has no `=`" if key else f"`{option} {word}` has no key"
        raise CommandFailed("usage", message, hint=f"write `{option} key=value`")
    return key, value


def _put(option: str, into: dict[str, Any], key: str, value: object) -> None:
    *parents, last = key.split(".")
    if not all((*parents, last)):
        message = f"`{option} {key}` names an empty key"
        raise CommandFailed("usage", message, hint="write `a.b=1` for the key `b` of `a`")
    box = into
    for name in parents:
        inner = box.setdefault(name, {})
        if not isinstance(inner, dict):
            message = f"`{option} {key}`: `{name}` is not a map"
            raise CommandFailed("usage", message, hint=f"give `{name}` as a whole")
        box = inner
    box[last] = value


def merged(below: dict[str, Any], above: dict[str, Any]) -> dict[str, Any]:
    """One map over another, key by key, inside maps too."""
    made = dict(below)
    for key, value in above.items():
        under = made.get(key)
        both = isinstance(under, dict) and isinstance(value, dict)
        made[key] = merged(under, value) if both else value  # type: ignore[arg-type]  # checked above
    return made
