"""The effective workload: the document's defaults under the caller's payload."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from typing import TYPE_CHECKING, Any

from noetl.dsl.template import (
    MISSING,
    TemplateFailure,
    UndefinedName,
    View,
    compile_template,
    is_template,
    render,
)

if TYPE_CHECKING:
    from noetl.dsl.playbook import Playbook


def effective(
    playbook: Playbook, payload: Mapping[str, Any], about: Mapping[str, Any]
) -> tuple[dict[str, Any], tuple[str, ...]]:
    """Merge and render once, in document order; also the warnings about undefined names.

    Only the texts of `workload` are templates; what the caller passed, and the defaults of
    `inputs`, are data.
    """
    done: dict[str, Any] = {
        name: field.default
        for name, field in playbook.inputs.items()
        if field.has_default and name not in payload
    }
    merge = _Merge(_Scope(done, {**about, "input": payload, "workload": _SoFar(done)}))
    for name, default in playbook.workload.items():
        done[name] = merge.value(name, default, payload)
    done.update({name: value for name, value in payload.items() if name not in playbook.workload})
    return done, tuple(merge.warnings)


class _SoFar(View):
    """`workload` while it is made: the keys above, and a copy when it is read as a whole."""

    __slots__ = ("_done",)

    def __init__(self, done: dict[str, Any]) -> None:
        self._done = done

    def lookup(self, key: str) -> object:
        """One key, if it stands above."""
        return self._done.get(key, MISSING)

    def plain(self) -> object:
        """The keys above."""
        return dict(self._done)


class _Scope(Mapping[str, Any]):
    """The names that a default sees: the facts of the run, then the keys above."""

    __slots__ = ("_about", "_done")

    def __init__(self, done: dict[str, Any], about: dict[str, Any]) -> None:
        self._done = done
        self._about = about

    def __getitem__(self, name: str) -> Any:  # noqa: ANN401 - values of the author's own
        return self._about[name] if name in self._about else self._done[name]

    def __iter__(self) -> Iterator[str]:
        return iter({**self._done, **self._about})

    def __len__(self) -> int:
        return len({**self._done, **self._about})


class _Merge:
    """Merges defaults under a payload and renders what the payload leaves."""

    def __init__(self, scope: Mapping[str, Any]) -> None:
        self._scope = scope
        self.warnings: list[str] = []

    def value(self, name: str, default: object, payload: Mapping[str, Any]) -> object:
        """A key of the result: the payload's value, the default, or both merged."""
        if name not in payload:
            return self._rendered(default)
        given = payload[name]
        if not isinstance(default, dict) or not isinstance(given, dict):
            return given
        own = self._keys(default)
        merged = {key: self.value(key, item, given) for key, item in own.items()}
        return merged | {key: item for key, item in given.items() if key not in own}

    def _keys(self, box: dict[str, Any]) -> dict[str, Any]:
        """A map with its keys rendered; two that come out alike are an error."""
        keys = {key: next(iter(render({key: None}, self._scope))) for key in box}  # type: ignore[call-overload]  # a map renders to a map
        if len(set(keys.values())) < len(keys):
            raise TemplateFailure("two keys of one map render to the same text")
        return {keys[key]: item for key, item in box.items()}

    def _rendered(self, value: object) -> object:
        if isinstance(value, str) and is_template(value):
            return self._text(value)
        if isinstance(value, dict):
            return {key: self._rendered(item) for key, item in self._keys(value).items()}
        if isinstance(value, list):
            return [self._rendered(item) for item in value]
        return value

    def _text(self, text: str) -> object:
        template = compile_template(text)
        try:
            return template.render(self._scope)
        except UndefinedName as missing:
            if not template.is_expression:
                raise
            self.warnings.append(f"`{missing.name}` is undefined and read as null in `{text}`")
            return None
