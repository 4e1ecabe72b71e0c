"""The effective workload: the document's defaults under the caller's payload."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from noetl.dsl.template import UndefinedName, compile_template, is_template, render

if TYPE_CHECKING:
    from collections.abc import Mapping


def effective(
    defaults: Mapping[str, Any], payload: Mapping[str, Any], about: Mapping[str, Any]
) -> tuple[dict[str, Any], tuple[str, ...]]:
    """Merge and render once, in document order; also the warnings about undefined names.

    Only the document's own texts are templates; what the caller passed is data.
    """
    warnings: list[str] = []
    done: dict[str, Any] = {}
    for name, default in defaults.items():
        scope = {**done, **about, "input": payload, "workload": done}
        done[name] = _value(name, default, payload, scope, warnings)
    done.update({name: value for name, value in payload.items() if name not in defaults})
    return done, tuple(warnings)


def _value(
    name: str,
    default: object,
    payload: Mapping[str, Any],
    scope: Mapping[str, Any],
    warnings: list[str],
) -> object:
    if name not in payload:
        return _rendered(default, scope, warnings)
    given = payload[name]
    if not isinstance(default, dict) or not isinstance(given, dict):
        return given
    merged = {key: _value(key, item, given, scope, warnings) for key, item in default.items()}
    merged.update({key: item for key, item in given.items() if key not in default})
    return merged


def _rendered(value: object, scope: Mapping[str, Any], warnings: list[str]) -> object:
    if isinstance(value, str) and is_template(value):
        template = compile_template(value)
        try:
            return template.render(scope)
        except UndefinedName as missing:
            if not template.is_expression:
                raise
            warnings.append(f"`{missing.name}` is undefined and read as null in `{value}`")
            return None
    if isinstance(value, dict):
        return {
            str(render(key, scope)): _rendered(item, scope, warnings) for key, item in value.items()
        }
    if isinstance(value, list):
        return [_rendered(item, scope, warnings) for item in value]
    return value
