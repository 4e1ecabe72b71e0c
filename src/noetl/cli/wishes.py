"""The options by which a run is given its inputs, alike for `run` and `exec`."""

from typing import Annotated

import typer

Values = Annotated[
    list[str] | None,
    typer.Option("--set", metavar="KEY=VALUE", help="One input; JSON, else text. a.b nests."),
]
Texts = Annotated[
    list[str] | None,
    typer.Option("--set-string", metavar="KEY=TEXT", help="One input that is always text."),
]
TextFiles = Annotated[
    list[str] | None,
    typer.Option("--set-file", metavar="KEY=FILE", help="One input: the text of a file."),
]
Payload = Annotated[
    str | None,
    typer.Option("--payload", "--workload", metavar="JSON|@FILE|-", help="Inputs as one JSON map."),
]
InputFile = Annotated[
    str | None,
    typer.Option("-i", "--input", metavar="FILE", help="Inputs as a YAML or JSON file."),
]
