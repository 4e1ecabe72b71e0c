"""`noetl tenants`: those who share a platform and see nothing of each other."""

from typing import TYPE_CHECKING, Annotated, Any

import typer

from noetl.cli.command import Group, Spec
from noetl.cli.failures import CommandFailed
from noetl.cli.paging import Everything, Limit
from noetl.cli.people import Password
from noetl.cli.text import nearest

if TYPE_CHECKING:
    from noetl.cli.listing import Cell
    from noetl.cli.output import Output

_OUTPUTS = ("table", "json", "yaml", "jsonl", "name")
_HEAD = ("TENANT", "NAME", "CREATED", "LIMITS")


def list_tenants(
    ctx: typer.Context,
    limit: Limit = 50,
    everything: Everything = False,  # noqa: FBT002 - typer reads flags from defaults
) -> None:
    """List tenants, by id; for admins of the platform."""
    from noetl.cli.listing import Look
    from noetl.cli.paging import show_pages

    look = Look(head=_HEAD, row=_row, name=_name, nothing="there is no other tenant")
    show_pages(
        ctx.obj, lambda client, more: client.tenants(**more), look, None if everything else limit
    )


def create_tenant(  # noqa: PLR0913, PLR0917 - one parameter per option of the command line
    ctx: typer.Context,
    tenant: Annotated[str, typer.Argument(metavar="TENANT", help="Its id: a-z, 0-9, _ and -.")],
    name: Annotated[str, typer.Option("--name", metavar="TEXT", help="As people call it.")] = "",
    admin: Annotated[
        str | None, typer.Option("--admin", metavar="NAME", help="The account of its first admin.")
    ] = None,
    email: Annotated[
        str | None, typer.Option("--email", metavar="ADDRESS", help="Of that admin.")
    ] = None,
    password: Password = False,  # noqa: FBT002 - typer reads flags from defaults
    quotas: Annotated[
        list[str] | None,
        typer.Option("--quota", metavar="NAME=N", help="Like running_executions=100."),
    ] = None,
) -> None:
    """Make a tenant, and its first admin if one is named; for admins of the platform."""
    from noetl.api.identity import NewAccount, NewTenant
    from noetl.api.plain import plain
    from noetl.cli.listing import show_one
    from noetl.cli.people import password_of
    from noetl.cli.remote import ask

    out: Output = ctx.obj
    if admin is None and (email or password):
        message = "`--email` and `--password` are those of an admin"
        raise CommandFailed("usage", message, hint="add `--admin NAME`")
    made = None
    if admin is not None:
        made = NewAccount(subject=admin, email=email, password=password_of(out, password))
    body = NewTenant(tenant_id=tenant, name=name, limits=_limits(quotas or []), admin=made)
    found = plain(ask(out, lambda client: client.add_tenant(body)))
    show_one(out, found, _name(found))


def _limits(words: list[str]) -> Any:  # noqa: ANN401 - imported when it is needed
    from noetl.api.identity import TenantLimits
    from noetl.cli.inputs import pair

    known = TenantLimits.__struct_fields__
    found: dict[str, int] = {}
    for word in words:
        name, number = pair("--quota", word)
        if name not in known:
            hint = nearest(name, known)
            raise CommandFailed("usage", f"there is no quota `{name}`", hint=hint)
        if not (number.isascii() and number.isdigit()):
            message = f"`--quota {word}` is not a number"
            raise CommandFailed("usage", message, hint=f"write `--quota {name}=100`")
        found[name] = int(number)
    return TenantLimits(**found)


def _name(item: dict[str, Any]) -> str:
    return f"tenant/{item['tenant_id']}"


def _row(item: dict[str, Any]) -> "tuple[Cell, ...]":
    from noetl.cli.times import At

    limits = ", ".join(f"{name} {number}" for name, number in item["limits"].items())
    return item["tenant_id"], item["name"] or "-", At(item["created_at"]), limits or "-"


COMMAND = Group(
    about="List and make tenants: those who share a platform and see nothing of each other.",
    commands={
        "list": Spec(
            run=list_tenants,
            outputs=_OUTPUTS,
            examples=("noetl tenants list", "noetl tenants list -o json"),
            takes="nothing",
            is_remote=True,
        ),
        "create": Spec(
            run=create_tenant,
            outputs=_OUTPUTS,
            examples=(
                "noetl tenants create acme --name 'Acme Ltd' --quota running_executions=100",
                "noetl tenants create umbrella --admin alice --email alice@example.org -o json",
            ),
            takes="nothing",
            is_remote=True,
            is_mutating=True,
        ),
    },
    examples=("noetl tenants list", "noetl tenants list -o name"),
)
