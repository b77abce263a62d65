#!/usr/bin/python3
"""Writes convert.json and all_reduce.json: expected bits of the arithmetic, from numpy (f32, f16) and from exact
fractions (bf16), with no code of Lanekeeper. Run it in its folder: python3 generate.py. Same output every time."""
import json
import random
from fractions import Fraction

import numpy as np

RNG = random.Random(20240607)
QUIET = {"f32": 0x7FC00000, "f16": 0x7E00, "bf16": 0x7FC0}
BITS = {"f32": 32, "f16": 16, "bf16": 16}
MANTISSA = {"f32": 23, "f16": 10, "bf16": 7}
TOP = {"f32": 0x7F800000, "f16": 0x7C00, "bf16": 0x7F80}


def f32(bits):
    return np.array([bits], dtype=np.uint32).view(np.float32)[0]


def bits_of(value):
    return int(np.array([value], dtype=np.float32).view(np.uint32)[0])


def to_bf16(value):
    """Nearest of the two bf16 neighbours by exact fractions; a tie goes to the even one."""
    bits = bits_of(value)
    low = bits >> 16
    if (bits & 0x7F800000) == 0x7F800000:
        return low
    exact = abs(Fraction(float(value)))
    magnitude = low & 0x7FFF
    down = Fraction(float(f32(magnitude << 16)))
    up_bits = magnitude + 1
    # Above the greatest bf16 the next step would be 2^128.
    up = Fraction(2) ** 128 if up_bits == 0x7F80 else Fraction(float(f32(up_bits << 16)))
    if exact - down > up - exact or (exact - down == up - exact and magnitude & 1):
        magnitude = up_bits
    return (low & 0x8000) | magnitude


def encode(dtype, value):
    """Bits of `value` (np.float32) in dtype, NaN canonical."""
    if np.isnan(value):
        return QUIET[dtype]
    if dtype == "f32":
        return bits_of(value)
    if dtype == "f16":
        return int(np.array([value], dtype=np.float32).astype(np.float16).view(np.uint16)[0])
    return to_bf16(value)


def decode(dtype, bits):
    if dtype == "f32":
        return f32(bits)
    if dtype == "f16":
        return np.array([bits], dtype=np.uint16).view(np.float16).astype(np.float32)[0]
    return f32(bits << 16)


def fold(dtype, values, divisor=1):
    total = decode(dtype, values[0])
    for v in values[1:]:
        total = np.float32(total + decode(dtype, v))
    if divisor != 1:
        total = np.float32(total / np.float32(divisor))
    return encode(dtype, total)


def all_reduce(dtype, op, domains, ranks):
    """ranks: one list of bit patterns a rank."""
    divisor = len(ranks) if op == "avg" else 1
    out = []
    for column in zip(*ranks):
        if len(domains) == 1:
            out.append(fold(dtype, [column[r] for r in domains[0]], divisor))
        else:
            out.append(fold(dtype, [fold(dtype, [column[r] for r in d]) for d in domains], divisor))
    return out


def special(dtype):
    m, top, sign = MANTISSA[dtype], TOP[dtype], 1 << (BITS[dtype] - 1)
    plain = [0, 1, 2, (1 << m) - 1, 1 << m, (1 << m) + 1, top - 1, top - 2, top, top | 1, top | (1 << (m - 1)),
             top | ((1 << m) - 1), (top >> 1) & ~((1 << m) - 1), ((top >> 1) & ~((1 << m) - 1)) | 1]
    return plain + [p | sign for p in plain]


def near(dtype):
    """A pattern near 1 in size, so that sums round and cancel."""
    m = MANTISSA[dtype]
    one = (1 << (BITS[dtype] - 2 - m)) - 1
    exponent = one + RNG.randint(-m - 2, 3)
    return RNG.getrandbits(1) << (BITS[dtype] - 1) | exponent << m | RNG.getrandbits(m)


def convert_cases():
    patterns = []
    for h in range(0, 0x7C01, 97):  # around f16 values and the midpoints between them
        for step in (-1, 0, 1):
            base = bits_of(decode("f16", h))
            patterns += [max(0, base + step)]
        mid = np.float32((float(decode("f16", h)) + float(decode("f16", min(h + 1, 0x7BFF)))) / 2)
        patterns += [bits_of(mid) + s for s in (-1, 0, 1)] if bits_of(mid) > 0 else []
    for b in range(0, 0x7F81, 331):  # the same around bf16
        patterns += [(b << 16) + s for s in (0, 1, 0x7FFF, 0x8000, 0x8001, 0xFFFF)]
    patterns += [bits_of(np.float32(v)) for v in (65503.99, 65504, 65519.99, 65520, 65520.01, 65536, 1e30, 2.0**-24,
                                                  2.0**-25, 2.0**-26, 2.0**-14, 2.0**-15)]
    patterns += [0x33000000, 0x33000001, 0x32FFFFFF, 0x7F7FFFFF, 0x7F7F8000, 0x7F7F7FFF]
    patterns += special("f32") + [RNG.getrandbits(32) for _ in range(400)]
    patterns = sorted({p & 0x7FFFFFFF for p in patterns} | {p | 0x80000000 for p in patterns[::5]})
    with np.errstate(all="ignore"):
        return [[p, encode("f16", f32(p)), encode("bf16", f32(p))] for p in patterns]


def all_reduce_cases():
    shapes = [[[0]], [[0, 1]], [[0], [1]], [[0, 1, 2, 3]], [[0, 1], [2, 3]], [[0, 1, 2], [3, 4]],
              [[0, 2], [1, 3], [4, 5, 6]], [[0, 1, 2, 3, 4, 5, 6, 7], [8, 9, 10, 11, 12, 13, 14, 15]]]
    cases = []
    for dtype in ("f32", "f16", "bf16"):
        for domains in shapes:
            count = sum(len(d) for d in domains)
            for op in ("sum", "avg"):
                ranks = []
                for _ in range(count):
                    row = [near(dtype) for _ in range(12)]
                    row += [RNG.choice(special(dtype)) for _ in range(8)]
                    row += [RNG.getrandbits(BITS[dtype]) for _ in range(4)]
                    row += [1 << (BITS[dtype] - 1)]  # every rank −0: the sum is −0
                    ranks.append(row)
                with np.errstate(all="ignore"):
                    expected = all_reduce(dtype, op, domains, ranks)
                cases.append({"dtype": dtype, "op": op, "domains": domains, "inputs": ranks, "expected": expected})
    return cases


def write(path, rows):
    with open(path, "w", encoding="ascii") as out:
        out.write("[\n" + ",\n".join(json.dumps(r, separators=(",", ":")) for r in rows) + "\n]\n")


if __name__ == "__main__":
    write("convert.json", convert_cases())
    write("all_reduce.json", all_reduce_cases())
