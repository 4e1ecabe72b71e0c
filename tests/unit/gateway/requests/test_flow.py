"""From a wish to the one result that its client is told."""

from __future__ import annotations

from noetl.telemetry.forms import MASK
from tests.unit.gateway.requests.desk import ANN, CLIENT, URL, desk
from tests.unit.server.rig import virtually


@virtually
async def test_14_a_playbook_without_a_callback_yields_exactly_one_result() -> None:
    async with desk() as d:
        started = await d.start(variables={"a": 1})
        assert started.status == "PENDING"
        assert await d.step({"sum": 3})
        while await d.heard():
            pass
        told = await d.messages()
        methods = [each["method"] for each in told]
        assert methods.count("playbook/result") == 1
        assert methods[-1] == "playbook/result"
        assert told[-2]["params"]["eventType"] == "playbook.completed"
        assert (await d.results())[0] == {
            "requestId": started.request_id,
            "executionId": started.execution_id,
            "status": "COMPLETED",
            "data": {"sum": 3},
        }


@virtually
async def test_14_a_failing_playbook_yields_failed_with_the_step() -> None:
    async with desk() as d:
        started = await d.start()
        await d.step(error="no flights")
        await d.heard()
        (result,) = await d.results()
        assert result["status"] == "FAILED"
        assert result["error"]["code"] == -32000
        assert result["error"]["message"] == "no flights"
        assert result["error"]["data"]["step"] == "start"
        assert result["error"]["data"]["executionId"] == started.execution_id


@virtually
async def test_13_with_a_client_the_playbook_sees_three_names_and_the_log_shows_no_token() -> None:
    async with desk() as d:
        given = {"request_id": "mine", "callback_token": "forged", "x": 1}
        started = await d.start(variables=given)
        run = await d.system.execution(started.execution_id)
        assert run.workload["request_id"] == started.request_id
        assert run.workload["gateway_url"] == URL
        assert run.workload["callback_token"] == MASK
        assert run.workload["x"] == 1
        token = await d.token(started.request_id)
        assert token not in {"forged", MASK}
        assert len(token) >= 43
        page = await d.system.events(started.execution_id)
        assert token not in str(page.items)


@virtually
async def test_without_client_or_delivery_nothing_is_injected_and_the_session_is_told() -> None:
    async with desk() as d:
        started = await d.start(client_id=None)
        run = await d.system.execution(started.execution_id)
        assert run.workload == {}
        await d.step()
        await d.heard()
        assert [each["requestId"] for each in await d.results()] == [started.request_id]


@virtually
async def test_a_cancelled_run_is_told_as_cancelled() -> None:
    async with desk() as d:
        started = await d.start()
        told = await d.requests.cancel(ANN, request_id=started.request_id, reason="enough")
        assert told == (started.execution_id, "CANCELLED")
        await d.published()
        await d.heard()
        (result,) = await d.results()
        assert (result["status"], result["error"]["code"]) == ("CANCELLED", -32004)
        assert await d.requests.pending(ANN, CLIENT) == []
