#!/usr/bin/env python3
"""Writes the synthetic GGUF files of tests/fixtures/gguf. Needs: gguf, numpy (versions in tests/fixtures/MANIFEST.md).

  quant_types.gguf   one tensor per readable type and `NAME.expected` (F32), dequantised by the gguf package
  metadata.gguf      metadata of every value type

Random numbers are seeded; a second run gives the same bytes.
"""
import argparse
import pathlib

import numpy as np
from gguf import GGMLQuantizationType as Q
from gguf import GGUFWriter, GGUFValueType
from gguf.quants import dequantize, quantize

QUANT_TYPES = ["F32", "F16", "BF16", "Q4_0", "Q4_1", "Q5_0", "Q5_1", "Q8_0", "Q4_K", "Q5_K", "Q6_K"]
K_BYTES = {"Q4_K": 144, "Q5_K": 176, "Q6_K": 210}
K_HALVES = {"Q4_K": (0, 2), "Q5_K": (0, 2), "Q6_K": (208,)}  # where the f16 scales of a block stand


def random_k_blocks(rng, name, rows, cols, scale):
    """K-quants have no quantiser in the package: random bits with sane scales are as good."""
    blocks = rng.integers(0, 256, (rows * cols // 256, K_BYTES[name]), dtype=np.uint8)
    for at in K_HALVES[name]:
        d = (scale * (0.5 + rng.random(len(blocks)))).astype(np.float16)
        blocks[:, at:at + 2] = d.view(np.uint8).reshape(-1, 2)
    return blocks.reshape(rows, -1)


def pack(rng, name, rows, cols, scale=0.1):
    """-> (raw array for the writer, f32 values that it stands for)."""
    kind = Q[name]
    if name in K_BYTES:
        raw = random_k_blocks(rng, name, rows, cols, scale * {"Q4_K": 4e-3, "Q5_K": 2e-3, "Q6_K": 6e-4}[name])
    else:
        raw = quantize((scale * rng.standard_normal((rows, cols))).astype(np.float32), kind)
    return raw, dequantize(raw, kind).astype(np.float32).reshape(rows, cols)


def add(writer, name, raw, kind):
    writer.add_tensor(name, raw, raw_dtype=Q[kind])


def close(writer):
    writer.write_header_to_file()
    writer.write_kv_data_to_file()
    writer.write_tensors_to_file()
    writer.close()


def quant_types(path):
    rng = np.random.default_rng(11)
    writer = GGUFWriter(path, "none")
    for kind in QUANT_TYPES:
        raw, values = pack(rng, kind, 2, 256)
        add(writer, kind, raw, kind)
        add(writer, kind + ".expected", values, "F32")
    close(writer)


def metadata(path):
    writer = GGUFWriter(path, "none")
    V = GGUFValueType
    for kind, value in ((V.UINT8, 200), (V.INT8, -100), (V.UINT16, 60000), (V.INT16, -30000), (V.UINT32, 4000000000),
                        (V.INT32, -2000000000), (V.UINT64, 1 << 63), (V.INT64, -(1 << 62)), (V.FLOAT32, 0.5),
                        (V.FLOAT64, 0.1), (V.BOOL, True), (V.STRING, "a text")):
        writer.add_key_value("one." + kind.name.lower(), value, kind)
    writer.add_array("array.i32", [1, -2, 3])
    writer.add_array("array.f32", [0.25, -4.0])
    writer.add_array("array.bool", [True, False])
    writer.add_array("array.string", ["x", "", "two words"])
    close(writer)


def main():
    parser = argparse.ArgumentParser(description=__doc__)
    root = pathlib.Path(__file__).resolve().parents[1] / "fixtures" / "gguf"
    parser.add_argument("--output", type=pathlib.Path, default=root)
    out = parser.parse_args().output
    out.mkdir(parents=True, exist_ok=True)
    quant_types(out / "quant_types.gguf")
    metadata(out / "metadata.gguf")


if __name__ == "__main__":
    main()
