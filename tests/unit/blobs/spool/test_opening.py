"""Which store a document means."""

import pytest

from noetl.blobs.spool.base import SpoolLocked
from noetl.blobs.spool.disk import DiskStore
from noetl.blobs.spool.opening import BadSpool, Means, identity, opened
from noetl.bus.base import BusGone
from noetl.dsl.parse import parse
from noetl.dsl.subscription.spool import Spool
from tests.unit.blobs.spool.samples import PLACE, item, spool_of

DOCUMENT = """\
apiVersion: noetl.io/v1
kind: Subscription
metadata: {{name: meters, path: subscriptions/meters}}
spec:
  source: nats
  mode: pull
  url: nats://localhost
  stream: s
  consumer: c
  dispatch: {{playbook: a/b}}
  spool: {{mode: buffer_and_ack, backend: s3, bucket: b, retention: {{max_bytes: {size}}}}}
"""


class Messages:
    """Where objects of JetStream would go."""

    def __init__(self, bucket, copies=3):
        self.bucket = bucket
        self._copies = copies

    async def copies(self):
        if isinstance(self._copies, Exception):
            raise self._copies
        return self._copies


async def test_a_folder_is_absolute_or_below_home_and_locked(tmp_path):
    means = Means(home=tmp_path)
    for path in ("spools", str(tmp_path / "spools")):
        async with opened(Spool(backend="local_disk", path=path), PLACE, means) as store:
            assert isinstance(store, DiskStore)
            assert (tmp_path / "spools" / PLACE.folder / "lock").exists()
            with pytest.raises(SpoolLocked):
                async with opened(Spool(backend="local_disk", path=path), PLACE, means):
                    pass


async def test_a_document_that_names_no_backend_gets_the_default(tmp_path):
    means = Means(home=tmp_path, default=f"local_disk:{tmp_path}/spool")
    async with opened(Spool(), PLACE, means) as store:
        assert store.name == "local_disk"
    asked = []
    means = Means(
        home=tmp_path,
        default="nats_object:noetl_spool",
        messages=lambda bucket: (asked.append(bucket), Messages(bucket))[1],
    )
    async with opened(Spool(), PLACE, means) as store:
        assert (store.name, asked) == ("nats_object", ["noetl_spool"])


@pytest.mark.parametrize(
    ("copies", "said"), [(1, [1]), (2, [2]), (3, []), (5, []), (BusGone("away"), [])]
)
async def test_a_bucket_with_few_copies_is_warned_of(tmp_path, caplog, copies, said):
    means = Means(home=tmp_path, messages=lambda bucket: Messages(bucket, copies))
    spool = Spool(backend="nats_object", bucket="b")
    async with opened(spool, PLACE, means) as store:
        assert store.name == "nats_object"
    lines = [one for one in caplog.records if one.levelname == "WARNING"]
    assert [(one.bucket, one.copies) for one in lines] == [("b", copies) for copies in said]
    assert all("sync_interval: always" in one.hint for one in lines)


@pytest.mark.parametrize(
    ("spool", "default"),
    [
        (Spool(), ""),
        (Spool(backend="local_disk"), "nats_object:b"),
        (Spool(backend="s3"), "nats_object:b"),
        (Spool(backend="nats_object", bucket="b"), ""),
    ],
    ids=["no backend", "no path", "no bucket", "no broker"],
)
async def test_what_cannot_be_opened_is_told(tmp_path, spool, default):
    with pytest.raises(BadSpool):
        async with opened(spool, PLACE, Means(home=tmp_path, default=default)):
            pass


@pytest.mark.parametrize("name", ["access_key_id", "aws_access_key_id", "access_key"])
def test_the_keys_of_a_bucket_go_by_several_names(name):
    assert identity({name: "a", "aws_secret_access_key": "b", "note": "x", "region": ""}) == {
        "access_key_id": "a",
        "secret_access_key": "b",
    }


def test_a_service_account_may_be_the_credential_itself():
    account = {"type": "service_account", "private_key": "k", "client_email": "e"}
    assert identity(account) == {"service_account": account}


def test_26_fifty_gi_is_53_687_091_200_bytes():
    assert parse(DOCUMENT.format(size="50Gi")).model.spec.spool.retention.max_bytes == 53687091200


def test_26_lots_is_no_size():
    (fault,) = parse(DOCUMENT.format(size="lots")).diagnostics
    assert (fault.code, fault.pointer) == ("spool_invalid", "/spec/spool/retention/max_bytes")


async def test_a_spool_on_disk_goes_on_where_it_was(tmp_path):
    means = Means(home=tmp_path, default="local_disk:spool")
    async with opened(Spool(), PLACE, means) as store:
        spool, _ = spool_of(store)
        await spool.put(item(1))
    async with opened(Spool(), PLACE, means) as store:
        spool, _ = spool_of(store)
        assert await spool.recover() == 1
