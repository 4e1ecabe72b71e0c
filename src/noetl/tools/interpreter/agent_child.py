"""Runs in the child interpreter: finds an agent by its entry point and asks it.

Standard library only. Its inputs are the arguments of `main`, by their names.
"""

import dataclasses
import importlib
import inspect
import sys
from collections.abc import Callable, Mapping
from typing import Any

METHODS = {
    "langchain": ("ainvoke", "invoke", "__call__"),
    "adk": ("run_async", "run", "__call__"),
    "custom": ("ainvoke", "invoke", "arun", "run", "__call__"),
}


def found(name: str) -> Any:  # noqa: ANN401 - whatever it is
    """What `module:attr` names."""
    module, _, attr = name.partition(":")
    if not attr:
        raise ValueError(f"the entry point {name!r} is not module:attr")
    value: Any = importlib.import_module(module)
    for part in attr.split("."):
        value = getattr(value, part)
    return value


def method_of(value: Any, names: tuple[str, ...]) -> str | None:  # noqa: ANN401 - as above
    """The method of an object that is asked; a plain function or class has none of its own."""
    if inspect.isroutine(value) or inspect.isclass(value):
        return None
    return next((name for name in names if callable(getattr(value, name, None))), None)


def with_credentials(
    target: Callable[..., Any], given: dict[str, Any], credentials: Mapping[str, Any]
) -> dict[str, Any]:
    """The arguments, and the credentials for one who takes them."""
    if not credentials:
        return given
    try:
        taken = inspect.signature(target).parameters.values()
    except (TypeError, ValueError):
        return given
    is_taken = any(p.name == "credentials" or p.kind is p.VAR_KEYWORD for p in taken)
    return {**given, "credentials": credentials} if is_taken else given


def built(target: Callable[..., Any], given: Any, credentials: Mapping[str, Any]) -> Any:  # noqa: ANN401 - as above
    """The agent that a factory makes."""
    if isinstance(given, (list, tuple)):
        return target(*given, **with_credentials(target, {}, credentials))
    return target(**with_credentials(target, dict(given or {}), credentials))


async def awaited(value: Any) -> Any:  # noqa: ANN401 - as above
    """The value, whatever way it comes in."""
    if inspect.isawaitable(value):
        value = await value
    if inspect.isasyncgen(value):
        return [item async for item in value]
    return list(value) if inspect.isgenerator(value) else value


def plain(value: Any) -> Any:  # noqa: ANN401 - as above
    """The value as JSON: models and messages of frameworks become what they hold."""
    if isinstance(value, dict):
        return {str(name): plain(item) for name, item in value.items()}
    if isinstance(value, (list, tuple, set, frozenset)):
        return [plain(item) for item in value]
    if dataclasses.is_dataclass(value) and not isinstance(value, type):
        return plain(dataclasses.asdict(value))
    dump = getattr(value, "model_dump", None)
    return plain(dump(mode="json")) if callable(dump) else value


async def main(  # noqa: PLR0913 - the inputs of the task
    *,
    framework: str,
    entrypoint: str,
    entrypoint_args: Any,  # noqa: ANN401 - a list or a map
    invoke_method: str | None,
    payload: Any,  # noqa: ANN401 - the author's
    invoke_kwargs: dict[str, Any],
    credentials: dict[str, Any],
    folders: list[str],
) -> Any:  # noqa: ANN401 - as above
    """Find the agent, ask it, and tell what it said."""
    sys.path[:0] = folders
    target = found(entrypoint)
    names = (invoke_method,) if invoke_method else METHODS[framework]
    method = method_of(target, names)
    is_asked_itself = framework == "custom" and entrypoint_args is None and not invoke_method
    if method is None and not (is_asked_itself and inspect.isroutine(target)):
        target = await awaited(built(target, entrypoint_args, credentials))
        method = method_of(target, names)
        if method is None and not callable(target):
            raise TypeError(f"{entrypoint} gives an object without {' or '.join(names)}")
    ask = target if method is None else getattr(target, method)
    more = with_credentials(ask, dict(invoke_kwargs), credentials)
    return plain(await awaited(ask(payload, **more)))
