import asyncio
import contextlib

import pytest

from noetl.api.http import Answer, AsgiTransport, NoAnswer


async def _reply(send, status=200, body=b"", headers=()):
    await send({"type": "http.response.start", "status": status, "headers": list(headers)})
    await send({"type": "http.response.body", "body": body})


async def test_the_app_sees_one_request_and_the_caller_its_answer():
    seen = {}

    async def app(scope, receive, send):
        seen["scope"] = dict(scope)
        seen["message"] = await receive()
        await _reply(send, 201, b"made", [(b"etag", b"abc")])

    answer = await AsgiTransport(app).request(
        "POST", "/api/x%2Fy?a=1&b=%20", b"{}", {"Content-Type": "application/json"}
    )
    assert answer == Answer(201, {"etag": "abc"}, b"made")
    assert seen["message"] == {"type": "http.request", "body": b"{}", "more_body": False}
    assert seen["scope"] == {
        "type": "http",
        "asgi": {"version": "3.0", "spec_version": "2.4"},
        "http_version": "1.1",
        "method": "POST",
        "scheme": "http",
        "path": "/api/x/y",
        "raw_path": b"/api/x%2Fy",
        "query_string": b"a=1&b=%20",
        "root_path": "",
        "headers": [(b"content-type", b"application/json"), (b"content-length", b"2")],
        "client": ("127.0.0.1", 0),
        "server": ("noetl", 80),
    }


async def test_an_answer_in_parts_is_joined():
    async def app(_scope, _receive, send):
        await send({"type": "http.response.start", "status": 200})
        for part in (b"a", b"b"):
            await send({"type": "http.response.body", "body": part, "more_body": True})
        await send({"type": "http.response.body"})

    assert await AsgiTransport(app).request("GET", "/") == Answer(200, {}, b"ab")


async def test_an_app_that_raises_before_its_answer_gives_no_answer():
    async def app(_scope, _receive, _send):
        message = "broken"
        raise RuntimeError(message)

    with pytest.raises(NoAnswer) as caught:
        await AsgiTransport(app).request("GET", "/x")
    assert (caught.value.code, caught.value.retryable) == ("no_answer", True)
    assert isinstance(caught.value.__cause__, RuntimeError)


async def test_an_app_that_raises_after_its_answer_has_answered():
    async def app(_scope, _receive, send):
        await _reply(send, 500, b"problem")
        message = "for the server's log"
        raise RuntimeError(message)

    assert await AsgiTransport(app).request("GET", "/x") == Answer(500, {}, b"problem")


@pytest.mark.parametrize(
    "messages",
    [
        [],
        [{"type": "http.response.start", "status": 200}],
        [
            {"type": "http.response.start", "status": 200},
            {"type": "http.response.body", "body": b"half", "more_body": True},
        ],
        [{"type": "http.response.body", "body": b"no start"}],
    ],
)
async def test_an_incomplete_answer_is_no_answer(messages):
    async def app(_scope, _receive, send):
        for message in messages:
            await send(message)

    with pytest.raises(NoAnswer):
        await AsgiTransport(app).request("GET", "/x")


async def test_a_caller_that_goes_away_takes_its_request_with_it():
    started, ended = asyncio.Event(), []

    async def app(_scope, receive, _send):
        await receive()
        started.set()
        try:
            await receive()
        finally:
            ended.append("app")

    request = asyncio.create_task(AsgiTransport(app).request("POST", "/x"))
    await started.wait()
    request.cancel()
    with pytest.raises(asyncio.CancelledError):
        await request
    assert ended == ["app"]


async def test_listeners_beside_the_answer_hear_the_disconnect_when_the_answer_is_complete():
    heard = []

    async def app(_scope, receive, send):
        await receive()

        async def listen():
            heard.append(await receive())

        listeners = [asyncio.create_task(listen()) for _ in range(2)]
        await asyncio.sleep(0)
        await _reply(send, 200, b"ok")
        await asyncio.gather(*listeners)
        heard.append(await receive())

    assert await AsgiTransport(app).request("GET", "/x") == Answer(200, {}, b"ok")
    assert heard == [{"type": "http.disconnect"}] * 3


async def test_a_listener_that_outlives_its_app_hears_the_disconnect():
    listeners = []

    async def app(_scope, receive, _send):
        await receive()
        listeners.append(asyncio.create_task(receive()))
        await asyncio.sleep(0)

    with contextlib.suppress(NoAnswer):
        await AsgiTransport(app).request("GET", "/x")
    assert await listeners[0] == {"type": "http.disconnect"}


async def test_what_follows_a_complete_answer_is_ignored():
    async def app(_scope, _receive, send):
        await _reply(send, 200, b"ok")
        await send({"type": "http.response.body", "body": b"more"})

    assert await AsgiTransport(app).request("GET", "/x") == Answer(200, {}, b"ok")
