"""Where settings come from: an option, a variable, the file of settings, the default."""

from __future__ import annotations

import os
from dataclasses import MISSING, field, fields
from pathlib import Path
from typing import TYPE_CHECKING, Any, Self, TypeVar, cast

from noetl.errors import NoetlError
from noetl.settings.table import (
    ALIASES,
    BY_NAME,
    CONFIG,
    FILES,
    PREFIX,
    is_kubernetes_service,
    unknown_names,
)

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping

T = TypeVar("T")


class BadSetting(NoetlError):
    """A setting that cannot be used, named with what it may be."""

    code = "bad_setting"
    status = 500


def environment(environ: Mapping[str, str] | None) -> Mapping[str, str]:
    """The environment of the process, or the one that is passed."""
    return os.environ if environ is None else environ


def of(name: str, default: T, read: Callable[[str], T], unset: str = "") -> T:
    """A field of a model: which setting it is, and what its text has to be.

    `unset` is the text of a setting that a process has unless it is told otherwise, and a model
    that is made by hand has not.
    """
    known = {"setting": name, "read": read, "unset": unset}
    if isinstance(default, dict):
        return cast("T", field(default_factory=lambda: dict(default), metadata=known))
    return field(default=default, metadata=known)


class Sources:
    """Where values come from: flag, variable, file of settings."""

    def __init__(
        self,
        environ: Mapping[str, str] | None,
        flags: Mapping[str, str],
        fallback: Mapping[str, str] | None = None,
    ) -> None:
        self.env = environment(environ)
        self.fallback = fallback or {}
        self.flags = flags
        self.file = _config(self.env)

    def find(self, name: str) -> tuple[str, str] | None:
        """The text of a setting and where it was found."""
        if name in self.flags:
            return self.flags[name], f"the option for {name}"
        if name in FILES:  # where a secret lies, for one who looks there again
            found = self.find(FILES[name])
            told = (source.get(name, "") for source in (self.env, self.file, self.fallback))
            is_there = found is not None and found[1] == name
            return next(((file, name) for file in told if file and is_there), None)
        setting = BY_NAME[name]
        for source in (self.env, self.file, self.fallback):
            for spelling in (name, *setting.aliases):
                found = self._in(source, spelling, is_secret=setting.kind == "secret")
                if found is not None:
                    return found
        return None

    def _in(
        self, source: Mapping[str, str], name: str, *, is_secret: bool
    ) -> tuple[str, str] | None:
        value = source.get(name, "").strip()
        if value and not is_kubernetes_service(name, value):
            if is_secret and value.startswith("file:///"):
                return contents(name, value.removeprefix("file://")), name
            return value, name
        file = source.get(f"{name}_FILE", "") if is_secret else ""
        return (contents(f"{name}_FILE", file), f"{name}_FILE") if file else None


def contents(name: str, file: str) -> str:
    """What the file of a secret holds; `name` is the setting that names it."""
    try:
        return Path(file).read_text(encoding="utf-8").strip()
    except (OSError, UnicodeDecodeError) as fault:
        reason = getattr(fault, "strerror", None) or "it is not UTF-8 text"
        raise BadSetting(
            f"{name} names the file {file}, which cannot be read: {reason}.",
            hint="check the name and who may read it",
        ) from fault


def _config(env: Mapping[str, str]) -> dict[str, str]:
    """The file of settings as variables: `port = 8083` is `NOETL_PORT`."""
    import tomllib  # noqa: PLC0415 - most commands read no file

    named = env.get("NOETL_CONFIG", "")
    file = Path(named or CONFIG)
    try:
        table = tomllib.loads(file.read_text(encoding="utf-8"))
    except FileNotFoundError as fault:
        if not named:
            return {}
        raise BadSetting(f"NOETL_CONFIG names {file}, which does not exist.") from fault
    except (OSError, UnicodeDecodeError, tomllib.TOMLDecodeError) as fault:
        raise BadSetting(f"The file of settings {file} cannot be read: {fault}.") from fault
    return {_variable_of(key): as_text(str(file), key, value) for key, value in table.items()}


def _variable_of(key: str) -> str:
    name = key.upper()
    is_whole = name in BY_NAME or name in ALIASES or name in FILES or name.startswith(PREFIX)
    return name if is_whole else PREFIX + name


def as_text(file: str, key: str, value: object) -> str:
    """A value of a file as a variable would have it."""
    if isinstance(value, bool):
        return "on" if value else "off"
    if isinstance(value, list) and all(isinstance(item, str | int) for item in value):
        return ",".join(str(item) for item in value)
    if isinstance(value, dict) and all(isinstance(item, int) for item in value.values()):
        return ",".join(f"{name}={item}" for name, item in value.items())
    if isinstance(value, str | int | float):
        return str(value)
    raise BadSetting(f"{file}: `{key}` is not a text, a number, a list or a table of numbers.")


class Model:
    """What the models share: how they are read."""

    __slots__ = ()

    @classmethod
    def read(
        cls,
        environ: Mapping[str, str] | None = None,
        *,
        fallback: Mapping[str, str] | None = None,
        **flags: object,
    ) -> Self:
        """Read options (by the names of the fields), the environment and the file of settings.

        `fallback` holds variables that count before the defaults: what a running stack tells.
        """
        known = {item.name: item for item in fields(cast("Any", cls)) if item.metadata}
        given = {
            known[name].metadata["setting"]: str(value)
            for name, value in flags.items()
            if value is not None
        }
        sources = Sources(environ, given, fallback)
        made = cls(**{item.name: _value(sources, item) for item in known.values()})
        if getattr(made, "env", "dev") == "production":
            _refuse_unknown(sources)
        made.check()
        return made

    def check(self) -> None:
        """Refuse values that do not go together."""

    def shown(self) -> dict[str, object]:
        """The settings in force, secrets masked."""
        shown: dict[str, object] = {}
        for item in (item for item in fields(cast("Any", self)) if item.metadata):
            value = getattr(self, item.name)
            is_secret = _is_secret(item.metadata["setting"])
            shown[item.name] = "***" if is_secret and value else value
        return shown


def _value(sources: Sources, item: Any) -> object:  # noqa: ANN401 - a field of any model
    found = sources.find(item.metadata["setting"])
    if found is None and item.metadata["unset"]:
        return item.metadata["read"](item.metadata["unset"])
    if found is None:
        return item.default if item.default is not MISSING else item.default_factory()
    value, origin = found
    try:
        return item.metadata["read"](value)
    except ValueError as fault:
        is_secret = _is_secret(item.metadata["setting"])
        told = "" if is_secret else f", not {value!r}"
        raise BadSetting(
            f"{origin} has to be {fault}{told}.",
            hint=f"run `noetl explain setting.{item.metadata['setting']}`",
        ) from fault


def _is_secret(name: str) -> bool:
    return name not in FILES and BY_NAME[name].kind == "secret"


def _refuse_unknown(sources: Sources) -> None:
    found = [*unknown_names(sources.env), *unknown_names(sources.file)]
    if found:
        raise BadSetting(
            " ".join(found), hint="with NOETL_ENV=production an unknown name is an error"
        )
