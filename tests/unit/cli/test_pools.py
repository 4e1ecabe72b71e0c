import json

import pytest

from noetl.api.runtime import WorkerEntry


@pytest.fixture(scope="module", autouse=True)
def _worker(served):
    entry = WorkerEntry(name="w-1", runtime={"pool": "gpu"}, capacity=4, hostname="box")
    served.call(lambda client: client.register_worker(entry))


def test_pools_are_listed(remote):
    code, out, err = remote("pools", "list", "-o", "json")
    found = json.loads(out)

    assert (code, err, found["next_cursor"]) == (0, "", None)
    (gpu,) = [item for item in found["items"] if item["pool"] == "gpu"]
    assert (gpu["workers"], gpu["slots"]) == (1, 4)
    rows = [line.split()[:3] for line in remote("pools", "list").out.splitlines()[1:]]
    assert ["gpu", "1", "4"] in rows


def test_a_name_leads_back_to_its_pool(remote):
    # The server is shared: other tests may have brought pools of their own.
    (name,) = [line for line in remote("pools", "list", "-o", "name").out.split() if "gpu" in line]

    assert name == "pool/gpu"
    assert json.loads(remote("pools", "get", name, "-o", "json").out)["items"][0]["name"] == "w-1"
    assert remote("pools", "get", "gpu", "-o", "name").out == "pool/gpu\n"
    assert "w-1" in remote("pools", "get", "gpu").out


def test_an_unknown_pool_names_the_nearest(remote):
    assert remote("pools", "get", "gpus") == (
        5,
        "",
        "error[not_found]: there is no pool `gpus`\nhint: did you mean `gpu`?\n",
    )


def test_a_group_needs_the_name_of_what_to_do(noetl):
    assert noetl("pools").code == 2
    assert noetl("pools", "lst") == (
        2,
        "",
        "error[usage]: there is no command `noetl pools lst`\nhint: did you mean `list`?\n",
    )


def test_workers_are_listed(remote):
    (worker,) = json.loads(remote("workers", "list", "--pool", "gpu", "-o", "json").out)["items"]

    assert (worker["name"], worker["pool"], worker["capacity"]) == ("w-1", "gpu", 4)
    assert remote("workers", "list", "--pool", "gpu", "-o", "name").out == "worker/w-1\n"
    assert remote("workers", "list", "--pool", "gpu").out.splitlines()[1].split()[:4] == [
        "w-1", "gpu", "ready", "4",
    ]  # fmt: skip
    assert remote("workers", "list", "--pool", "cpu") == (0, "", "there is no worker\n")
    assert remote("workers", "list", "--status", "offline", "-o", "name").out == ""


def test_a_pool_is_drained_on_request(remote, served):
    entry = WorkerEntry(name="w-2", runtime={"pool": "tpu"}, capacity=4)
    served.call(lambda client: client.register_worker(entry))

    assert remote("pools", "drain", "tpu").code == 2
    assert (
        json.loads(remote("workers", "list", "--pool", "tpu", "--json").out)["items"][0]["status"]
        == "ready"
    )
    done = json.loads(remote("pools", "drain", "pool/tpu", "--worker", "w-2", "-y", "--json").out)
    assert done == {"pool": "tpu", "workers": ["w-2"], "status": "draining"}
    assert " draining " in remote("workers", "list", "--pool", "tpu").out
    assert remote("pools", "drain", "tpu", "--worker", "w-9", "--yes").code == 5
