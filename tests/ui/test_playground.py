"""The playground: from the sign-in to the one result, whatever the network and the tab do."""

from __future__ import annotations

import json
from typing import TYPE_CHECKING

from playwright.sync_api import expect

from tests.servers.gateway import PASSWORD

if TYPE_CHECKING:
    from playwright.sync_api import Locator, Page

    from tests.servers.gateway import GatewayStack
    from tests.ui.conftest import Visitor

TOKEN = "nts_"  # noqa: S105 - what every one begins with


def started(page: Page, path: str, hold: str, deadline: int = 60) -> Locator:
    """Run the playbook; its card, once the run waits."""
    page.get_by_label("Playbook", exact=True).fill(path)
    page.get_by_label("Variables (JSON)").fill(json.dumps({"hold": hold}))
    page.get_by_label("Deadline in seconds").fill(str(deadline))
    page.get_by_role("button", name="Run").click()
    card = page.get_by_role("article")
    expect(card).to_have_count(1)
    return card


def results_of(page: Page) -> int:
    """How many results the gateway has sent to this tab."""
    return page.locator("#frames li[data-method='playbook/result']").count()


def expect_result(page: Page) -> None:
    """The card tells the data, which came once."""
    card = page.get_by_role("article")
    expect(card).to_have_attribute("data-state", "completed")
    expect(card).to_have_attribute("data-results", "1")
    expect(card.locator(".data")).to_have_text('{ "parcels": 3 }')


def test_a_result_is_got_over_a_lost_network(
    visitor: Visitor, gateway_stack: GatewayStack, waiting: str
) -> None:
    name = gateway_stack.name("network")
    page = visitor.signed_in()
    card = started(page, waiting, gateway_stack.hold.url(name))
    expect(card.locator(".message")).to_have_text("begin: half of it")
    expect(card.get_by_role("progressbar")).to_have_attribute("value", "0.5")
    gateway_stack.hold.arrived(name)

    visitor.lose_network()
    expect(page.locator("#badge")).to_have_text("reconnecting")
    gateway_stack.hold.release(name)
    assert gateway_stack.ended(card.locator(".execution").inner_text()) == "COMPLETED"
    expect(card).to_have_attribute("data-state", "running")

    visitor.find_network()
    expect(page.locator("#badge")).to_have_text("live")
    expect_result(page)
    assert results_of(page) == 1


def test_a_tab_that_is_closed_and_opened_again_gets_the_result_once(
    visitor: Visitor, gateway_stack: GatewayStack, waiting: str
) -> None:
    name = gateway_stack.name("tab")
    first = visitor.signed_in()
    card = started(first, waiting, gateway_stack.hold.url(name))
    gateway_stack.hold.arrived(name)
    request_id = card.locator(".request").inner_text()
    first.close()

    second = visitor.open()
    card = second.get_by_role("article")
    expect(card.locator(".request")).to_have_text(request_id)
    expect(card).to_have_attribute("data-state", "running")
    gateway_stack.hold.release(name)
    expect_result(second)
    assert results_of(second) == 1
    second.close()

    third = visitor.open()
    expect(third.locator("#badge")).to_have_text("live")
    expect(third.get_by_role("article")).to_have_count(0)
    assert results_of(third) == 0


def test_a_result_that_came_while_no_tab_was_open_is_told_by_the_next_one(
    visitor: Visitor, gateway_stack: GatewayStack, waiting: str
) -> None:
    name = gateway_stack.name("away")
    first = visitor.signed_in()
    card = started(first, waiting, gateway_stack.hold.url(name))
    gateway_stack.hold.arrived(name)
    execution_id = card.locator(".execution").inner_text()
    first.close()
    gateway_stack.hold.release(name)
    assert gateway_stack.ended(execution_id) == "COMPLETED"

    second = visitor.open()
    expect_result(second)
    assert results_of(second) == 1


def test_a_page_that_is_loaded_again_goes_on_as_the_same_client(
    visitor: Visitor, gateway_stack: GatewayStack, waiting: str
) -> None:
    name = gateway_stack.name("reload")
    page = visitor.signed_in()
    card = started(page, waiting, gateway_stack.hold.url(name))
    gateway_stack.hold.arrived(name)
    request_id = card.locator(".request").inner_text()
    page.reload()
    expect(page.get_by_role("article").locator(".request")).to_have_text(request_id)
    gateway_stack.hold.release(name)
    expect_result(page)
    assert results_of(page) == 1


def test_two_tabs_are_two_clients(
    visitor: Visitor, gateway_stack: GatewayStack, waiting: str
) -> None:
    first = visitor.signed_in()
    second = visitor.open()
    expect(second.locator("#badge")).to_have_text("live")
    name = gateway_stack.name("two")
    started(first, waiting, gateway_stack.hold.url(name))
    gateway_stack.hold.release(name)
    expect_result(first)
    assert results_of(first) == 1
    assert results_of(second) == 0
    assert first.locator("#frames li[data-method='connection/superseded']").count() == 0


def test_a_run_past_its_deadline_ends_in_the_page(
    visitor: Visitor, gateway_stack: GatewayStack, waiting: str
) -> None:
    name = gateway_stack.name("deadline")
    page = visitor.signed_in()
    card = started(page, waiting, gateway_stack.hold.url(name), deadline=1)
    expect(card).to_have_attribute("data-state", "failed")
    expect(card.locator(".message")).to_contain_text("-32001")
    expect(card).to_have_attribute("data-results", "1")
    gateway_stack.hold.release(name)
    assert gateway_stack.ended(card.locator(".execution").inner_text()) == "COMPLETED"
    expect(card).to_have_attribute("data-state", "failed")
    assert results_of(page) == 1


def test_a_run_is_cancelled_by_its_button(
    visitor: Visitor, gateway_stack: GatewayStack, waiting: str
) -> None:
    name = gateway_stack.name("cancel")
    page = visitor.signed_in()
    card = started(page, waiting, gateway_stack.hold.url(name))
    gateway_stack.hold.arrived(name)
    card.get_by_role("button", name="Cancel").click()
    expect(card).to_have_attribute("data-state", "cancelled")
    gateway_stack.hold.release(name)


def test_what_cannot_run_is_said(visitor: Visitor) -> None:
    page = visitor.signed_in()
    page.get_by_label("Playbook", exact=True).fill("ui/nothing-there")
    page.get_by_label("Variables (JSON)").fill("[1]")
    page.get_by_role("button", name="Run").click()
    expect(page.get_by_role("alert")).to_have_text("the variables are not an object")
    page.get_by_label("Variables (JSON)").fill("{}")
    page.get_by_role("button", name="Run").click()
    expect(page.get_by_role("alert")).to_contain_text("no such document")


def test_whoever_signs_out_is_a_stranger_again(visitor: Visitor) -> None:
    page = visitor.signed_in()
    page.get_by_role("button", name="Sign out").click()
    expect(page.get_by_role("button", name="Sign in")).to_be_visible()
    assert visitor.context.cookies() == []
    page.goto(visitor.url)
    expect(page).to_have_url(f"{visitor.url}/login")


def test_no_secret_is_left_in_the_page(visitor: Visitor) -> None:
    page = visitor.signed_in()
    (cookie,) = visitor.context.cookies()
    assert cookie["httpOnly"]
    assert cookie["value"].startswith(TOKEN)
    kept = page.evaluate("JSON.stringify([{...localStorage}, {...sessionStorage}])")
    shown = page.content()
    for text in (kept, shown, *visitor.requests):
        assert cookie["value"] not in text
        assert TOKEN not in text
        assert PASSWORD not in text
    assert page.evaluate("document.cookie") == ""
