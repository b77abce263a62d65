"""What an all-reduce must give, to the bit, computed with numpy from the safetensors files themselves: a fold in rank
order inside each domain, rounded to the type, then the domains' values in their order, rounded again; sums in f32,
avg divides the last sum before its last rounding."""

import json
import pathlib

import numpy


def read(path):
    """Header, {name: (dtype, array)} and the raw data of a file."""
    raw = pathlib.Path(path).read_bytes()
    length = int.from_bytes(raw[:8], "little")
    header = json.loads(raw[8:8 + length])
    data = raw[8 + length:]
    tensors = {}
    for name, row in header.items():
        if name == "__metadata__":
            continue
        begin, end = row["data_offsets"]
        kind = {"F32": numpy.uint32, "F16": numpy.uint16, "BF16": numpy.uint16}[row["dtype"]]
        tensors[name] = (row["dtype"], numpy.frombuffer(data[begin:end], dtype=kind))
    return header, tensors


def to_f32(dtype, bits):
    if dtype == "F32":
        return bits.view(numpy.float32)
    if dtype == "F16":
        return bits.view(numpy.float16).astype(numpy.float32)
    return (bits.astype(numpy.uint32) << 16).view(numpy.float32)


def from_f32(dtype, values):
    if dtype == "F32":
        return values.view(numpy.uint32)
    if dtype == "F16":
        return values.astype(numpy.float16).view(numpy.uint16)
    bits = values.view(numpy.uint32).astype(numpy.uint64)  # round to nearest, ties to even
    return ((bits + 0x7FFF + ((bits >> 16) & 1)) >> 16).astype(numpy.uint16)


def fold(dtype, values, divide_by=None):
    total = to_f32(dtype, values[0]).copy()
    for more in values[1:]:
        total = total + to_f32(dtype, more)
    if divide_by:
        total = total / numpy.float32(divide_by)
    return from_f32(dtype, total)


def all_reduce(paths, domain_of, average=False):
    """{name: bits}; domain_of[rank] is the number of the rank's NVLink domain."""
    files = [read(p)[1] for p in paths]
    out = {}
    for name, (dtype, _) in files[0].items():
        groups = {}
        for rank, tensors in enumerate(files):
            groups.setdefault(domain_of[rank], []).append(tensors[name][1])
        count = len(files) if average else None
        if len(groups) == 1:
            out[name] = fold(dtype, next(iter(groups.values())), count)
        else:
            out[name] = fold(dtype, [fold(dtype, groups[d]) for d in sorted(groups)], count)
    return out
