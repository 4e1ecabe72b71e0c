import pytest

from noetl.dsl.tasks import Python
from noetl.dsl.views import Outcome
from noetl.local.credentials import Credentials
from noetl.tools.base import ToolContext, Traits, run_tool


class Asking:
    kind = "python"
    Config = Python
    traits = Traits()

    async def run(self, config, ctx):
        del config
        return Outcome(data=dict(await ctx.secrets("shop")))

    async def cancel(self, ctx):
        del ctx


def context(credentials):
    return ToolContext(
        execution_id="7", step="s", command_id="c", idempotency_key="k",
        redactor=credentials.redactor(), secrets=credentials.fields,
    )  # fmt: skip


async def test_a_tool_is_told_the_credential_and_its_outcome_does_not_show_it():
    fields = {"user": "kim", "password": "hunter22", "keys": [{"token": "abcdef12"}], "n": 4711234}
    credentials = Credentials({"shop": fields})

    outcome = await run_tool(Asking(), {"kind": "python", "code": "1"}, context(credentials))

    assert outcome.data["user"] == "kim"
    assert (outcome.data["password"], outcome.data["keys"]) == ("***", [{"token": "***"}])


async def test_a_credential_that_was_not_brought_is_not_there():
    with pytest.raises(LookupError):
        await Credentials({}).fields("shop")
