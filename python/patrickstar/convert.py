"""Tables as JSON Lines, which pstar trains on: python -m patrickstar.convert train.parquet train.jsonl

Reads Parquet files; Arrow files and streams, as `datasets` caches and saves them; folders of Dataset.save_to_disk and
DatasetDict.save_to_disk; folders with Parquet files, as of a data set on the Hugging Face hub. Several inputs are one
after the other in the output. A row is a line, with the names of its columns as keys; data.text_key, data.label_key
and the other *_key options name columns that are called otherwise. An output called *.gz or *.zst is compressed, which
pstar reads too.

Needs pyarrow (pip install pyarrow; datasets brings it). Memory holds 1024 rows at a time.
"""
import argparse
import base64
import datetime
import decimal
import glob
import json
import os
import sys
from typing import Any, Dict, Iterator, List, Optional, Tuple

BATCH_ROWS = 1024


class _Refused(Exception):
    pass


def main(arguments: Optional[List[str]] = None) -> int:
    parser = argparse.ArgumentParser(prog="python -m patrickstar.convert", description=__doc__,
                                     formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("input", nargs="+", help="Parquet or Arrow files, or folders of them")
    parser.add_argument("output", help="the JSON Lines file to write")
    parser.add_argument("--split", help="of a folder with several: train, validation, test, ...")
    parser.add_argument("--columns", help="the columns to write, separated by commas; without it all")
    parser.add_argument("--force", action="store_true", help="write over an output that exists")
    a = parser.parse_intermixed_args(arguments)
    try:
        import pyarrow
        import pyarrow.parquet  # noqa: F401
    except ImportError as error:
        parser.error("tables are read by pyarrow (pip install pyarrow): %s" % error)
    columns = [name.strip() for name in a.columns.split(",")] if a.columns is not None else None
    try:
        if os.path.lexists(a.output) and not a.force:
            raise _Refused("%s exists: name another output, or add --force" % a.output)
        files = [file for path in a.input for file in _files_of(path, a.split)]
        n_lines, names, classes = _write(files, a.output, columns)
    except (_Refused, OSError, pyarrow.ArrowException) as error:
        print("convert: %s" % error, file=sys.stderr)
        return 2
    print("%s: %d lines of %s, from %d file%s" % (a.output, n_lines, ", ".join(names), len(files),
                                                  "" if len(files) == 1 else "s"))
    for column, labels in classes.items():
        print("%s has numbers of classes; data.labels=%s names them" % (column, json.dumps(labels, ensure_ascii=False)))
    return 0


# ---- which files ----

def _files_of(path: str, split: Optional[str]) -> List[str]:
    if not os.path.isdir(path):
        return [path]
    parts = os.path.join(path, "dataset_dict.json")
    if os.path.exists(parts):
        splits = _read_json(parts, "splits", list)
        return _files_of(os.path.join(path, _choose(path, splits, split)), None)
    saved = os.path.join(path, "state.json")
    if os.path.exists(saved):
        return [os.path.join(path, entry["filename"]) for entry in _read_json(saved, "_data_files", list)]
    by_split: Dict[str, List[str]] = {}
    configurations = set()
    for file in sorted(glob.glob(os.path.join(glob.escape(path), "**", "*.parquet"), recursive=True)):
        configuration, name = _split_of(os.path.relpath(file, path))
        configurations.add(configuration)
        by_split.setdefault(name, []).append(file)
    if len(configurations) > 1:
        raise _Refused("%s: it has several configurations of the data set; name the folder of one: %s"
                       % (path, ", ".join(sorted(os.path.join(path, name) for name in configurations))))
    if not by_split:
        raise _Refused("%s: no Parquet file is in this folder, and it is not of save_to_disk (which has state.json or "
                       "dataset_dict.json)" % path)
    return by_split[_choose(path, list(by_split), split)]


def _split_of(file: str) -> Tuple[str, str]:
    """Configuration and split of a file below the folder, as the Hugging Face hub lays data sets out:
    train-00000-of-00002.parquet, or [CONFIGURATION/]train/0000.parquet; a folder "data" is no configuration."""
    *folders, name = file.split(os.sep)
    stem = name[:-len(".parquet")]
    split = stem.split("-")[0]
    if stem.isdigit() and folders:
        split = folders.pop()
    return os.sep.join(folder for folder in folders if folder != "data"), split


def _read_json(path: str, key: str, kind: type) -> Any:
    try:
        with open(path, encoding="utf-8") as file:
            value = json.load(file)[key]
    except (ValueError, KeyError, TypeError) as error:
        raise _Refused("%s: expected an object with \"%s\", as save_to_disk writes it: %r" % (path, key, error))
    if not isinstance(value, kind):
        raise _Refused("%s: \"%s\" is %r, expected a %s" % (path, key, value, kind.__name__))
    return value


def _choose(path: str, splits: List[str], wanted: Optional[str]) -> str:
    if wanted in splits:
        return wanted
    if wanted is None and len(splits) == 1:
        return splits[0]
    said = "no split is called %s" % wanted if wanted is not None else "it has several splits"
    raise _Refused("%s: %s; choose one by --split: %s" % (path, said, ", ".join(splits)))


# ---- tables ----

def _batches(path: str) -> Iterator[Any]:
    """Record batches of a file; the first item is its schema."""
    import pyarrow
    import pyarrow.parquet
    with open(path, "rb") as file:
        magic = file.read(6)
    if magic[:4] == b"PAR1":
        # a row group may be large: its columns are read in pieces
        with pyarrow.parquet.ParquetFile(path, pre_buffer=False, buffer_size=1 << 20) as table:
            yield table.schema_arrow
            yield from table.iter_batches(batch_size=BATCH_ROWS)
        return
    with pyarrow.memory_map(path) as source:
        try:
            if magic == b"ARROW1":
                reader = pyarrow.ipc.open_file(source)
                batches = (reader.get_batch(i) for i in range(reader.num_record_batches))
            else:
                reader = pyarrow.ipc.open_stream(source)
                batches = iter(reader)
        except pyarrow.ArrowInvalid as error:
            raise _Refused("%s: neither a Parquet file nor an Arrow file or stream: %s" % (path, error))
        yield reader.schema
        for batch in batches:
            for first in range(0, batch.num_rows, BATCH_ROWS):
                yield batch.slice(first, BATCH_ROWS)


def _class_names(schema: Any) -> Dict[str, List[str]]:
    """The names of ClassLabel columns, which `datasets` keeps in the schema's metadata."""
    try:
        features = json.loads((schema.metadata or {})[b"huggingface"])["info"]["features"]
        return {name: feature["names"] for name, feature in features.items()
                if isinstance(feature, dict) and feature.get("_type") == "ClassLabel"}
    except (KeyError, ValueError, TypeError, AttributeError):
        return {}


def _columns_of(path: str, schema: Any, wanted: Optional[List[str]]) -> List[str]:
    import pyarrow
    missing = [name for name in wanted or [] if name not in schema.names]
    if missing:
        raise _Refused("%s: no column is called %s; it has %s" % (path, ", ".join(missing), ", ".join(schema.names)))
    names = wanted if wanted is not None else schema.names
    binary = [name for name in names if pyarrow.types.is_binary(schema.field(name).type) or
              pyarrow.types.is_large_binary(schema.field(name).type)]
    if binary:
        raise _Refused("%s: the column %s has bytes, and no text: leave it out by --columns %s" %
                       (path, binary[0], ",".join(name for name in names if name not in binary) or "NAMES"))
    return list(names)


def _plain(value: Any) -> Any:
    """What JSON has no type for: times as ISO 8601, decimal numbers as numbers, bytes within other types as base64."""
    if isinstance(value, (datetime.date, datetime.time)):
        return value.isoformat()
    if isinstance(value, datetime.timedelta):
        return value.total_seconds()
    if isinstance(value, decimal.Decimal):
        return float(value)
    if isinstance(value, (bytes, bytearray)):
        return base64.b64encode(value).decode()
    raise _Refused("a value of type %s has no form in JSON: leave its column out by --columns" % type(value).__name__)


def _write(files: List[str], output: str, wanted: Optional[List[str]]) -> Tuple[int, List[str], Dict[str, List[str]]]:
    import pyarrow
    n_lines = 0
    names: List[str] = []
    classes: Dict[str, List[str]] = {}
    compression = {".gz": "gzip", ".zst": "zstd"}.get(os.path.splitext(output)[1])
    temporary = "%s.tmp-%d" % (output, os.getpid())
    try:
        with pyarrow.output_stream(temporary, compression=compression) as out:
            for path in files:
                batches = _batches(path)
                schema = next(batches)
                own = _columns_of(path, schema, wanted)
                names += [name for name in own if name not in names]
                classes.update({name: labels for name, labels in _class_names(schema).items() if name in own})
                for batch in batches:
                    rows = batch.select(own).to_pylist()
                    out.write("".join(json.dumps(row, ensure_ascii=False, default=_plain) + "\n"
                                      for row in rows).encode())
                    n_lines += len(rows)
        if n_lines == 0:
            raise _Refused("there is no row in %s" % ", ".join(files))
        os.replace(temporary, output)
    except BaseException:
        if os.path.exists(temporary):
            os.unlink(temporary)
        raise
    return n_lines, names, classes


if __name__ == "__main__":
    sys.exit(main())
