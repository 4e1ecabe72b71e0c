"""`noetl roles`: what accounts may do, and on which paths."""

from functools import partial
from typing import TYPE_CHECKING, Annotated, Any

import typer

from noetl.cli.command import Group, remote_spec
from noetl.cli.failures import CommandFailed
from noetl.cli.text import nearest

if TYPE_CHECKING:
    from noetl.api.client import Client
    from noetl.api.identity import Role, RoleChange
    from noetl.cli.output import Output

_OUTPUTS = ("table", "json", "yaml", "jsonl", "name")
_HEAD = ("ROLE", "BUILT IN", "GRANTS", "PERMISSIONS")
_NOT_THERE = 404
_EFFECTS = ("allow", "deny")
_Role = Annotated[str, typer.Argument(metavar="ROLE", help="The name of a role.")]


def list_roles(ctx: typer.Context) -> None:
    """List roles, the built-in ones first."""
    from noetl.cli.listing import Look, show_list
    from noetl.cli.remote import ask

    out: Output = ctx.obj
    items = list(ask(out, _roles).values())
    show_list(out, items, Look(head=_HEAD, row=_row, name=_name))


def get_role(ctx: typer.Context, role: _Role) -> None:
    """Show one role: its permissions, and what it allows and denies on paths."""
    from noetl.cli.listing import show_one
    from noetl.cli.remote import ask

    out: Output = ctx.obj
    known = ask(out, _roles)
    name = _plain(role)
    if name not in known:
        hint = nearest(name, tuple(known))
        raise CommandFailed("not_found", f"there is no role `{name}`", hint=hint)
    show_one(out, known[name], _name(known[name]))


def put_role(
    ctx: typer.Context,
    role: _Role,
    permissions: Annotated[
        list[str] | None,
        typer.Option("--permission", metavar="NAME", help="Like execution:run; everywhere."),
    ] = None,
    grants: Annotated[
        list[str] | None,
        typer.Option(
            "--grant", metavar="EFFECT:ACTIONS:PATH", help="Like allow:execute,view:finance/*."
        ),
    ] = None,
    file: Annotated[
        str | None,
        typer.Option("-f", "--file", metavar="FILE", help="Both as YAML or JSON; - is stdin."),
    ] = None,
) -> None:
    """Make a role give exactly this; one that is not there is made.

    A grant allows or denies execute, view, modify, * or a permission on a path, or on all that
    begin so. A deny that fits beats every allow.
    """
    from noetl.api.plain import plain
    from noetl.cli.inputs import document
    from noetl.cli.listing import show_one
    from noetl.cli.remote import ask

    out: Output = ctx.obj
    wanted: dict[str, Any] = {
        "permissions": list(permissions or ()), "grants": [_grant(word) for word in grants or ()],
    }  # fmt: skip
    if file is not None:
        if permissions or grants:
            message = "`--file` and the other options exclude each other"
            raise CommandFailed("usage", message, hint="leave one of them out")
        wanted = document(file, f"-f {file}")
    change = _change(wanted)
    name = _plain(role)
    found = plain(ask(out, lambda client: _put(client, name, change)))
    show_one(out, found, _name(found))


def _change(wanted: dict[str, Any]) -> "RoleChange":
    import json

    from noetl.api.identity import RoleChange
    from noetl.api.plain import Unreadable, read

    try:
        return read(json.dumps(wanted).encode(), RoleChange)
    except Unreadable as fault:
        hint = "`noetl roles get ROLE -o yaml` shows what one looks like"
        raise CommandFailed("usage", fault.message, hint=hint) from fault


async def _put(client: "Client", name: str, change: "RoleChange") -> "Role":
    from noetl.api.identity import NewRole
    from noetl.api.problems import Refused

    try:
        return await client.change_role(name, change)
    except Refused as fault:
        if fault.problem.status != _NOT_THERE:
            raise
    made = NewRole(name=name, permissions=change.permissions, grants=change.grants)
    return await client.add_role(made)


def delete_role(ctx: typer.Context, role: _Role) -> None:
    """Forget a role that nobody has."""
    from noetl.cli.asking import guard
    from noetl.cli.remote import ask

    out: Output = ctx.obj
    name = _plain(role)
    guard(out, f"delete the role {name}?")
    ask(out, lambda client: client.remove_role(name))
    if out.is_structured:
        out.document({"name": name, "status": "deleted"})
    elif out.format == "name":
        out.line(f"role/{name}")
    else:
        out.note(f"{name} is deleted")


async def _roles(client: "Client") -> dict[str, dict[str, Any]]:
    from noetl.api.plain import plain

    return {role.name: plain(role) for role in (await client.roles()).items}


def _grant(word: str) -> dict[str, Any]:
    """A grant as it is written; an action may have a colon, a path has none."""
    effect, _, rest = word.partition(":")
    actions, colon, path = rest.rpartition(":")
    if effect not in _EFFECTS or not colon or not actions or not path:
        message = f"`--grant {word}` is not a grant"
        raise CommandFailed("usage", message, hint="write it like allow:execute,view:finance/*")
    return {"effect": effect, "actions": actions.split(","), "path": path}


def _plain(word: str) -> str:
    return word.removeprefix("role/")


def _name(item: dict[str, Any]) -> str:
    return f"role/{item['name']}"


def _row(item: dict[str, Any]) -> tuple[str, ...]:
    grants = "; ".join(
        f"{one['effect']}:{','.join(one['actions'])}:{one['path']}" for one in item["grants"]
    )
    is_built_in = "yes" if item["is_built_in"] else "-"
    return item["name"], is_built_in, grants or "-", ", ".join(item["permissions"]) or "-"


_spec = partial(remote_spec, is_mutating=True)

COMMAND = Group(
    about="List, make and change roles: what accounts may do, and on which paths.",
    commands={
        "list": _spec(
            list_roles, "noetl roles list", "noetl roles list -o json", is_mutating=False
        ),
        "get": _spec(
            get_role,
            "noetl roles get developer",
            "noetl roles get role/developer -o json",
            is_mutating=False,
        ),
        "put": _spec(
            put_role,
            "noetl roles put finance --grant 'allow:execute,view:finance/*'",
            "noetl roles put auditor --permission audit:read --grant 'deny:*:hr/*' -o json",
        ),
        "delete": _spec(
            delete_role, "noetl roles delete analyst --yes", "noetl roles delete analyst -y -o name"
        ),
    },
    examples=("noetl roles list", "noetl roles get developer -o json"),
)
