#!/usr/bin/env python3
"""Check that the event files in a run's folder say what its metrics.jsonl says, by a reader of their own, and by
TensorBoard's where that is installed.

usage: check_events.py FOLDER [NUMBER_OF_FILES]

Prints what differs; status 1 when anything does. Tests import read_events."""
import glob
import json
import os
import struct
import sys

TAGS = {"lr": "train/learning_rate", "eval_loss": "eval/loss", "step_s": "speed/step_s", "tokens": "speed/tokens",
        "tokens_per_s": "speed/tokens_per_s", "padding": "speed/padding", "wait_s": "speed/wait_s",
        "checkpoint": "checkpoint/name", "checkpoint_error": "checkpoint/error", "bytes": "checkpoint/bytes",
        "seconds": "checkpoint/seconds", "stall_s": "checkpoint/stall_s"}
TAGS.update({key: "memory/" + key for key in ("device_peak_bytes", "host_peak_bytes", "disk_peak_bytes")})
TAGS.update({key: "transfer/" + key for key in ("moved_bytes", "host_to_device_bytes", "device_to_host_bytes",
                                                "disk_read_bytes", "disk_write_bytes")})


def masked_crc32c(data):
    """Bit by bit, as RFC 3720 defines the polynomial; masked as tensorflow/core/lib/hash/crc32c.h does."""
    crc = 0xffffffff
    for byte in data:
        crc ^= byte
        for _ in range(8):
            crc = crc >> 1 ^ (0x82f63b78 if crc & 1 else 0)
    crc ^= 0xffffffff
    return ((crc >> 15 | crc << 17) + 0xa282ead8) & 0xffffffff


assert masked_crc32c(b"123456789") == ((0xe3069283 >> 15 | 0xe3069283 << 17) + 0xa282ead8) & 0xffffffff


def records(data):
    """A record that a crash has cut ends the file."""
    at = 0
    while at + 12 <= len(data):
        head = data[at:at + 12]
        n, crc = struct.unpack("<QI", head)
        if at + 16 + n > len(data):
            return
        event = data[at + 12:at + 12 + n]
        (event_crc,) = struct.unpack("<I", data[at + 12 + n:at + 16 + n])
        assert crc == masked_crc32c(head[:8]) and event_crc == masked_crc32c(event), "checksum at %d" % at
        yield event
        at += 16 + n


def varint(data, at):
    value = shift = 0
    while True:
        value |= (data[at] & 0x7f) << shift
        at += 1
        if data[at - 1] < 0x80:
            return value, at
        shift += 7


def fields(data):
    """(field, value) of a protobuf message: integers, floats, bytes."""
    at = 0
    while at < len(data):
        key, at = varint(data, at)
        kind = key & 7
        if kind == 0:
            value, at = varint(data, at)
        elif kind in (1, 5):
            value = struct.unpack_from("<d" if kind == 1 else "<f", data, at)[0]
            at += 8 if kind == 1 else 4
        else:
            assert kind == 2, kind
            n, at = varint(data, at)
            value, at = data[at:at + n], at + n
            assert len(value) == n
        yield key >> 3, value


def value_of(message):
    """(tag, number or text) of a Summary.Value."""
    value = dict(fields(message))
    if 2 in value:
        return value[1].decode(), value[2]
    assert dict(fields(dict(fields(value[9]))[1]))[1] == b"text"
    tensor = dict(fields(value[8]))
    assert tensor[1] == 7
    return value[1].decode(), tensor[8].decode()


def read_events(folder):
    """[(file, time, step, "version", "start" or {tag: value})] of all files, in the order that readers have."""
    events = []
    for path in sorted(glob.glob(os.path.join(folder, "events.out.tfevents.*"))):
        with open(path, "rb") as file:
            data = file.read()
        for record in records(data):
            event = dict(fields(record))
            if 3 in event:
                what = "version"
                assert event[3] == b"brain.Event:2"
            elif 7 in event:
                what = "start"
                assert dict(fields(event[7])) == {1: 1}
            else:
                what = dict(value_of(message) for field, message in fields(event[5]) if field == 1)
            events.append((os.path.basename(path), event[1], event[2], what))
    return events


def number(value):
    return struct.unpack("<f", struct.pack("<f", float("nan") if value is None else float(value)))[0]


def expected(line):
    """The values that an event has for a line of metrics.jsonl."""
    out = {}
    for key, value in line.items():
        if key == "ranks":
            for rank, numbers in enumerate(value):
                out.update({"rank_%d/%s" % (rank, k): number(v) for k, v in numbers.items()})
        elif key != "step":
            out[TAGS.get(key, "train/" + key)] = value if isinstance(value, str) else number(value)
    return out


def same(a, b):
    return a == b or (a != a and b != b)


def differences(folder):
    with open(os.path.join(folder, "metrics.jsonl")) as file:
        lines = [json.loads(line) for line in file]
    events = [(step, what) for _, _, step, what in read_events(folder) if isinstance(what, dict)]
    if len(lines) != len(events):
        yield "%d lines, %d events" % (len(lines), len(events))
    for line, (step, values) in zip(lines, events):
        want = expected(line)
        if step != line["step"] or want.keys() != values.keys() or not all(same(want[k], values[k]) for k in want):
            yield "step %d: %r, expected step %d: %r" % (step, values, line["step"], want)


def tensorboard_differences(folder):
    from tensorboard.backend.event_processing.event_accumulator import EventAccumulator
    with open(os.path.join(folder, "metrics.jsonl")) as file:
        lines = [json.loads(line) for line in file]
    reader = EventAccumulator(folder, size_guidance={"scalars": 0, "tensors": 0})
    reader.Reload()
    want = {}
    for line in lines:
        for tag, value in expected(line).items():
            want.setdefault(tag, []).append((line["step"], value))
    tags = reader.Tags()
    if set(tags["scalars"]) | set(tags["tensors"]) != set(want):
        yield "tags %r, expected %r" % (sorted(tags["scalars"] + tags["tensors"]), sorted(want))
        return
    for tag, values in want.items():
        if tag in tags["scalars"]:
            got = [(e.step, e.value) for e in reader.Scalars(tag)]
        else:
            got = [(e.step, e.tensor_proto.string_val[0].decode()) for e in reader.Tensors(tag)]
        if len(got) != len(values) or not all(a[0] == b[0] and same(a[1], b[1]) for a, b in zip(got, values)):
            yield "tensorboard reads %s as %r, expected %r" % (tag, got, values)


def main():
    folder = sys.argv[1]
    found = list(differences(folder))
    n_files = len({file for file, _, _, _ in read_events(folder)})
    if len(sys.argv) > 2 and n_files != int(sys.argv[2]):
        found.append("%d files, expected %s" % (n_files, sys.argv[2]))
    try:
        import tensorboard  # noqa: F401
    except ImportError:
        print("TensorBoard is not installed: its reader was not tried")
    else:
        found += tensorboard_differences(folder)
        print("TensorBoard's reader was tried")
    for text in found:
        print(text)
    return 1 if found else 0


if __name__ == "__main__":
    sys.exit(main())
