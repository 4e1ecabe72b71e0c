"""`noetl logout`: ends the session that `noetl login` began."""

from typing import TYPE_CHECKING

import typer

from noetl.cli.command import remote_spec

if TYPE_CHECKING:
    from noetl.cli.output import Output

_ENDED = 401


def logout(ctx: typer.Context) -> None:
    """End the session of the context, everywhere; its token counts again, if it has one."""
    import asyncio

    from noetl.api.problems import Refused
    from noetl.cli.contexts import session_of
    from noetl.cli.doors import at_door, door_of
    from noetl.cli.failures import failure_of
    from noetl.errors import NoetlError

    out: Output = ctx.obj
    door = door_of(out)

    async def work(token: str) -> None:
        async with at_door(out, door.url, token) as client:
            try:
                await client.sign_out()
            except Refused as fault:
                if fault.problem.status != _ENDED:
                    raise

    is_signed_in = bool(door.entry.session)
    if is_signed_in:
        try:
            asyncio.run(work(session_of(door.entry)))
        except NoetlError as fault:
            if fault.code not in {"file_not_found", "file_unreadable"}:  # it is lost already
                raise failure_of(fault) from fault
        door.forget()
    if out.is_structured:
        out.document({"gateway_url": door.url, "context": door.name, "is_ended": is_signed_in})
    elif out.format == "name":
        out.line(f"context/{door.name}")
    else:
        out.note(
            f"signed out at {door.url}" if is_signed_in else f"nobody is signed in at {door.url}"
        )


COMMAND = remote_spec(logout, "noetl logout", "noetl logout -o json")
