"""Files as a source and a target: Parquet, CSV, and JSON as a document or in lines."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING, Any, Final

import msgspec
import pyarrow as pa  # type: ignore[import-untyped]  # it has no types
import pyarrow.csv as arrow_csv  # type: ignore[import-untyped]  # as above
import pyarrow.parquet as pq  # type: ignore[import-untyped]  # as above

from noetl.dsl.paths import NoSuchPath, found_at
from noetl.tools.base import ToolError
from noetl.tools.transfer.plan import pairs_of
from noetl.tools.transfer.shape import Observed, batch_of, plain

if TYPE_CHECKING:
    from collections.abc import Iterator, Mapping, Sequence

    from noetl.tools.transfer.plan import Pair, Plan, Source

MOST_JSON: Final = 64 << 20
"""A document is read whole; lines have no limit."""
BLOCK: Final = 4 << 20
FORMATS: Final = ("parquet", "csv", "tsv", "json", "ndjson")
_SAME: Final = {"jsonl": "ndjson", "pq": "parquet", "application/json": "json",
                "text/csv": "csv", "application/x-ndjson": "ndjson",
                "application/vnd.apache.parquet": "parquet"}  # fmt: skip


def format_of(given: str | None, name: str, media: str = "", otherwise: str | None = None) -> str:
    """The form of a file: as written, or as its name, or as its sender says."""
    word = Path(name.partition("?")[0]).suffix.removeprefix(".").lower()
    for one in (given, word, media.partition(";")[0].strip().lower(), otherwise):
        found = _SAME.get(one or "", one)
        if found in FORMATS:
            return str(found)
        if one == given and one:
            break
    message = f"/format: one of {', '.join(FORMATS)}"
    raise ToolError("config", "invalid_config", message)


def read(path: Path, form: str, data_path: str | None, plan: Plan) -> Source:
    """A file as a source."""
    if form == "parquet":
        return ParquetFiles(str(path), plan)
    if form in {"csv", "tsv"}:
        return CsvFile(path, "\t" if form == "tsv" else ",", plan)
    return JsonFile(path, data_path, plan, is_lines=form == "ndjson")


class ParquetFiles:
    """The rows of a Parquet file."""

    def __init__(self, path: str, plan: Plan) -> None:
        try:
            self._file = pq.ParquetFile(path)
        except pa.ArrowException as fault:
            raise ToolError(
                "parse", "invalid_parquet", f"the file is no Parquet: {fault}"
            ) from None
        self._plan = plan

    def schema(self) -> pa.Schema:
        """The columns of the file."""
        schema = self._file.schema_arrow
        pairs_of(schema.names, self._plan)
        return schema.remove_metadata()

    def batches(self) -> Iterator[pa.RecordBatch]:
        """The rows of one group after the other."""
        for batch in self._file.iter_batches(batch_size=self._plan.chunk_size):
            yield batch.replace_schema_metadata(None)

    def stop(self) -> None:
        """Reading a file ends by itself."""


class CsvFile:
    """The rows of a CSV file with a line of names."""

    def __init__(self, path: Path, separator: str, plan: Plan) -> None:
        self._path = path
        self._parse = arrow_csv.ParseOptions(delimiter=separator, newlines_in_values=True)
        self._plan = plan
        self._schema: pa.Schema | None = None

    def schema(self) -> pa.Schema:
        """The columns; their types are those of the first block, or text."""
        if self._schema is None:
            with self._open(None) as reader:
                found = [
                    pa.field(
                        field.name, pa.string() if pa.types.is_null(field.type) else field.type
                    )
                    for field in reader.schema
                ]
            self._schema = pa.schema(found)
            pairs_of(self._schema.names, self._plan)
        return self._schema

    def _open(self, types: Mapping[str, Any] | None) -> Any:  # noqa: ANN401 - a reader of Arrow
        convert = arrow_csv.ConvertOptions(
            column_types=types, strings_can_be_null=True, quoted_strings_can_be_null=False
        )
        options = arrow_csv.ReadOptions(block_size=BLOCK, use_threads=False)
        try:
            return arrow_csv.open_csv(self._path, options, self._parse, convert)
        except pa.ArrowException as fault:
            raise ToolError("parse", "invalid_csv", f"the file is no CSV: {fault}") from None

    def batches(self) -> Iterator[pa.RecordBatch]:
        """The rows as texts, made into their types here so that a bad one can be told."""
        schema = self.schema()
        texts = {name: pa.string() for name in schema.names}
        with self._open(texts) as reader:
            try:
                for block in reader:
                    yield from self._cut(block, schema)
            except pa.ArrowException as fault:
                raise ToolError("parse", "invalid_csv", f"the file is no CSV: {fault}") from None

    def _cut(self, block: pa.RecordBatch, schema: pa.Schema) -> Iterator[pa.RecordBatch]:
        for start in range(0, block.num_rows, self._plan.chunk_size):
            part = block.slice(start, self._plan.chunk_size)
            yield pa.RecordBatch.from_arrays(
                [_cast(part.column(field.name), field, self._plan) for field in schema],
                schema=schema,
            )

    def stop(self) -> None:
        """Reading a file ends by itself."""


def _cast(texts: pa.Array, field: pa.Field, plan: Plan) -> pa.Array:
    """Texts as the type that the first block of the file had."""
    from noetl.tools.transfer.plan import type_error  # noqa: PLC0415 - the one use

    if pa.types.is_string(field.type):
        return texts
    try:
        return texts.cast(field.type)
    except pa.ArrowException as fault:
        if not plan.is_lenient:
            raise type_error(f"column {field.name}: {fault}", column=field.name) from None
    return pa.concat_arrays([_one(texts.slice(at, 1), field.type) for at in range(len(texts))])


def _one(text: pa.Array, kind: pa.DataType) -> pa.Array:
    try:
        return text.cast(kind)
    except pa.ArrowException:
        return pa.nulls(1, kind)


class JsonFile:
    """The objects of a JSON document, or of its lines."""

    def __init__(self, path: Path, data_path: str | None, plan: Plan, *, is_lines: bool) -> None:
        self._path = path
        self._data_path = data_path
        self._plan = plan
        self._is_lines = is_lines
        self._schema: pa.Schema | None = None
        self._rows: list[Any] | None = None

    def schema(self) -> pa.Schema:
        """Every name that an object has, with a type that all its values have."""
        if self._schema is None:
            seen = Observed()
            for rows in self._chunks():
                names = dict.fromkeys(name for row in rows for name in row)
                for name in (*names, *self._paths(names)):
                    seen.column(name, [_value(row, name) for row in rows])
            self._schema = seen.schema()
            if len(self._schema):
                pairs_of(self._schema.names, self._plan)
            else:
                wanted = self._plan.columns or tuple(self._plan.mapping)
                self._schema = pa.schema(
                    [(self._plan.mapping.get(name, name), pa.string()) for name in wanted]
                )
        return self._schema

    def _paths(self, names: Mapping[str, None]) -> list[str]:
        """Fields of the mapping that lie deeper in the objects."""
        return [path for path in self._plan.mapping.values() if path not in names and "." in path]

    def batches(self) -> Iterator[pa.RecordBatch]:
        """The objects as rows."""
        schema = self.schema()
        for rows in self._chunks():
            columns = [[_value(row, name) for row in rows] for name in schema.names]
            yield batch_of(columns, schema, is_lenient=self._plan.is_lenient)

    def stop(self) -> None:
        """Reading a file ends by itself."""

    def _chunks(self) -> Iterator[list[Mapping[str, Any]]]:
        chunk: list[Mapping[str, Any]] = []
        for row in self._lines() if self._is_lines else self._document():
            if not isinstance(row, dict):
                message = "/source/data_path: the rows must be objects"
                raise ToolError("schema", "invalid_shape", message)
            chunk.append(row)
            if len(chunk) == self._plan.chunk_size:
                yield chunk
                chunk = []
        if chunk:
            yield chunk

    def _lines(self) -> Iterator[Any]:
        with self._path.open("rb") as file:
            for number, line in enumerate(file, 1):
                if line.strip():
                    yield _decoded(line, f"line {number}")

    def _document(self) -> Sequence[Any]:
        if self._rows is None:
            if self._path.stat().st_size > MOST_JSON:
                message = f"a JSON document over {MOST_JSON} bytes: send lines (format: ndjson)"
                raise ToolError("limit", "output_limit", message)
            value = _decoded(self._path.read_bytes(), "the document")
            try:
                found = found_at(value, self._data_path or "$")
            except NoSuchPath as fault:
                message = f"/source/data_path: {fault.message}"
                raise ToolError("schema", "no_such_path", message) from None
            self._rows = found if isinstance(found, list) else [found]
        return self._rows


def _decoded(raw: bytes, what: str) -> Any:  # noqa: ANN401 - any JSON
    try:
        return msgspec.json.decode(raw)
    except (msgspec.DecodeError, UnicodeDecodeError, RecursionError) as fault:
        raise ToolError("parse", "invalid_json", f"{what} is no JSON: {fault}") from None


def _value(row: Mapping[str, Any], name: str) -> Any:  # noqa: ANN401 - any JSON
    if name in row or "." not in name:
        return row.get(name)
    try:
        return found_at(row, name)
    except NoSuchPath:
        return None


class FileWriter:
    """Rows into a file of one of the forms."""

    def __init__(self, path: Path, form: str, pairs: Sequence[Pair], schema: pa.Schema) -> None:
        self._form = form
        self._pairs = pairs
        fields = [schema.field(pair.field).with_name(pair.column) for pair in pairs]
        self._schema = pa.schema(fields)
        self._sink = path.open("wb")
        self._parquet = pq.ParquetWriter(self._sink, self._schema) if form == "parquet" else None
        if form in {"csv", "tsv"}:
            header = "\t" if form == "tsv" else ","
            names = [pair.column.replace('"', '""') for pair in pairs]
            self._sink.write((header.join(f'"{name}"' for name in names) + "\n").encode())

    def write(self, batch: pa.RecordBatch) -> None:
        """Add rows."""
        arrays = [batch.column(pair.field) for pair in self._pairs]
        if self._parquet is not None:
            rows = pa.RecordBatch.from_arrays(arrays, schema=self._schema)
            self._parquet.write_batch(rows)
        elif self._form in {"csv", "tsv"}:
            names = self._schema.names
            rows = pa.RecordBatch.from_arrays([plain(array) for array in arrays], names=names)
            options = arrow_csv.WriteOptions(
                include_header=False, delimiter="\t" if self._form == "tsv" else ","
            )
            arrow_csv.write_csv(rows, self._sink, options)
        else:
            rows = pa.RecordBatch.from_arrays(arrays, schema=self._schema)
            encoder = msgspec.json.Encoder(decimal_format="string")
            self._sink.write(encoder.encode_lines(rows.to_pylist()))

    def close(self) -> None:
        """Finish the file."""
        if self._parquet is not None:
            self._parquet.close()
        self._sink.close()
