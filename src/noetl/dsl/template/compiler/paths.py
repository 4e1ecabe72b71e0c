"""Names, attributes and subscripts."""

from __future__ import annotations

from typing import TYPE_CHECKING, Final, NoReturn

from noetl.dsl.template.access import attribute, cut, is_forbidden, item, refuse
from noetl.dsl.template.errors import TemplateFailure, TemplateSyntax, UndefinedName
from noetl.dsl.template.limits import PATH_LIMIT
from noetl.dsl.template.syntax import nodes
from noetl.dsl.template.values import MISSING

if TYPE_CHECKING:
    from noetl.dsl.template.compiler.frame import Compiling, Evaluate, Frame

PathNode = nodes.Name | nodes.Attribute | nodes.Subscript
# key, offset
_Step = tuple[str | int, int]

# An expression that has more parts is named by its last ones.
_SHOWN_PARTS: Final = 32
_SHOWN_CHARACTERS: Final = 80


def display(node: nodes.Expression) -> str:
    """Return an expression as an error names it."""
    parts: list[str] = []
    while len(parts) < _SHOWN_PARTS:
        match node:
            case nodes.Attribute(base=base, name=name):
                part = f".{name}"
            case nodes.Subscript(base=base, key=key):
                part = f"[{_cut(display(key))}]"
            case nodes.Call(function=base):
                part = "()"
            case nodes.Filter(base=base, name=name):
                part = f" | {name}"
            case _:
                break
        parts.append(_cut(part))
        node = base
    parts.append(_cut(_leaf(node)))
    return "".join(reversed(parts))


def _leaf(node: nodes.Expression) -> str:
    match node:
        case nodes.Name(name=name):
            return name
        case nodes.Literal(value=value):
            return "null" if value is None else repr(value)
        case _:
            return "(...)"


def _cut(part: str) -> str:
    return part if len(part) <= _SHOWN_CHARACTERS else f"{part[:_SHOWN_CHARACTERS]}..."


def _undefined(label: str, steps: tuple[_Step, ...], offset: int) -> UndefinedName:
    """Return the error about the step at an offset, named with those before it."""
    for key in [key for key, at in steps if at <= offset]:
        is_word = isinstance(key, str) and key.isidentifier()
        label += f".{key}" if is_word else f"[{key!r}]"
    return UndefinedName(label, offset)


def compile_path(compiler: Compiling, node: PathNode) -> Evaluate:
    """Compile `a.b['c'][0]`: all keys that are written out are read in one closure."""
    base: nodes.Expression = node
    keys: list[tuple[str | int, int]] = []
    while True:
        if isinstance(base, nodes.Attribute):
            keys.append((base.name, base.offset))
        elif isinstance(base, nodes.Subscript) and (key := _static(base.key)) is not None:
            keys.append((key, base.offset))
        else:
            break
        base = base.base
    if len(keys) > PATH_LIMIT:
        raise TemplateSyntax(f"a path has more than {PATH_LIMIT} parts", node.offset)
    compiler.size += len(keys)
    keys.reverse()
    for key, offset in keys:
        if isinstance(key, str) and is_forbidden(key):
            return _refused(key, offset)
    if isinstance(base, nodes.Name):
        return _from_name(compiler, base, tuple(keys))
    if isinstance(base, nodes.Subscript) and not keys:
        return _computed(compiler, base)
    return _below(compiler.expression(base), base, tuple(keys))


def _static(node: nodes.Expression) -> str | int | None:
    if isinstance(node, nodes.Literal) and isinstance(node.value, (str, int)):
        return node.value
    return None


def _refused(key: str, offset: int) -> Evaluate:
    def run(_frame: Frame) -> NoReturn:
        raise refuse(key).at(offset)

    return run


def _from_name(compiler: Compiling, node: nodes.Name, steps: tuple[_Step, ...]) -> Evaluate:
    name, offset = node.name, node.offset
    slots, falls_through = compiler.names.resolve(name)
    if falls_through:
        path = [name]
        for key, _ in steps:
            if not isinstance(key, str):
                break
            path.append(key)
        is_exact = len(path) == len(steps) + 1
        compiler.names.note(tuple(path), offset, is_exact=is_exact)
    first = _local(slots, name, offset, falls_through=falls_through) if slots else None
    if first is not None:
        return _below(first, node, steps) if steps else first
    if not steps:
        return _free(name, offset)
    return _free_path(name, offset, steps)


def _free(name: str, offset: int) -> Evaluate:
    def run(frame: Frame) -> object:
        try:
            return frame.scope[name]
        except KeyError:
            raise UndefinedName(name, offset) from None

    return run


def _free_path(name: str, offset: int, steps: tuple[_Step, ...]) -> Evaluate:
    def run(frame: Frame) -> object:
        try:
            value = frame.scope[name]
        except KeyError:
            raise UndefinedName(name, offset) from None
        for key, at in steps:
            value = value.get(key, MISSING) if type(value) is dict else _step(value, key, at)
            if value is MISSING:
                raise _undefined(name, steps, at)
        return value

    return run


def _step(value: object, key: str | int, offset: int) -> object:
    try:
        return attribute(value, key) if type(key) is str else item(value, key)
    except TemplateFailure as failure:
        raise failure.at(offset) from None


def _local(slots: list[int], name: str, offset: int, *, falls_through: bool) -> Evaluate:
    if len(slots) == 1 and not falls_through:
        (slot,) = slots
        return lambda frame: frame.slots[slot]

    def run(frame: Frame) -> object:
        for slot in slots:
            value = frame.slots[slot]
            if value is not MISSING:
                return value
        try:
            return frame.scope[name]
        except KeyError:
            raise UndefinedName(name, offset) from None

    return run


def _below(first: Evaluate, base: nodes.Expression, steps: tuple[_Step, ...]) -> Evaluate:
    def run(frame: Frame) -> object:
        value = first(frame)
        for key, at in steps:
            value = _step(value, key, at)
            if value is MISSING:
                raise _undefined(display(base), steps, at)
        return value

    return run


def _computed(compiler: Compiling, node: nodes.Subscript) -> Evaluate:
    known = len(compiler.names.reads)
    base = compiler.expression(node.base)
    reads = compiler.names.reads
    if isinstance(node.base, PathNode) and len(reads) > known:
        reads[known] = reads[known]._replace(is_exact=False)
    if isinstance(node.key, nodes.Slice):
        return _slice(compiler, base, node.key)
    key = compiler.value(node.key)

    def run(frame: Frame) -> object:
        found = base(frame)
        index = key(frame)
        try:
            value = item(found, index)
        except TemplateFailure as failure:
            raise failure.at(node.offset) from None
        if value is MISSING:
            raise UndefinedName(f"{display(node.base)}[{_shown(index)}]", node.offset)
        return value

    return run


def _shown(index: object) -> str:
    if isinstance(index, str):
        return repr(index[:_SHOWN_CHARACTERS])
    return str(index) if isinstance(index, int) else "..."


def _slice(compiler: Compiling, base: Evaluate, node: nodes.Slice) -> Evaluate:
    bounds = [
        None if bound is None else compiler.value(bound)
        for bound in (node.start, node.stop, node.step)
    ]

    def run(frame: Frame) -> object:
        found = base(frame)
        limits = slice(*(None if bound is None else bound(frame) for bound in bounds))
        frame.spend(1)
        try:
            return cut(found, limits, frame)
        except TemplateFailure as failure:
            raise failure.at(node.offset) from None

    return run
