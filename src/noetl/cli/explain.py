"""`noetl explain`: what a key, a tool, a code, a setting or an exit code means."""

from collections.abc import Iterator
from dataclasses import asdict
from typing import TYPE_CHECKING, Annotated

import typer

from noetl.cli.command import Spec
from noetl.cli.failures import EXITS, FAILURES, CommandFailed
from noetl.cli.text import columns, wrapped
from noetl.settings import SETTINGS

_TYPE_WIDTH = 40
_UNREAD = "Nothing reads it yet."

if TYPE_CHECKING:
    from noetl.cli.output import Output
    from noetl.dsl.explain import Explanation


def explain(
    ctx: typer.Context,
    topic: Annotated[
        str | None,
        typer.Argument(metavar="TOPIC", help="What to explain; none lists where to start."),
    ] = None,
) -> None:
    """Say what something means: a key, a tool, a code of a finding, an event, an error, a setting.

    Keys are paths such as Playbook.workflow.loop or step.loop.mode; others are tool.http,
    DSL030, event.command.issued, error.usage, exit.7, setting.NOETL_OUTPUT.
    """
    out: Output = ctx.obj
    if topic is None:
        _list(out)
        return
    found = find(topic)
    if found is None:
        near = nearest_topics(topic)
        words = ", ".join(f"`{item}`" for item in near)
        hint = f"did you mean {words}?" if near else "run `noetl explain` to list topics"
        raise CommandFailed(
            "not_found", f"there is no topic `{topic}`", hint=hint, details={"near": list(near)}
        )
    if out.is_structured:
        out.document(_as_json(found))
    else:
        _write(out, found)


def topics() -> tuple[str, ...]:
    """Every topic to start from: of the language, then of the command line."""
    from noetl.api.failures import RUNS
    from noetl.dsl.explain import topics as of_language
    from noetl.engine.events import KINDS

    return (
        *of_language(),
        *(f"event.{name}" for name in KINDS),
        *(f"exit.{code}" for code in EXITS),
        *(f"error.{code}" for code in sorted({*FAILURES, *RUNS})),
        *(f"setting.{setting.name}" for setting in SETTINGS),
    )


def find(topic: str) -> "Explanation | None":
    """The explanation of any topic."""
    from noetl.dsl.explain import explain as of_language

    return of_language(topic) or _of_events(topic) or _of_command_line(topic)


def _of_events(topic: str) -> "Explanation | None":
    head, _, name = topic.partition(".")
    if head != "event":
        return None
    from noetl.dsl.explain import Explanation
    from noetl.engine.vocabulary import vocabulary

    for event in vocabulary():
        if event.name == name:
            text = f"{event.meaning}\n\nMade by: {event.producer}. Status: {event.status}."
            keys = tuple((item.name, item.type, item.place) for item in event.fields)
            return Explanation(topic=topic, title=event.meaning, text=text, keys=keys)
    return None


def nearest_topics(topic: str) -> tuple[str, ...]:
    """Topics whose names are close, those of the command line included."""
    from difflib import get_close_matches

    from noetl.dsl.explain import near

    close = get_close_matches(topic, topics(), n=3)
    return tuple(dict.fromkeys((*near(topic), *close)))[:3]


def _of_command_line(topic: str) -> "Explanation | None":
    from noetl.api.failures import reason_of
    from noetl.dsl.explain import Explanation

    head, _, name = topic.partition(".")
    if head == "exit" and name.isascii() and name.isdigit() and int(name) in EXITS:
        meaning = EXITS[int(name)]
        codes = [code for code, failure in FAILURES.items() if failure.exit_code == int(name)]
        more = f"\n\nError codes that end so: {', '.join(codes)}." if codes else ""
        return Explanation(topic=topic, title=meaning, text=meaning + more)
    code = name if head == "error" else topic
    if code in FAILURES:
        failure = FAILURES[code]
        text = f"{failure.meaning}\n\nThe command ends with {failure.exit_code}."
        return Explanation(topic=topic, title=failure.meaning, text=text)
    reason = reason_of(code)
    if reason is not None:
        text = f"{reason.meaning}\n\nWhat to do: {reason.remedy}"
        return Explanation(topic=topic, title=reason.meaning, text=text)
    for setting in SETTINGS:
        if topic in {f"setting.{setting.name}", setting.name}:
            return Explanation(
                topic=f"setting.{setting.name}",
                title=setting.meaning,
                text=setting.meaning if setting.is_read else f"{setting.meaning} {_UNREAD}",
                type=setting.kind,
                default=setting.default,
            )
    return None


def _as_json(found: "Explanation") -> dict[str, object]:
    keys = [{"name": name, "type": kind, "doc": doc} for name, kind, doc in found.keys]
    return asdict(found) | {"keys": keys, "aliases": list(found.aliases)}


def _write(out: "Output", found: "Explanation") -> None:
    out.line(out.styled(found.topic, "bold"))
    facts = [
        ("type", found.type),
        ("required", "" if found.required is None else ("no", "yes")[found.required]),
        ("default", found.default),
        ("also written", ", ".join(found.aliases)),
    ]
    out.write(columns([(f"  {name}", value) for name, value in facts if value], out.width))
    out.line("")
    for line in _paragraphs(found.text, out.width):
        out.line(line)
    if found.keys:
        out.line(f"\n{out.styled('Keys', 'bold')}")
        rows = [(f"  {name}", _short(kind), doc) for name, kind, doc in found.keys]
        out.write(columns(rows, out.width))


def _short(kind: str) -> str:
    """A type that leaves room for the meaning; the whole of it is in the key's own topic."""
    return kind if len(kind) <= _TYPE_WIDTH else f"{kind[: _TYPE_WIDTH - 3]}..."


def _paragraphs(text: str, width: int) -> Iterator[str]:
    """Lines of a text, long ones wrapped; indented lines are examples and stay."""
    for line in text.split("\n"):
        if line.startswith(" ") or not line:
            yield line
        else:
            yield from wrapped(line, width)


def _list(out: "Output") -> None:
    rows = [(topic, found.title) for topic in topics() if (found := find(topic))]
    if out.format == "name":
        for topic, _ in rows:
            out.line(topic)
    elif out.is_structured:
        out.items([{"topic": topic, "title": title} for topic, title in rows])
    else:
        out.write(columns(rows, out.width))


COMMAND = Spec(
    run=explain,
    outputs=("table", "json", "yaml", "name"),
    examples=(
        "noetl explain Playbook.workflow.loop",
        "noetl explain tool.http",
        "noetl explain DSL030",
        "noetl explain exit.7 -o json",
    ),
    takes="topics",
)
