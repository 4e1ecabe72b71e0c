"""The connection to a broker that is not there."""

from __future__ import annotations

import asyncio

import pytest

from noetl.bus.address import Address
from noetl.bus.base import BusGone
from noetl.bus.broker import Broker
from noetl.edge.http import bound


@pytest.mark.parametrize("turns", range(16))
async def test_whoever_lets_go_while_it_connects_is_not_kept(turns):
    with bound("127.0.0.1", 0) as closed:  # nobody is heard there
        broker = Broker(Address.of(f"nats://127.0.0.1:{closed.getsockname()[1]}"), ())
        broker.start()
        for _ in range(turns):
            await asyncio.sleep(0)
        async with asyncio.timeout(10):
            await broker.close()
        with pytest.raises(BusGone):
            broker.here()
