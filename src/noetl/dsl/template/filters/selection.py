"""Filters that apply another filter or test to every item: `map`, `select`, `rejectattr`."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import TYPE_CHECKING

from noetl.dsl.template.access import dig
from noetl.dsl.template.errors import TemplateFailure
from noetl.dsl.template.filters.arguments import listed, part, text
from noetl.dsl.template.operators import is_truthy
from noetl.dsl.template.values import MISSING

if TYPE_CHECKING:
    from noetl.dsl.template.limits import Meter

Function = Callable[..., object]


def selections(
    filters: Mapping[str, Function], predicates: Mapping[str, Function]
) -> dict[str, Function]:
    """Return the filters that look others up in these tables."""

    def map_(meter: Meter, value: object, /, *args: object, **named: object) -> list[object]:
        values = listed(meter, value)
        if not args:
            attribute = named.pop("attribute", None)
            default = named.pop("default", MISSING)
            if named or attribute is None:
                raise TemplateFailure("`map` needs the name of a filter or `attribute`")
            return [part(meter, entry, attribute, default) for entry in values]
        function = _find(filters, args[0], "filter")
        meter.spend(len(values))
        mapped = [function(meter, entry, *args[1:], **named) for entry in values]
        if MISSING in mapped:
            raise TemplateFailure(f"`{args[0]}` has no value for some of the items")
        return mapped

    def choice(*, keeps: bool) -> Function:
        def run(meter: Meter, value: object, /, *args: object, **named: object) -> list[object]:
            matches = _matcher(predicates, meter, args, named)
            return [entry for entry in listed(meter, value) if matches(entry) is keeps]

        return run

    def choice_by_part(*, keeps: bool) -> Function:
        def run(
            meter: Meter, value: object, attribute: object, *args: object, **named: object
        ) -> list[object]:
            values = listed(meter, value)
            path = text(attribute, "the attribute")
            if args and args[0] in {"defined", "undefined"}:
                wanted = keeps is (args[0] == "defined")
                return [
                    entry for entry in values if (dig(entry, path, meter) is not MISSING) is wanted
                ]
            matches = _matcher(predicates, meter, args, named)
            return [entry for entry in values if matches(part(meter, entry, path)) is keeps]

        return run

    return {
        "map": map_,
        "select": choice(keeps=True),
        "reject": choice(keeps=False),
        "selectattr": choice_by_part(keeps=True),
        "rejectattr": choice_by_part(keeps=False),
    }


def _matcher(
    predicates: Mapping[str, Function],
    meter: Meter,
    args: tuple[object, ...],
    named: dict[str, object],
) -> Callable[[object], bool]:
    if not args:
        return is_truthy
    function = _find(predicates, args[0], "test")

    def matches(entry: object) -> bool:
        meter.spend(1)
        return bool(function(meter, entry, *args[1:], **named))

    return matches


def _find(table: Mapping[str, Function], name: object, what: str) -> Function:
    function = table.get(name) if isinstance(name, str) else None
    if function is None:
        raise TemplateFailure(f"there is no {what} `{name}`")
    return function
