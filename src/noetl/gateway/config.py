"""The settings of a gateway: its variables, and the file that GATEWAY_CONFIG names."""

from __future__ import annotations

import json
import tomllib
from pathlib import Path
from typing import TYPE_CHECKING, Any, Final

from noetl.dsl import yaml
from noetl.settings import BadSetting, GatewaySettings, variable

if TYPE_CHECKING:
    from collections.abc import Mapping

NAME: Final = "GATEWAY_CONFIG"
_YAML: Final = (".yaml", ".yml")


def settings_of(
    environ: Mapping[str, str] | None = None,
    *,
    fallback: Mapping[str, str] | None = None,
    **flags: object,
) -> GatewaySettings:
    """The settings in force: options, then the environment, then the file."""
    named = flags.get("config") or variable(NAME, environ) or ""
    file = read_file(Path(str(named))) if named else {}
    return GatewaySettings.read(environ, fallback=fallback, file=file, **flags)


def read_file(file: Path) -> dict[str, Any]:
    """What a file of settings holds: YAML, TOML or JSON, as its name says."""
    try:
        text = file.read_text(encoding="utf-8")
    except (OSError, UnicodeDecodeError) as fault:
        reason = getattr(fault, "strerror", None) or "it is not UTF-8 text"
        raise BadSetting(f"{NAME} names {file}, which cannot be read: {reason}.") from fault
    try:
        found = _parsed(file, text)
    except ValueError as fault:
        raise BadSetting(f"The file {file} of {NAME} cannot be read: {fault}.") from fault
    if not isinstance(found, dict) or not all(isinstance(key, str) for key in found):
        raise BadSetting(f"The file {file} of {NAME} is no table of settings.")
    return found


def _parsed(file: Path, text: str) -> object:
    if file.suffix == ".toml":
        return tomllib.loads(text)
    if file.suffix == ".json":
        return json.loads(text)
    if file.suffix in _YAML:
        document = yaml.load(text)
        for one in document.findings.sorted()[:1]:
            raise ValueError(f"line {one.span.line}: {one.message}")
        return {} if document.root is None else document.root
    raise BadSetting(f"{NAME} names {file}: its name has to end in .yaml, .toml or .json.")
