"""Variables of runs."""

from __future__ import annotations

from typing import Any, Literal

import msgspec

VarType = Literal["user_defined", "step_result", "computed", "iterator_state"]


class SetVariable(
    msgspec.Struct, frozen=True, kw_only=True, omit_defaults=True, forbid_unknown_fields=True
):
    """A variable to keep under its name."""

    var_name: str
    var_value: Any
    var_type: VarType = "user_defined"
    source_step: str | None = None
    ttl_seconds: int | None = None
    """After which it is there no more; none: it stays as long as its run."""


class SetVariables(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """Variables to keep, all of them or none."""

    variables: tuple[SetVariable, ...]


class VariablesSet(msgspec.Struct, frozen=True, kw_only=True):
    """How many were kept."""

    execution_id: str
    variables_set: int
    status: str = "ok"


class Variable(msgspec.Struct, frozen=True, kw_only=True):
    """A variable, and how often it was read."""

    var_name: str
    var_type: str
    var_value: Any
    source_step: str | None
    created_at: str
    accessed_at: str | None
    access_count: int


class VariableDeleted(msgspec.Struct, frozen=True, kw_only=True):
    """A variable is there no more."""

    status: Literal["deleted"] = "deleted"


class VariablesDeleted(msgspec.Struct, frozen=True, kw_only=True):
    """How many there were."""

    execution_id: str
    variables_deleted: int
    status: str = "ok"
