"""The options by which runs are chosen, alike for a list of them and for many at once."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Annotated, Any

import typer

if TYPE_CHECKING:
    from noetl.api.client import Client

Statuses = Annotated[
    list[str] | None, typer.Option("--status", metavar="STATUS", help="Only these.")
]
Path = Annotated[
    str | None, typer.Option("--path", metavar="PATH", help="Of a playbook; etl/* of many.")
]
Since = Annotated[
    str | None, typer.Option("--since", metavar="TIME", help="Started then or later; 2h ago.")
]
Until = Annotated[str | None, typer.Option("--until", metavar="TIME", help="Started before then.")]
Parent = Annotated[
    str | None, typer.Option("--parent", metavar="ID", help="Children of a run; none: nobody's.")
]
Labels = Annotated[
    list[str] | None, typer.Option("--label", metavar="KEY=VALUE", help="With this label.")
]
Text = Annotated[
    str | None, typer.Option("--text", metavar="TEXT", help="Path or error begins so.")
]


@dataclass(frozen=True, slots=True, kw_only=True)
class Filter:
    """Which runs are meant, as it was written."""

    status: tuple[str, ...] = ()
    path: str | None = None
    since: str | None = None
    until: str | None = None
    parent: str | None = None
    labels: tuple[str, ...] = ()
    text: str | None = None

    @property
    def is_empty(self) -> bool:
        """Whether every run is meant."""
        return self == Filter()

    async def asked(self, client: Client) -> dict[str, Any]:
        """The same as the server's query takes it, without what was not given."""
        from noetl.cli.inputs import pair
        from noetl.cli.references import execution_of
        from noetl.cli.times import moment
        from noetl.clock import SystemClock

        now = SystemClock().now()
        parent = self.parent
        if parent is not None and parent != "none":
            parent = await execution_of(client, parent)
        found = {
            "status": [word.upper() for word in self.status],
            "path": self.path,
            "since": moment("--since", self.since, now) if self.since else None,
            "until": moment("--until", self.until, now) if self.until else None,
            "parent_execution_id": parent,
            "label": [":".join(pair("--label", word)) for word in self.labels],
            "q": self.text,
        }
        return {name: value for name, value in found.items() if value}
