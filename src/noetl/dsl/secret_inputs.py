"""Secret inputs: which values of a workload nobody may see, and the workload without them.

A value is secret when its input says `secret: true`, or when the line of its workload key says
`# ui:secret`. A list whose items hold secrets is secret as a whole.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from noetl.dsl.form import fields_of
from noetl.dsl.playbook.document import Playbook

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator, Mapping

    from noetl.dsl.form import FormField
    from noetl.dsl.parse import Parsed
    from noetl.dsl.playbook.inputs import InputField

Path = tuple[str, ...]

MASK = "***"
"""What stands in the place of a value."""
CALLBACK: Path = ("callback_token",)
"""What proves that a run itself sends word to the client who waits for it; always a secret."""
CALLBACK_URL = "gateway_url"
"""Where that client waits."""
_NOTHING: tuple[Path, ...] = ()


def secret_paths(parsed: Parsed) -> tuple[Path, ...]:
    """Where the secret values of a playbook's workload lie."""
    playbook = parsed.model
    if not isinstance(playbook, Playbook):
        return _NOTHING
    found = [path for name, item in playbook.inputs.items() for path in _of_input(item, (name,))]
    if "ui:secret" in parsed.document.text:
        known = {path[0] for path in found}
        for field in fields_of(playbook, parsed):
            if field.name not in known and field.name not in playbook.inputs:
                found += _of_field(field, (field.name,))
    return tuple(found)


def _of_input(item: InputField, path: Path) -> Iterator[Path]:
    if item.secret or (item.items is not None and any(_of_input(item.items, path))):
        yield path
        return
    for name, child in item.properties.items():
        yield from _of_input(child, (*path, name))


def _of_field(field: FormField, path: Path) -> Iterator[Path]:
    if field.secret:
        yield path
        return
    for child in field.children:
        yield from _of_field(child, (*path, child.name))


def without(
    values: Mapping[str, Any], paths: Iterable[Path]
) -> tuple[dict[str, Any], dict[str, Any]]:
    """The values with masks in the secret places, and what stood there by the name of the place.

    What is null or empty says nothing and stays; so does a mask.
    """
    masked, taken = dict(values), dict[str, Any]()
    for path in paths:
        box: Any = masked
        for name in path[:-1]:
            inner = box.get(name)
            if not isinstance(inner, dict):
                break
            box[name] = dict(inner)
            box = box[name]
        else:
            value = box.get(path[-1])
            if value not in (None, "", MASK, [], {}):
                taken[named(path)] = value
                box[path[-1]] = MASK
    return masked, taken


def is_masked(values: Mapping[str, Any], paths: Iterable[Path]) -> bool:
    """Whether a mask stands in one of the places."""
    return any(at(values, path) == MASK for path in paths)


def has_mask(value: object) -> bool:
    """Whether a mask stands anywhere in a value."""
    if isinstance(value, dict):
        return any(map(has_mask, value.values()))
    return value == MASK


def with_secrets(values: Mapping[str, Any], secrets: Mapping[str, Any]) -> dict[str, Any]:
    """The values with secrets in the places of their masks."""
    whole = dict(values)
    for place, secret in secrets.items():
        path = path_of(place)
        if at(values, path) != MASK:
            continue
        box = whole
        for name in path[:-1]:
            box[name] = dict(box[name])
            box = box[name]
        box[path[-1]] = secret
    return whole


def callback_of(workload: Mapping[str, Any]) -> str:
    """Where word of a run is sent with its proof; empty when it has none."""
    url = workload.get(CALLBACK_URL)
    return url if isinstance(url, str) and workload.get(CALLBACK[0]) == MASK else ""


def named(path: Path) -> str:
    """A place as one text: an input by its name, what is inside it as in a JSON pointer."""
    return "/".join(name.replace("~", "~0").replace("/", "~1") for name in path)


def path_of(place: str) -> Path:
    """The place that a text names."""
    return tuple(name.replace("~1", "/").replace("~0", "~") for name in place.split("/"))


def at(values: Any, path: Path) -> Any:  # noqa: ANN401 - values of the caller's own
    """The value at a place; none when there is no such place."""
    for name in path:
        if not isinstance(values, dict):
            return None
        values = values.get(name)
    return values
