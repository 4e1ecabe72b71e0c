"""`noetl db`: the only commands that open a database."""

from dataclasses import asdict
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from noetl.cli.asked import QUERY
from noetl.cli.command import Group, Spec
from noetl.cli.databases import DatabaseUrl, with_database
from noetl.cli.failures import CommandFailed
from noetl.cli.first import ADMIN
from noetl.cli.retention import RETENTION

if TYPE_CHECKING:
    from noetl.cli.output import Output
    from noetl.server.admin import Backup, Copied

_OUTPUTS = ("table", "json", "yaml", "jsonl", "name")
_Home = Annotated[
    Path | None, typer.Option("--home", metavar="DIR", help="Folder of the stack (.noetl).")
]


def migrate(ctx: typer.Context, database_url: DatabaseUrl = None) -> None:
    """Bring a database to this release.

    The database is the one of --database-url, NOETL_DATABASE_URL, or the embedded stack.
    Migrations go forward only, one migrator at a time.
    """
    from noetl.cli.text import counted

    out: Output = ctx.obj

    async def work(url: str) -> list[str]:
        from noetl.server.admin import migrate as bring

        return await bring(url)

    applied = with_database(out, database_url, work)
    if out.is_structured:
        out.document({"applied": applied})
        return
    for name in applied:
        out.line(name)
    out.note(f"{counted(len(applied), 'migration')} applied" if applied else "nothing to do")


def status(ctx: typer.Context, database_url: DatabaseUrl = None) -> None:
    """Say which migrations of this release a database has."""
    from noetl.cli.listing import Look, show_list

    async def work(url: str) -> list[dict[str, Any]]:
        from noetl.server.admin import changes

        return [asdict(change) for change in await changes(url)]

    items = with_database(ctx.obj, database_url, work)
    look = Look(
        head=("MIGRATION", "STATE"),
        row=lambda one: (one["name"], "applied" if one["is_applied"] else "missing"),
        name=lambda one: f"migration/{one['name']}",
    )
    show_list(ctx.obj, items, look)


def check(ctx: typer.Context, database_url: DatabaseUrl = None, home: _Home = None) -> None:
    """Compare a database with the migrations, and its rows with what runs rely on.

    Reads only, as one moment shows it; servers may go on. Ends with 1 when something fails.
    """
    from noetl.cli.listing import Look, show_list

    out: Output = ctx.obj

    async def work(url: str) -> list[dict[str, Any]]:
        from noetl.server.admin import check as look_at

        return [asdict(one) | {"found": list(one.found)} for one in await look_at(url)]

    items = with_database(out, database_url, work, home=home)
    failed = [one["name"] for one in items if not one["is_ok"]]
    if failed and out.is_structured:
        message = f"failed: {', '.join(failed)}"
        raise CommandFailed("check_failed", message, details={"items": items})
    look = Look(
        head=("CHECK", "VERDICT", "MEANING", "FOUND"),
        row=lambda one: (
            one["name"], "ok" if one["is_ok"] else "fail", one["meaning"],
            ", ".join(one["found"]) or "-",
        ),
        name=lambda one: f"check/{one['name']}",
    )  # fmt: skip
    show_list(out, items, look)
    if failed:
        hint = "`noetl db check -o json` names what was found"
        raise CommandFailed("check_failed", f"failed: {', '.join(failed)}", hint=hint)


def backup(
    ctx: typer.Context,
    file: Annotated[Path, typer.Argument(metavar="FILE", help="The file that is written.")],
    database_url: DatabaseUrl = None,
    home: _Home = None,
) -> None:
    """Write all rows of a database into one file, as one moment saw them.

    Servers go on meanwhile. The file has checksums and is readable by its owner alone. The keys
    of secrets/ are not in it: keep secrets/encryption.key of the stack apart from it.
    """
    out: Output = ctx.obj
    if file.exists():
        from noetl.cli.asking import confirm

        confirm(out, f"replace {file}?")
    if not file.absolute().parent.is_dir():
        message = f"there is no folder {file.absolute().parent}"
        raise CommandFailed("file_not_found", message, hint="make it first")

    async def work(url: str) -> "Backup":
        from noetl.server.admin import backup as write

        return await write(url, file, lambda one: _tell(out, "kept", one))

    try:
        found = with_database(out, database_url, work, home=home)
    except OSError as fault:
        message = f"{file} cannot be written: {fault.strerror}"
        raise CommandFailed("file_unwritable", message, hint="is the disk full?") from fault
    _show(out, file, found, file.stat().st_size)


def restore(  # noqa: PLR0913, PLR0917 - one parameter per option of the command line
    ctx: typer.Context,
    file: Annotated[Path, typer.Argument(metavar="FILE", help="A file of `noetl db backup`.")],
    database_url: DatabaseUrl = None,
    home: _Home = None,
    force: Annotated[  # noqa: FBT002 - typer reads flags from defaults
        bool, typer.Option("--force", help="Delete what the database holds; needs --yes too.")
    ] = False,
    verify: Annotated[  # noqa: FBT002 - as above
        bool, typer.Option("--verify", help="Only compare the file with its checksums.")
    ] = False,
) -> None:
    """Put a backup into an empty database, and bring it to this release.

    No server may be connected. Without --database-url the database of --home is made and started
    for it; `noetl up` there goes on with the runs that were open. A database that is not empty
    ends with 6, unless --force and --yes are given.
    """
    out: Output = ctx.obj
    if not file.is_file():
        raise CommandFailed("file_not_found", f"there is no file {file}", hint="check the path")
    if verify:
        _show(out, file, _verified(file), file.stat().st_size)
        return
    if force:
        from noetl.cli.asking import confirm

        confirm(out, "delete everything that the database holds?")

    async def work(url: str) -> "Backup":
        from noetl.server.admin import restore as put_back

        return await put_back(url, file, is_forced=force, told=lambda one: _tell(out, "put", one))

    found = with_database(out, database_url, work, home=home, may_make=True)
    _show(out, file, found, file.stat().st_size)


def _verified(file: Path) -> "Backup":
    from noetl.cli.failures import failure_of
    from noetl.errors import NoetlError
    from noetl.server.admin import verified

    try:
        return verified(file)
    except NoetlError as fault:
        raise failure_of(fault) from fault


def _tell(out: "Output", verb: str, one: "Copied") -> None:
    out.debug(f"{verb} {one.rows} rows of {one.name}")


def _show(out: "Output", file: Path, found: "Backup", size: int) -> None:
    from noetl.cli.listing import show_one

    told = asdict(found) | {"migrations": list(found.migrations)}
    told["tables"] = [asdict(table) for table in found.tables]
    rows = sum(table.rows for table in found.tables)
    item = {"file": str(file), "bytes": size, "rows": rows, **told}
    if out.format == "table":
        del item["tables"]
    show_one(out, item, str(file))


def _spec(run: Any, *examples: str) -> Spec:  # noqa: ANN401 - the function of a command
    return Spec(run=run, outputs=_OUTPUTS, examples=examples, takes="files")


_NONE = '|| echo "no database"'

COMMAND = Group(
    about="Migrate, check, ask, back up and restore a database; only these commands open it.",
    commands={
        "migrate": _spec(
            migrate,
            'noetl db migrate --database-url postgresql://127.0.0.1:1/noetl || echo "not there"',
            f"noetl db migrate -o json {_NONE}",
        ),
        "status": _spec(status, f"noetl db status {_NONE}", f"noetl db status -o json {_NONE}"),
        "check": _spec(check, f"noetl db check {_NONE}", f"noetl db check -o json {_NONE}"),
        "query": QUERY,
        "backup": _spec(
            backup,
            f"noetl db backup noetl.backup {_NONE}",
            f"noetl db backup noetl.backup --home .noetl -v -o json {_NONE}",
        ),
        "restore": _spec(
            restore,
            'noetl db restore noetl.backup --home restored || echo "no such file"',
            'noetl db restore noetl.backup --verify || echo "no such file"',
        ),
        "retention": RETENTION,
        "admin": ADMIN,
    },
    examples=(f"noetl db status {_NONE}", f"noetl db check {_NONE}"),
)
