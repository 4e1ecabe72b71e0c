import pytest

from noetl.local.credentials import Credentials, NoType


class Below:
    async def keychain(self, names):
        return {name: {"token": "of the server"} for name in names}


def test_the_server_of_the_run_keeps_each_under_its_type():
    made = Credentials({
        "pg": {"host": "db", "user": "kim", "password": "hunter22"},
        "shop": {"type": "bearer", "token": "abcdef12"},
        "whole": {"type": "basic", "data": {"username": "kim", "password": "hunter23"}},
    })  # fmt: skip

    kept = {put.name: (put.type, put.data) for put in made.puts()}
    assert kept == {
        "pg": ("postgres", {"host": "db", "user": "kim", "password": "hunter22"}),
        "shop": ("bearer", {"token": "abcdef12"}),
        "whole": ("basic", {"username": "kim", "password": "hunter23"}),
    }
    assert made.redactor().redact("kim hunter22 abcdef12 hunter23") == "kim *** *** ***"


async def test_an_entry_of_the_keychain_is_lent_under_its_own_name():
    made = Credentials({"shop": {"type": "secret", "value": "s3cret-word"}})

    found = await made.before(Below()).keychain({"shop", "other"})

    assert found == {
        "shop": {"token": "s3cret-word", "value": "s3cret-word"},
        "other": {"token": "of the server"},
    }


def test_fields_that_no_type_has_need_one():
    with pytest.raises(NoType, match="`odd` has no type"):
        Credentials({"odd": {"colour": "red"}})
