"""Accounts and roles: passed on to the server, which decides who may."""

from __future__ import annotations

from typing import TYPE_CHECKING

from noetl.api.identity import (
    Account,
    AccountChange,
    AccountPage,
    NewAccount,
    NewRole,
    Role,
    RoleChange,
    RolePage,
    RolesWanted,
)
from noetl.gateway.routes.tokens import GONE, MADE, passed_on

if TYPE_CHECKING:
    from starlette.routing import BaseRoute

    from noetl.gateway.gate import Gate


def routes(gate: Gate) -> list[BaseRoute]:
    """Every route of this file."""
    users, user = "/api/users", "/api/users/{account_id}"
    roles, role = "/api/roles", "/api/roles/{name}"
    return [
        passed_on(gate, "GET", users, "List the accounts of the caller's tenant.", AccountPage),
        passed_on(gate, "POST", users, "Make an account.", Account, NewAccount, MADE),
        passed_on(gate, "GET", user, "Read an account.", Account),
        passed_on(gate, "PATCH", user, "Change an account.", Account, AccountChange),
        passed_on(gate, "DELETE", user, "Forget an account.", None, None, GONE),
        passed_on(
            gate, "PUT", f"{user}/roles", "Give an account these roles.", Account, RolesWanted
        ),
        passed_on(gate, "GET", roles, "List the roles of the caller's tenant.", RolePage),
        passed_on(gate, "POST", roles, "Make a role.", Role, NewRole, MADE),
        passed_on(gate, "PUT", role, "Make a role give exactly this.", Role, RoleChange),
        passed_on(gate, "DELETE", role, "Forget a role that nobody has.", None, None, GONE),
    ]
