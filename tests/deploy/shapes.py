"""What Kubernetes, KEDA and Cloud Run take, as far as NoETL writes it."""

import json
from functools import cache
from pathlib import Path

from jsonschema import Draft202012Validator

ROOT = Path(__file__).parents[2]
DEPLOY = ROOT / "deploy"
_SCHEMAS = Path(__file__).parent / "schemas"
_OF = {
    "keda.sh/v1alpha1": "keda",
    "apps/v1": "kubernetes",
    "v1": "kubernetes",
    "serving.knative.dev/v1": "cloud-run",
}


def faults(item):
    """What is wrong with an object, each with its place."""
    found = _validator(_OF[item["apiVersion"]], item["kind"]).iter_errors(item)
    return sorted(f"{fault.json_path}: {fault.message}" for fault in found)


@cache
def _validator(name, kind):
    schema = json.loads((_SCHEMAS / f"{name}.json").read_text(encoding="utf-8"))
    if kind in schema["$defs"]:  # its own faults, not those of every kind of the file
        schema = {"$ref": f"#/$defs/{kind}", "$defs": schema["$defs"]}
    Draft202012Validator.check_schema(schema)
    return Draft202012Validator(schema)
