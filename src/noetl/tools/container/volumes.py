"""Volumes of containers: four kinds, none of which reaches into a node."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, Final

from noetl.tools.base import ToolError

if TYPE_CHECKING:
    from collections.abc import Iterable, Mapping

KINDS: Final = {
    "empty_dir": "emptyDir",
    "persistent_volume_claim": "persistentVolumeClaim",
    "config_map": "configMap",
    "secret": "secret",
}
_RESERVED: Final = "noetl-"
_OWN: Final = "/noetl"


def volumes_of(given: Iterable[Mapping[str, Any]]) -> list[dict[str, Any]]:
    """The volumes of a pod; any other kind is refused, those of the node among them."""
    made = []
    for place, volume in enumerate(given):
        where = f"/volumes/{place}"
        kinds = sorted(volume.keys() - {"name"})
        if len(kinds) != 1 or kinds[0] not in KINDS:
            told = ", ".join(kinds) or "nothing"
            raise _unfit(where, f"one of {', '.join(KINDS)} is needed, not {told}")
        made.append({"name": _name(volume, where), KINDS[kinds[0]]: camel(volume[kinds[0]] or {})})
    return made


def mounts_of(
    given: Iterable[Mapping[str, Any]], volumes: Iterable[Mapping[str, Any]]
) -> list[dict[str, Any]]:
    """Where the volumes appear in the container."""
    known = {volume.get("name") for volume in volumes}
    made = []
    for place, mount in enumerate(given):
        where = f"/volume_mounts/{place}"
        if _name(mount, where) not in known:
            raise _unfit(where, f"there is no volume `{mount['name']}`")
        path = str(mount.get("mount_path") or "")
        if not path.startswith("/") or path == _OWN or path.startswith(f"{_OWN}/"):
            raise _unfit(f"{where}/mount_path", f"an absolute path outside {_OWN} is needed")
        made.append({_camel(key): value for key, value in mount.items()})
    return made


def camel(value: Any) -> Any:  # noqa: ANN401 - any JSON
    """The same with keys as Kubernetes writes them."""
    if isinstance(value, dict):
        return {_camel(str(key)): camel(one) for key, one in value.items()}
    return [camel(one) for one in value] if isinstance(value, list) else value


def _camel(name: str) -> str:
    head, *rest = name.split("_")
    return head + "".join(word.title() for word in rest)


def _name(of: Mapping[str, Any], where: str) -> str:
    name = of.get("name")
    if not isinstance(name, str) or not name or name.startswith(_RESERVED):
        raise _unfit(f"{where}/name", f"{name!r} is no name of a volume")
    return name


def _unfit(where: str, message: str) -> ToolError:
    return ToolError("config", "invalid_config", f"{where}: {message}")
