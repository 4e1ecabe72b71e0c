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


def made(provider, key="", local="", access=None, **previous):
    return kek_of(provider, key, local, nobody, clock=SystemClock(), access=access, **previous)


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


async def test_a_previous_provider_opens_and_does_not_wrap():
    wrapped = await LocalKek(KEY).wrap(b"d" * 32)
    named = made("vault", "noetl", KEY, VAULT, previous="local")
    assert (named.provider, await named.unwrap(wrapped)) == ("vault", b"d" * 32)
    back = made("local", "", KEY, VAULT, previous="vault", previous_key="noetl")
    assert (back.provider, await back.unwrap(await back.wrap(b"d" * 32))) == ("local", b"d" * 32)
    access = Access(vault_address="http://v", vault_token="t", google_account=ACCOUNT)  # noqa: S106 - of a test
    third = made("vault", "noetl", KEY, access, previous="gcp-kms", previous_key=GCP)
    assert await third.unwrap(wrapped) == b"d" * 32


@pytest.mark.parametrize(
    ("kek", "provider"),
    [
        (("local", "", KEY), "vault"),
        (("vault", "noetl", "", VAULT), "gcp-kms"),
        (("gcp-kms", GCP, "", Access(google_account=ACCOUNT)), "vault"),
        (("vault", "noetl", KEY, VAULT), "gcp-kms"),
    ],
)
async def test_who_left_a_provider_too_early_is_told_how_to_go_back(kek, provider):
    with pytest.raises(CannotUnwrap) as caught:
        await made(*kek).unwrap(Wrapped(provider, "kid", "1", b"x"))
    assert (caught.value.message, caught.value.hint) == (
        f"the record's key is wrapped by '{provider}', which is not set up here",
        "name it in NOETL_KMS_PROVIDER_PREVIOUS until `noetl wallet rotate-kek` has moved all",
    )


@pytest.mark.parametrize(
    ("previous", "key", "said"),
    [
        ("hsm", "", "NOETL_KMS_PROVIDER_PREVIOUS is 'hsm', which wraps no keys."),
        (
            "local",
            "",
            "NOETL_KMS_PROVIDER_PREVIOUS is local, which is NOETL_KMS_PROVIDER already.",
        ),
        (
            "vault",
            " ",
            "NOETL_KMS_KEY_PREVIOUS is not set, and NOETL_KMS_PROVIDER_PREVIOUS is vault.",
        ),
        ("vault", "noetl", "VAULT_ADDR is not set, and NOETL_KMS_PROVIDER_PREVIOUS is vault."),
        (
            "gcp-kms",
            GCP,
            "NOETL_KMS_PROVIDER_PREVIOUS is gcp-kms, and nobody tells who we are there.",
        ),
    ],
)
def test_a_previous_provider_that_cannot_be_used_is_named(previous, key, said):
    with pytest.raises(BadKey) as caught:
        made("local", "", KEY, previous=previous, previous_key=key)
    assert caught.value.message == said
    assert caught.value.hint


def test_a_previous_key_that_is_none_is_named():
    with pytest.raises(BadKey, match="NOETL_KMS_KEY_PREVIOUS is not the name of a transit key"):
        made("local", "", KEY, VAULT, previous="vault", previous_key="a b")
    access = Access(google_account=ACCOUNT)
    with pytest.raises(BadKey, match="NOETL_KMS_KEY_PREVIOUS is not the name of a crypto key"):
        made("local", "", KEY, access, previous="gcp-kms", previous_key="a b")


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
