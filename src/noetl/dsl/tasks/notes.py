"""What an author must know of a kind besides its keys: what code is given, and forms of values."""

from __future__ import annotations

from typing import TYPE_CHECKING, Final

if TYPE_CHECKING:
    from collections.abc import Mapping

_INPUT: Final = "`NOETL_INPUT`: the `input` as JSON, when it is at most 32 KiB."
_GUARD: Final = (
    "The guard of `http` is not around it: it reaches what its worker reaches, private networks "
    "too, unless `network: off`, `sandbox: strict` or the worker's `NOETL_PYTHON_NETWORK` says no."
)
_DUCKDB: Final = (
    (
        "`attach` names files under the data roots, or objects (`s3://`, `gs://`) that are read as "
        "views; a text stands for `{path: text}`, and a map gives each its name."
    ),
    "A file is attached writable unless it says `read_only: true`.",
    (
        "`auth` is one alias, or a map of names to `{type, credential, scope, read_only}`; `type` "
        "is `postgres`, `mysql` or `sqlite`, attached under that name, or `s3` or `gcs`."
    ),
    "`scope` is the beginning of the addresses that a credential of a store is for.",
)
_TRANSFER: Final = (
    "A source that is one JSON document has at most 64 MiB; send lines (`format: ndjson`) of more.",
)
NOTES: Final[Mapping[str, tuple[str, ...]]] = {
    "python": (
        "Each value of `input` is a variable; `input_data` and `args` are the map of them all.",
        (
            "`context`: a map, read only: `args`, `variables` (`ctx`), `workload`, "
            "`execution_id`, `step`, and every finished step by name, fetched when it is read."
        ),
        "`idempotency_key`: the same for every try of one visit.",
        "`progress(fraction, message)`: how far it is, from 0 to 1.",
        "`log(text)`, `log.warning(text)`: lines for the log of the step.",
        (
            "`blob(source, content_type)`: stores bytes, an open file or a path; what it returns "
            "has the `ref`."
        ),
        "`open_blob(ref, path)`: writes what lies behind a reference to a file; returns its path.",
        _GUARD,
    ),
    "http": (
        (
            "`files` is a map of names to contents or Parts, a list of Parts of one name, or a "
            "list of Parts with `name`; a Part with `value` is a plain field, any other is a file."
        ),
        "`auth` is an alias, or a map: `{credential}` and fields that win over the stored ones.",
        (
            "`type` of such a map: `bearer` (`token`), `basic` (`username`, `password`), `api_key` "
            "(`header`, `key`), `gcp_adc` (`scopes`), `tls` (`cert`, `key`, `passphrase`, `ca`) or "
            "`none`."
        ),
        (
            "A credential of the type `tls` is the client's certificate (mTLS); beside it the map "
            "may show a token: `{credential: my_cert, type: bearer, token: ...}`."
        ),
    ),
    "duckdb": _DUCKDB,
    "ducklake": _DUCKDB,
    "transfer": _TRANSFER,
    "snowflake_transfer": _TRANSFER,
    "nats": (
        (
            "`kv_get`: `status`, `bucket`, `key`, `value`, `revision`; a key that is not there has "
            "the status `not_found` and is no failure."
        ),
        "`kv_put`, `kv_create`, `kv_update`: `status`, `bucket`, `key`, `revision`.",
        "`kv_delete`, `kv_purge`: `status`, `bucket`, `key`.",
        "`kv_keys`: `status`, `bucket`, `keys`, `count`.",
        "`object_get`: as `object_info`, and `value`, or `ref` of what is over 64 KiB.",
        "`object_put`, `object_info`: `status`, `bucket`, `object`, `size`, `digest`, `modified`.",
        "`object_delete`: `status`, `bucket`, `object`, `deleted`.",
        "`object_list`: `status`, `bucket`, `objects`, `count`.",
        "`js_publish`: `stream`, `seq`, `duplicate`.",
        "`js_publish_batch` (pool `system` only): `published`, `duplicates`, `results`.",
        "`js_consume`: `status`, `stream`, `consumer`, `count`, `messages`, `acked`, `ack_ids`.",
        "`js_get_msg`: `status`, `stream`, `seq`, `subject`, `headers`, `time`, `data`.",
        (
            "`js_stream_info`: `status`, `stream`, `subjects`, `messages`, `bytes`, `first_seq`, "
            "`last_seq`, `consumers`."
        ),
        "`request`: `status`, `subject`, `headers`, `data`.",
        "Bytes that are no text have `encoding: base64` and stand in `raw`.",
    ),
    "shell": (_GUARD,),
    "script": (
        "`input.json` in the folder of the script: the `input`.",
        _INPUT,
        _GUARD,
    ),
    "container": (
        "`/noetl/input.json`: the `input` as JSON, of at most 900 KiB.",
        _INPUT,
        "`NOETL_EXECUTION_ID`, `NOETL_STEP`, `NOETL_IDEMPOTENCY_KEY`: which task it is.",
        "`NOETL_TERMINATION_LOG`: the file to which it writes a JSON object, `output` of the data.",
        (
            "A volume has a `name` and one of `empty_dir`, `persistent_volume_claim`, "
            "`config_map`, `secret`; `volume_mounts` say where it appears."
        ),
        "podman has only `empty_dir`, a process has no volumes.",
    ),
    "artifact": (
        (
            "`input` names the object: `uri`, or `result_ref`; `put` takes `data`, `data_b64`, or "
            "beside `uri` the `result_ref` of what is copied there."
        ),
        (
            "Schemes: `noetl://` (results, of other runs to be read only), `s3://` and `gs://` "
            "(with `auth`), `nats-kv://bucket/key` and `nats-obj://bucket/name` (with `auth`), "
            "`file://` under the data roots."
        ),
    ),
    "mcp": ("A `stdio` server is a child of the worker; the guard of `http` is not around it.",),
    "agent": (
        (
            "The guard of `http` is not around it: it reaches what its worker reaches, private "
            "networks too, unless the worker's `NOETL_PYTHON_NETWORK` says no."
        ),
    ),
    "gateway": (
        (
            "The gateway tells a run that is started with `clientId` or `delivery` its "
            "`request_id`; the worker shows the token of the request, which no template needs."
        ),
        "A run that nobody waits for has no `request_id`: nothing is sent, and that is no failure.",
        "The first result ends the request; the run goes on, and its own end is told as a state.",
        (
            "A child sends word when its parent hands on `request_id`, `gateway_url` and "
            "`callback_token` of its own workload, each under its name."
        ),
        "A key of the other operation is left out, and a line of the log says so.",
    ),
}
