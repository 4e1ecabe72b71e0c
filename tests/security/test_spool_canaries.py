"""A process that listens, and the spool that it fills, show no secret."""

import json

import obstore

from noetl.api.credentials import CredentialPut
from noetl.blobs.objects import open_store
from noetl.ids import random_key
from tests.e2e.test_listeners import pages
from tests.e2e.test_subscriptions import DEDUP, Downstream, Site, spooled
from tests.security.canaries import filled, hits, planted

SPOOL = """\
  spool:
    mode: buffer_and_ack
    backend: s3
    bucket: {bucket}
    auth: {alias}
    circuit:
      trip_after: 2
      probe_after_ms: 300
      probe_interval_ms: 100
      downstream: [{{name: store, probe: tcp, target: "127.0.0.1:{port}"}}]
"""
MESSAGES = 3


async def test_a_listener_and_its_spool_show_no_secret(full_stack, s3_server):
    bucket, name = s3_server.bucket(), f"spool-{random_key()[:10].lower()}"
    fields = {**s3_server.fields, "secret_access_key": "?", "session_token": "?"}
    full_stack.serve("shared")
    async with full_stack.client() as client:
        here = Site(full_stack, client, name)
        try:
            await here.open()
            alias = f"{name}-keys"
            await client.put_credential(
                CredentialPut(name=alias, type="s3", data=filled(fields, alias))
            )
            port = Downstream().port
            await here.document(more=DEDUP + SPOOL.format(bucket=bucket, alias=alias, port=port))
            listener = here.listen(NOETL_LOG_LEVEL="debug", NOETL_HTTP_EGRESS="open")

            async def opened():
                return await here.events("subscription.circuit.opened")

            await here.until(opened, "the circuit is open")
            await here.send(*range(MESSAGES))
            await spooled(here, MESSAGES)
            async with pages(listener) as page:
                sinks = {path: (await page(path)).body.decode() for path in ("/metrics", "/health")}
            sinks["events"] = json.dumps(await here.events(), default=str)
            sinks["log"] = "".join(listener.lines)
        finally:
            await here.close()
    store = open_store(f"s3://{bucket}", s3_server.fields)
    kept = [one["path"] for one in obstore.list(store).collect()]
    sinks["spool"] = "".join(
        bytes(obstore.get(store, path).bytes()).decode("latin-1") for path in kept
    )

    assert [text for text in sinks.values() if not text] == []
    assert len(kept) >= MESSAGES
    assert hits(sinks, [secret for _, secret in planted(fields, alias)]) == []
