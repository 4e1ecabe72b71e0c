"""`noetl init`: a commented playbook and its test to start from."""

import re
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from noetl.cli.command import Spec
from noetl.cli.failures import CommandFailed
from noetl.cli.text import nearest

if TYPE_CHECKING:
    from noetl.cli.output import Output

TEMPLATES = {
    "hello": "One step that greets.",
    "etl": "Extract, transform, load into a table.",
    "loop": "One iteration per item, in parallel.",
    "http": "A call of another system, tried again when it fails.",
    "schedule": "A run at fixed times.",
    "branch": "A decision between two ways.",
}
_NAME = re.compile(r"[a-z][a-z0-9_]{0,62}")


def init(
    ctx: typer.Context,
    template: Annotated[
        str, typer.Argument(metavar="TEMPLATE", help=f"{', '.join(TEMPLATES)} (hello).")
    ] = "hello",
    name: Annotated[
        str | None, typer.Option("--name", metavar="NAME", help="Of the playbook; the template's.")
    ] = None,
    folder: Annotated[
        Path, typer.Option("--dir", metavar="DIR", help="Where the files are written (.).")
    ] = Path(),
) -> None:
    """Write a commented playbook NAME.yaml and its test NAME.test.yaml to start from.

    A file that is there is replaced only after a question, or with --yes.
    """
    out: Output = ctx.obj
    if template not in TEMPLATES:
        hint = nearest(template, tuple(TEMPLATES))
        raise CommandFailed("not_found", f"there is no template `{template}`", hint=hint)
    chosen = name or template
    if not _NAME.fullmatch(chosen):
        hint = "small letters, digits and underscores, a letter first"
        raise CommandFailed("usage", f"`{chosen}` cannot be the name of a playbook", hint=hint)
    files = [folder / f"{chosen}{suffix}" for suffix in (".yaml", ".test.yaml")]
    there = [str(file) for file in files if file.exists()]
    if there:
        from noetl.cli.asking import confirm

        confirm(out, f"replace {' and '.join(there)}?")
    _write(template, chosen, files)
    _tell(out, chosen, files)


def _write(template: str, name: str, files: list[Path]) -> None:
    from importlib import resources

    kept = resources.files("noetl.cli") / "templates"
    try:
        files[0].parent.mkdir(parents=True, exist_ok=True)
        for file, suffix in zip(files, (".yaml", ".test.yaml"), strict=True):
            text = (kept / f"{template}{suffix}").read_text(encoding="utf-8")
            made = text.replace("__name__", name).replace("__path__", f"starters/{name}")
            file.write_text(made, encoding="utf-8")
    except OSError as fault:
        message = f"{fault.filename} cannot be written: {fault.strerror}"
        raise CommandFailed("file_unwritable", message) from fault


def _tell(out: "Output", name: str, files: list[Path]) -> None:
    if out.is_structured:
        out.document({"name": name, "path": f"starters/{name}", "files": [str(f) for f in files]})
        return
    for file in files:
        out.line(str(file))
    if out.format != "name":
        out.note(f"run it with `noetl run {files[0]}`, test it with `noetl test {files[1]}`")


COMMAND = Spec(
    run=init,
    outputs=("table", "json", "yaml", "jsonl", "name"),
    examples=(
        "noetl init && noetl test hello.test.yaml",
        "noetl init etl --name orders --dir flows -o json",
    ),
    takes="templates",
)
