"""Whether a value conforms to a JSON Schema: payloads to `inputs`, results to `output.schema`.

Offline by construction: a schema that points to another address is refused, never fetched; patterns
run on a linear engine.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import jsonschema_rs

from noetl.errors import NoetlError

MOST_FAULTS = 200


class BadSchema(NoetlError):
    """A schema that cannot be used."""

    code = "bad_schema"
    status = 422


def faults(schema: Mapping[str, Any], value: object) -> list[dict[str, str]]:
    """Where a value breaks a schema: one pointer and sentence each, at most 200."""
    try:
        validator = jsonschema_rs.Draft202012Validator(
            _plain(schema),
            validate_formats=True,
            pattern_options=jsonschema_rs.RegexOptions(),
            offline=True,
        )
    except (ValueError, jsonschema_rs.ValidationError) as fault:
        raise BadSchema(f"the schema cannot be used: {str(fault).splitlines()[0]}") from None
    found: list[dict[str, str]] = []
    for broken in validator.iter_errors(_plain(value)):
        if len(found) == MOST_FAULTS:
            break
        found.append({"pointer": _pointer(broken.instance_path), "message": broken.message})
    return found


def _plain(value: Any) -> Any:  # noqa: ANN401 - any JSON
    """The value in the standard's own types; parsed documents have lists and maps with places."""
    if isinstance(value, Mapping):
        return {key: _plain(item) for key, item in value.items()}
    if isinstance(value, (list, tuple)):
        return [_plain(item) for item in value]
    return value


def _pointer(path: list[str | int]) -> str:
    parts = (str(part).replace("~", "~0").replace("/", "~1") for part in path)
    return "".join(f"/{part}" for part in parts)
