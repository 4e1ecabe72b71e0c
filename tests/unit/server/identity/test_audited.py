"""What is kept of changes to accounts, roles, tokens and sessions: who and what, and no secret."""

from __future__ import annotations

import msgspec

from noetl.api.identity import (
    AccountChange,
    Login,
    NewAccount,
    NewRole,
    NewTenant,
    NewToken,
    RoleChange,
)
from tests.unit.server.identity.people import CHEAP, PASSWORD, caller, client_of, refusal
from tests.unit.server.rig import rig, virtually


@virtually
async def test_every_change_is_kept_and_no_secret_with_it() -> None:
    async with rig(is_open=False, password_kib=CHEAP) as r:
        admin, door = await caller(r, "root", "admin"), await caller(r, "gw", "gateway")
        await admin.add_tenant(NewTenant(tenant_id="acme"))
        await admin.add_role(NewRole(name="clerk"))
        await admin.change_role("clerk", RoleChange(permissions=("audit:read",)))
        await admin.remove_role("clerk")
        anna = await admin.add_user(NewAccount(subject="anna", password=PASSWORD))
        await admin.change_user(anna.account_id, AccountChange(display_name="Anna"))
        await admin.give_roles(anna.account_id, ("viewer",))
        wrong = Login(username="anna", password=PASSWORD[::-1])
        await refusal(door.login(wrong))
        await refusal(door.login(Login(username=PASSWORD, password=PASSWORD)))
        opened = [await door.login(Login(username="anna", password=PASSWORD)) for _ in range(2)]
        held = client_of(r, opened[0].session_token)
        made = await held.add_token(NewToken(name="laptop"))
        again = await held.rotate_token(made.token_id)
        await held.revoke_token(made.token_id)
        await held.revoke_session(opened[1].session_id)
        await door.end_session(opened[0].session_token)
        await admin.remove_user(anna.account_id)
        await r.plane.audits.settle()
        rows = await r.store.audit.read()
        kept = [(row.action, row.resource, row.outcome) for row in rows]
        done = [one for one in kept if one[2] == "ok"]
        assert done == [
            ("tenant.created", "acme", "ok"),
            ("role.created", "clerk", "ok"),
            ("role.changed", "clerk", "ok"),
            ("role.removed", "clerk", "ok"),
            ("user.created", "anna", "ok"),
            ("user.changed", "anna", "ok"),
            ("user.roles_changed", "anna", "ok"),
            ("auth.login.succeeded", "anna", "ok"),
            ("auth.login.succeeded", "anna", "ok"),
            ("auth.token.created", made.token_id, "ok"),
            ("auth.token.rotated", made.token_id, "ok"),
            ("auth.token.revoked", made.token_id, "ok"),
            ("auth.session.revoked", opened[1].session_id, "ok"),
            ("auth.logout", opened[0].session_id, "ok"),
            ("user.removed", "anna", "ok"),
        ]
        assert ("auth.login.failed", "anna", "bad_credentials") in kept
        text = msgspec.json.encode(rows).decode()
        for secret in (
            PASSWORD,
            PASSWORD[::-1],
            made.token,
            again.token,
            *(one.session_token for one in opened),
        ):
            assert secret not in text
