#!/usr/bin/env python3
"""Writes tests/formats/data/quant_vectors.bin: quantized blocks and floats as the `gguf` Python
package sees them.

    pip install gguf numpy
    python3 tools/make_quant_vectors.py [OUTPUT [SEED [TIMES]]]

The committed file was made with the defaults (seed 1, TIMES 1) on x86-64. TIMES makes that many
times more random blocks; tests/formats/test_quant takes the path of such a file as its argument.

Format, little-endian, records until the end of the file:
    u8   what: 'D' blocks, then the floats they decode to
               'F' floats to encode
               'E' blocks that the last 'F' floats become
    u8   type, the id of GGUF files
    u16  zero
    u32  number of weights
    ...  the blocks (D, E)
    ...  the floats (D, F), f32
"""
import os
import struct
import sys

import numpy as np
from gguf import GGML_QUANT_SIZES, GGMLQuantizationType as T
from gguf.quants import dequantize, quantize

DECODE = [T.F32, T.F16, T.BF16, T.Q4_0, T.Q4_1, T.Q5_0, T.Q5_1, T.Q8_0, T.Q2_K, T.Q3_K, T.Q4_K,
          T.Q5_K, T.Q6_K,
          T.IQ4_NL, T.IQ4_XS]
ENCODE = [T.F32, T.F16, T.BF16, T.Q8_0, T.Q4_0, T.Q4_1, T.Q5_0, T.Q5_1]
# Where the f16 scales stand in a block.
SCALES = {T.Q4_0: [0], T.Q4_1: [0, 2], T.Q5_0: [0], T.Q5_1: [0, 2], T.Q8_0: [0], T.Q2_K: [80, 82],
          T.Q3_K: [108],
          T.Q4_K: [0, 2], T.Q5_K: [0, 2], T.Q6_K: [208], T.IQ4_NL: [0], T.IQ4_XS: [0]}
# zeros, denormals, smallest normal, 1, largest, infinities, NaNs
EXTREME_HALVES = [0x0000, 0x8000, 0x0001, 0x8001, 0x03FF, 0x83FF, 0x0400, 0x8400, 0x3C00, 0xBC00,
                  0x7BFF, 0xFBFF,
                  0x7C00, 0xFC00, 0x7E00, 0xFE01, 0x7C01]


def blocks_to_decode(qtype, rng, times):
    weights, size = GGML_QUANT_SIZES[qtype]
    if weights == 1:
        if qtype == T.F32:
            raw = rng.integers(0, 2**32, 256, dtype=np.uint32).view(np.uint8)
        else:
            raw = rng.integers(0, 2**16, 512 * times, dtype=np.uint16)
            raw = np.concatenate([raw, np.array(EXTREME_HALVES, dtype=np.uint16)]).view(np.uint8)
        return raw.reshape(1, -1)
    n = (8 if weights == 256 else 24) * times
    rows = [rng.integers(0, 256, (n, size), dtype=np.uint8)]
    # Random quants under scales of ordinary size, as in a model.
    usual = rng.integers(0, 256, (n, size), dtype=np.uint8)
    for at in SCALES[qtype]:
        usual[:, at:at + 2] = (rng.standard_normal((n, 1)) * 0.01).astype(np.float16).view(np.uint8)
    rows.append(usual)
    # The same byte everywhere, with the scales that byte gives and with 1.
    for byte in (0x00, 0xFF, 0x0F, 0xF0, 0x80, 0x7F, 0x55, 0xAA):
        flat = np.full((2, size), byte, dtype=np.uint8)
        for at in SCALES[qtype]:
            flat[1, at:at + 2] = np.array([1.0], dtype=np.float16).view(np.uint8)
        rows.append(flat)
    # Every extreme scale.
    halves = np.array(EXTREME_HALVES, dtype=np.uint16)
    hard = rng.integers(0, 256, (len(halves), size), dtype=np.uint8)
    for i, at in enumerate(SCALES[qtype]):
        hard[:, at:at + 2] = np.roll(halves, 5 * i).view(np.uint8).reshape(-1, 2)
    rows.append(hard)
    return np.concatenate(rows)


def floats_to_encode(rng, times):
    f32 = np.float32
    rows = [
        rng.standard_normal((24 * times, 32)).astype(f32),
        (rng.standard_normal((8 * times, 32)) * 10.0 ** rng.integers(-30, 30,
            (8 * times, 1))).astype(f32),
    ]
    # Any finite pattern of bits.
    wild = rng.integers(0, 2**32, (8 * times, 32), dtype=np.uint32)
    wild = np.where((wild & 0x7F800000) == 0x7F800000, wild & 0xBFFFFFFF, wild).view(f32)
    rows.append(wild)

    def row(values):
        rows.append(np.resize(np.array(values, dtype=f32), (1, 32)))

    row([0.0]); row([-0.0]); row([1.0]); row([-1.0]); row([0.1]); row([3.0, -3.0]); row([-3.0, 3.0])
    row(range(-16, 16)); row(range(16, -16, -1)); row(range(32)); row(range(-31, 1))
    # Halfway between two quants, for each number of levels.
    for levels in (8, 16, 127, 15, 31):
        ties = np.arange(32) - 15.5
        ties[0] = levels
        row(ties); row(-ties)
        ties[1:] = (np.arange(31) + 0.5) % levels
        ties[1] = 0
        row(ties); row(-ties); row(ties * 0.37); row(ties + 1000)
    # One outlier, first or last, of either sign.
    for big in (100.0, -100.0, 1e30, -1e30, 65504 * 127.0, 65519 * 8.0, 65520 * 8.0, -65520 * 15.0):
        small = (rng.standard_normal(32) * 0.1).astype(f32)
        for at in (0, 31):
            one = small.copy()
            one[at] = big
            row(one)
        row([big])
    # The greatest magnitude twice, once with each sign.
    for first, second in ((2.0, -2.0), (-2.0, 2.0)):
        two = (rng.standard_normal(32) * 0.5).astype(f32)
        two[5], two[20] = first, second
        row(two)
    # Tiny: denormal scales, scales whose inverse overflows, scales that f16 cannot hold.
    for scale in (1e-3, 1e-5, 6e-8, 3e-8, 1e-10, 1.2e-38, 1e-38, 1e-39, 1e-40, 1e-43, 1.4e-45):
        row(rng.standard_normal(32) * scale)
        row([scale, 0.0, -scale / 2])
    # Huge: the range overflows.
    row(rng.standard_normal(32) * 1e38); row([3.4e38, -3.4e38]); row([3.4028235e38, 1.0])
    # Not finite.
    row([np.inf, 1.0, -2.0]); row([1.0, -np.inf]); row([np.inf, -np.inf]); row([np.nan])
    row([1.0] * 31 + [np.nan]); row([np.nan] + [2.0] * 31); row([np.nan, np.inf])
    return np.concatenate(rows)


def main():
    here = os.path.dirname(os.path.abspath(__file__))
    path = sys.argv[1] if len(sys.argv) > 1 else os.path.join(here,
        "../tests/formats/data/quant_vectors.bin")
    rng = np.random.default_rng(int(sys.argv[2]) if len(sys.argv) > 2 else 1)
    times = int(sys.argv[3]) if len(sys.argv) > 3 else 1
    np.seterr(all="ignore")
    with open(path, "wb") as out:
        for qtype in DECODE:
            blocks = blocks_to_decode(qtype, rng, times)
            floats = dequantize(blocks, qtype)
            out.write(struct.pack("<cBHI", b"D", int(qtype), 0, floats.size))
            out.write(blocks.tobytes())
            out.write(floats.astype("<f4").tobytes())
        floats = floats_to_encode(rng, times)
        out.write(struct.pack("<cBHI", b"F", 0, 0, floats.size))
        out.write(floats.astype("<f4").tobytes())
        for qtype in ENCODE:
            blocks = quantize(floats, qtype)
            out.write(struct.pack("<cBHI", b"E", int(qtype), 0, floats.size))
            out.write(blocks.tobytes())
    print(path, os.path.getsize(path), "bytes")


if __name__ == "__main__":
    main()
