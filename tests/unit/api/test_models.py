import subprocess
import sys

import pytest

from noetl.api.executions import Started
from noetl.api.models import MODELS, decoder_of

RACE = """
import sys, threading
from noetl.api.client import Client
from noetl.api.models import MODELS, decoder_of
from noetl.engine.events import KINDS, CallDone
import msgspec

sys.setswitchinterval(1e-6)
barrier = threading.Barrier(8)

def work():
    barrier.wait()
    for model in MODELS:
        try:
            decoder_of(model).decode(b"{}")
        except msgspec.ValidationError:
            pass
    for cls in KINDS.values():
        try:
            msgspec.convert({}, cls)
        except msgspec.ValidationError:
            pass

threads = [threading.Thread(target=work) for _ in range(8)]
for thread in threads:
    thread.start()
for thread in threads:
    thread.join()
print("done")
"""


def test_every_model_has_a_decoder():
    assert Started in MODELS
    assert all(decoder_of(model).type is model for model in MODELS)


def test_what_is_no_model_has_none():
    with pytest.raises(KeyError):
        decoder_of(int)


def test_threads_may_decode_at_once():
    done = subprocess.run([sys.executable, "-c", RACE], capture_output=True, check=True)

    assert done.stdout == b"done\n"
