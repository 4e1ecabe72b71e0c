"""Addresses of brokers: who we are there, and what is shown of it."""

import pytest

from noetl.bus.address import Address, BadAddress


def shape(address):
    """Servers, user, password and token."""
    return (*address.servers, address.user, address.password, address.token)


@pytest.mark.parametrize(
    ("url", "expected"),
    [
        ("nats://h:4222", ("nats://h:4222", "", "", "")),
        ("h:4222", ("nats://h:4222", "", "", "")),
        ("tls://h", ("tls://h", "", "", "")),
        ("nats://u:p%40ss%2F@h:1", ("nats://h:1", "u", "p@ss/", "")),
        ("nats://secret@h:1", ("nats://h:1", "", "", "secret")),
        ("nats://u:p@a:1, nats://b:2", ("nats://a:1", "nats://b:2", "u", "p", "")),
    ],
)
def test_a_url_is_read(url, expected):
    assert shape(Address.of(url)) == expected


@pytest.mark.parametrize(
    ("given", "expected"),
    [
        ({"token": "t", "user": "", "password": ""}, ("nats://h:1", "", "", "t")),
        ({"user": "v", "password": "q"}, ("nats://h:1", "v", "q", "")),
        ({"password": "q"}, ("nats://h:1", "u", "q", "")),
        ({"user": ""}, ("nats://h:1", "u", "p", "")),
    ],
)
def test_what_is_given_by_name_comes_first(given, expected):
    assert shape(Address.of("nats://u:p@h:1", **given)) == expected


@pytest.mark.parametrize("url", ["nats://u:hidden@h:1", "nats://hidden@h:1"])
def test_secrets_are_not_shown(url):
    made = Address.of(url)
    assert "hidden" not in repr(made) + made.shown


@pytest.mark.parametrize("url", ["http://h:1", "nats://:1", "nats://h:x", "nats://h:99999", ""])
def test_a_url_that_names_no_broker_is_refused(url):
    with pytest.raises(BadAddress, match="cannot be read") as caught:
        Address.of(url)
    assert "nats://host:4222" in caught.value.hint


def test_a_credentials_file_needs_its_package(monkeypatch):
    monkeypatch.setattr("noetl.bus.address.find_spec", lambda _: None)
    with pytest.raises(BadAddress, match="nkeys"):
        Address.of("nats://h:1", creds="/x.creds")
    monkeypatch.setattr("noetl.bus.address.find_spec", lambda _: object())
    assert Address.of("nats://u:p@h:1", creds="/x.creds").creds == "/x.creds"
