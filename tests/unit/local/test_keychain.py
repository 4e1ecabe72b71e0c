from noetl.dsl.template import compile_template
from noetl.local.keychain import StandIns


async def test_every_field_of_a_stand_in_says_which_one_it_is():
    known = await StandIns(None).keychain({"shop"})
    text = compile_template("{{ [keychain.shop.token, keychain.shop] }}")

    assert text.render({"keychain": known}) == ["<keychain shop.token>", "<keychain shop>"]
