"""Every model of the API with its decoder, made ready in the thread that imports it.

msgspec works out a type on its first use and is not safe when two threads do that at once.
"""

from __future__ import annotations

from typing import Any, Final, TypeVar, cast

import msgspec

from noetl.api import (
    audit,
    callbacks,
    catalog,
    commands,
    credentials,
    events,
    executions,
    gateway,
    health,
    identity,
    ingress,
    internal,
    problems,
    reading,
    results,
    runtime,
    schedules,
    shapes,
    sign_in,
    subscriptions,
    variables,
)

T = TypeVar("T")

_MODULES: Final = (
    audit,
    callbacks,
    catalog,
    commands,
    credentials,
    events,
    executions,
    gateway,
    health,
    identity,
    ingress,
    internal,
    problems,
    reading,
    results,
    runtime,
    schedules,
    shapes,
    sign_in,
    subscriptions,
    variables,
)
MODELS: Final = tuple(
    value
    for module in _MODULES
    for value in vars(module).values()
    if isinstance(value, type) and issubclass(value, msgspec.Struct)
)
_DECODERS: Final[dict[Any, msgspec.json.Decoder[Any]]] = {
    model: msgspec.json.Decoder(model)
    for model in (*MODELS, tuple[variables.Variable, ...], dict[str, Any], Any)
}


def decoder_of(model: type[T]) -> msgspec.json.Decoder[T]:
    """The decoder of a model of the API."""
    return cast("msgspec.json.Decoder[T]", _DECODERS[model])
