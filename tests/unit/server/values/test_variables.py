"""Variables of runs, as routes show them."""

from __future__ import annotations

import asyncio

import msgspec
import pytest

from noetl.api.problems import Refused
from noetl.api.variables import SetVariable, SetVariables, Variable
from noetl.server.values import variables as limits
from tests.unit.server.rig import ONE_STEP, rig, virtually
from tests.unit.server.values.calls import call, codes, started, tenant


@virtually
async def test_variables_are_set_read_listed_and_deleted() -> None:
    async with rig() as r:
        run = await r.start(ONE_STEP)
        path = f"/api/vars/{run}"
        answer, told = await call(
            r,
            "POST",
            path,
            {
                "variables": [
                    {"var_name": "a/b", "var_value": {"x": 1}},
                    {
                        "var_name": "n",
                        "var_value": None,
                        "var_type": "computed",
                        "source_step": "s",
                    },
                ]
            },
        )
        assert answer.status == 200
        assert told == {"execution_id": run, "variables_set": 2, "status": "ok"}
        _, listed = await call(r, "GET", path)
        assert listed == [
            {
                "var_name": "a/b", "var_type": "user_defined", "var_value": {"x": 1},
                "source_step": None, "created_at": listed[0]["created_at"],
                "accessed_at": None, "access_count": 0,
            },
            {
                "var_name": "n", "var_type": "computed", "var_value": None, "source_step": "s",
                "created_at": listed[0]["created_at"], "accessed_at": None, "access_count": 0,
            },
        ]  # fmt: skip
        _, one = await call(r, "GET", f"{path}/a%2Fb")
        assert (one["access_count"], one["accessed_at"] is None) == (1, False)
        assert (await call(r, "GET", f"{path}/a/b"))[1]["access_count"] == 2
        _, gone = await call(r, "DELETE", f"{path}/n")
        assert gone == {"status": "deleted"}
        _, cleared = await call(r, "DELETE", path)
        assert cleared == {"execution_id": run, "variables_deleted": 1, "status": "ok"}
        assert (await call(r, "GET", path))[1] == []


@virtually
async def test_the_alias_is_the_same_thing() -> None:
    async with rig() as r:
        run = await r.start(ONE_STEP)
        body = {"variables": [{"var_name": "x", "var_value": 1}]}
        await call(r, "POST", f"/api/variables/{run}", body)
        _, one = await call(r, "GET", f"/api/vars/{run}/x")
        assert one["var_value"] == 1
        assert (await call(r, "GET", f"/api/variables/{run}"))[1][0]["access_count"] == 1
        assert (await call(r, "DELETE", f"/api/variables/{run}/x"))[1] == {"status": "deleted"}
        assert (await call(r, "DELETE", f"/api/variables/{run}"))[1]["variables_deleted"] == 0


@virtually
async def test_the_client_speaks_all_of_it() -> None:
    async with rig() as r:
        run = await r.start(ONE_STEP)
        wanted = SetVariables(variables=(SetVariable(var_name="ä b", var_value=[1]),))
        assert (await r.client.set_variables(run, wanted)).variables_set == 1
        (listed,) = await r.client.variables(run)
        assert isinstance(listed, Variable)
        assert (await r.client.variable(run, "ä b")).var_value == [1]
        assert (await r.client.delete_variable(run, "ä b")).status == "deleted"
        assert (await r.client.delete_variables(run)).variables_deleted == 0


@virtually
async def test_what_cannot_be_meant_is_refused() -> None:
    async with rig() as r:
        run = await r.start(ONE_STEP)
        path = f"/api/vars/{run}"

        def variable(**fields: object) -> tuple[str, str, dict[str, object]]:
            return "POST", path, {"variables": [{"var_name": "x", "var_value": 1} | fields]}

        assert await codes(
            r,
            ("GET", "/api/vars/12"), ("POST", "/api/vars/12", {"variables": []}),
            ("DELETE", "/api/vars/12"), ("GET", "/api/vars/x"), ("GET", f"{path}/nothing"),
            ("DELETE", f"{path}/nothing"), ("GET", "/api/vars/12/x"), ("DELETE", "/api/vars/12/x"),
            ("GET", f"{path}?limit=1"), ("POST", path, {}), ("POST", path, b"{"),
            variable(var_type="secret"), variable(colour=1), variable(var_name=""),
            variable(var_name=" "), variable(var_name="x" * 256), variable(ttl_seconds=0),
            variable(ttl_seconds=366 * 86_400 + 1), variable(var_value="x" * (1 << 20)),
            variable(var_value="x" * (2 << 20)),
        ) == [
            (404, "unknown_execution"), (404, "unknown_execution"), (404, "unknown_execution"),
            (422, "invalid_id"), (404, "not_found"), (404, "not_found"), (404, "not_found"),
            (404, "not_found"), (422, "unknown_parameter"), (422, "validation_failed"),
            (400, "bad_json"), (422, "validation_failed"), (422, "unknown_field"),
            (422, "validation_failed"), (422, "validation_failed"), (422, "validation_failed"),
            (422, "validation_failed"), (422, "validation_failed"), (413, "body_too_large"),
            (413, "body_too_large"),
        ]  # fmt: skip
        assert (await call(r, "GET", path))[1] == []


@virtually
async def test_a_value_of_a_mebibyte_is_kept() -> None:
    async with rig() as r:
        run = await r.start(ONE_STEP)
        text = "x" * ((1 << 20) - 2)
        body = {"variables": [{"var_name": "x", "var_value": text}]}
        assert (await call(r, "POST", f"/api/vars/{run}", body))[0].status == 200
        assert (await r.client.variable(run, "x")).var_value == text


@virtually
async def test_a_variable_with_a_time_is_gone_when_it_has_passed() -> None:
    async with rig() as r:
        run = await r.start(ONE_STEP)
        body = {"variables": [{"var_name": "x", "var_value": 1, "ttl_seconds": 60}]}
        await call(r, "POST", f"/api/vars/{run}", body)
        assert (await r.client.variable(run, "x")).var_value == 1
        await asyncio.sleep(60)
        with pytest.raises(Refused) as refused:
            await r.client.variable(run, "x")
        assert refused.value.code == "not_found"
        assert await r.client.variables(run) == ()


@virtually
async def test_a_run_has_ten_thousand_and_a_long_list_is_whole() -> None:
    async with rig() as r:
        run = await r.start(ONE_STEP)
        assert limits.MOST_VARIABLES == 10_000
        wanted = [{"var_name": f"v{n:05}", "var_value": n} for n in range(10_000)]
        await call(r, "POST", f"/api/vars/{run}", {"variables": wanted})
        path, more = f"/api/vars/{run}", {"var_name": "w", "var_value": 1}
        assert await codes(
            r, ("POST", path, {"variables": [more]}), ("POST", path, {"variables": [*wanted, more]})
        ) == [(422, "validation_failed"), (422, "validation_failed")]
        listed = await r.client.variables(run)
        assert [one.var_value for one in listed] == list(range(10_000))


@virtually
async def test_variables_of_another_tenant_are_not_there() -> None:
    async with rig(is_open=False) as r:
        mine, other = await tenant(r, "acme"), await tenant(r, "globex")
        viewer = await tenant(r, "acme", "viewer")
        run = await started(mine)
        wanted = SetVariables(variables=(SetVariable(var_name="x", var_value=1),))
        await mine.set_variables(run, wanted)
        assert (await viewer.variable(run, "x")).var_value == 1
        found = []
        for asked in (
            other.variables(run), other.variable(run, "x"), other.set_variables(run, wanted),
            other.delete_variable(run, "x"), other.delete_variables(run),
            viewer.set_variables(run, wanted),
        ):  # fmt: skip
            with pytest.raises(Refused) as refused:
                await asked
            found.append((refused.value.problem.status, refused.value.code))
        assert found == [(404, "unknown_execution")] * 5 + [(403, "forbidden")]
        assert len(msgspec.to_builtins(await mine.variables(run))) == 1
