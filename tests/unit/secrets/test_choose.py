"""A server without a good key does not start, and says which setting is to blame."""

import pytest

from noetl.clock import SystemClock
from noetl.secrets.kek.base import CannotUnwrap, Wrapped
from noetl.secrets.kek.choose import Access, kek_of
from noetl.secrets.kek.gcp import GcpKek
from noetl.secrets.kek.local import BadKey, LocalKek, make_key
from noetl.secrets.kek.ring import Ring
from noetl.secrets.kek.vault import VaultKek

KEY = make_key()
GCP = "projects/p/locations/l/keyRings/r/cryptoKeys/k"
ACCOUNT = '{"client_email": "a@b", "private_key": "canary"}'
VAULT = Access(vault_address="http://vault:8200", vault_token="canary-t")  # noqa: S106 - of a test


async def nobody(ask):
    raise AssertionError(f"nothing is to be asked: {ask.url}")


def made(provider, key="", local="", access=None):
    return kek_of(provider, key, local, nobody, clock=SystemClock(), access=access)


def test_each_provider_has_its_own():
    assert isinstance(made("local", local=KEY), LocalKek)
    assert isinstance(made("vault", "noetl", access=VAULT), VaultKek)
    assert isinstance(made("gcp-kms", GCP, access=Access(google_account=ACCOUNT)), GcpKek)
    assert isinstance(made("gcp-kms", GCP, access=Access(metadata=nobody)), GcpKek)
    both = made("vault", "noetl", KEY, VAULT)
    assert isinstance(both, Ring)
    assert both.provider == "vault"


async def test_a_ring_opens_with_the_keys_that_it_has():
    wrapped = await LocalKek(KEY).wrap(b"d" * 32)
    assert await made("vault", "noetl", KEY, VAULT).unwrap(wrapped) == b"d" * 32
    with pytest.raises(CannotUnwrap, match="gcp-kms"):
        await made("vault", "noetl", KEY, VAULT).unwrap(Wrapped("gcp-kms", GCP, "1", b"x"))


@pytest.mark.parametrize(
    ("told", "name"),
    [
        (("local",), "NOETL_ENCRYPTION_KEY"),
        (("local", "", "  "), "NOETL_ENCRYPTION_KEY"),
        (("local", "", "canary"), "NOETL_ENCRYPTION_KEY"),
        (("local", "", f"{KEY},canary"), "NOETL_ENCRYPTION_KEY"),
        (("vault", "noetl", "canary", VAULT), "NOETL_ENCRYPTION_KEY"),
        (("hsm",), "NOETL_KMS_PROVIDER"),
        (("vault",), "NOETL_KMS_KEY"),
        (("vault", "a b", "", VAULT), "NOETL_KMS_KEY"),
        (("vault", "../noetl", "", VAULT), "NOETL_KMS_KEY"),
        (("vault", "noetl"), "VAULT_ADDR"),
        (("vault", "noetl", "", Access(vault_address="http://v")), "VAULT_TOKEN"),
        (("gcp-kms",), "NOETL_KMS_KEY"),
        (("gcp-kms", "wallet", "", Access(google_account=ACCOUNT)), "NOETL_KMS_KEY"),
        (("gcp-kms", GCP), "GOOGLE_APPLICATION_CREDENTIALS"),
        (("gcp-kms", GCP, "", Access(google_account="canary")), "GOOGLE_APPLICATION_CREDENTIALS"),
    ],
)
def test_what_is_missing_or_wrong_is_named_with_its_remedy(told, name):
    with pytest.raises(BadKey) as caught:
        made(*told)
    assert name in f"{caught.value.message} {caught.value.hint}"
    assert caught.value.hint
    assert "canary" not in f"{caught.value.message} {caught.value.hint}"


def test_how_a_service_is_reached_is_not_shown():
    shown = repr(Access(vault_address="http://v", vault_token="canary", google_account="canary"))  # noqa: S106 - of a test
    assert "canary" not in shown
