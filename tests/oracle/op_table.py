#!/usr/bin/env python3
"""Writes tests/fixtures/op_table: a generated table of operations x dtypes x shapes with what NumPy says of each.

One file per family: recorded calls (docs/recorded-calls.md) whose cases also carry the program to run, in the form that
tests/runtime/op_table.h describes. Needs numpy and ml_dtypes (versions in tests/fixtures/MANIFEST.md) and nothing of
this project: every expected value is NumPy's, computed in f64 (complex128, 64-bit integers) and rounded once.

  op_table.py OUTPUT_DIR     seeded: a second run gives the same bytes
"""

import hashlib
import json
import os
import sys
import zlib

import ml_dtypes
import numpy as np

NP = {
    "f64": np.float64,
    "f32": np.float32,
    "f16": np.float16,
    "bf16": ml_dtypes.bfloat16,
    "i1": np.bool_,
    "f8E4M3FN": ml_dtypes.float8_e4m3fn,
    "f8E5M2": ml_dtypes.float8_e5m2,
    "complex<f32>": np.complex64,
    "f8E8M0FNU": ml_dtypes.float8_e8m0fnu,
    "f4E2M1FN": ml_dtypes.float4_e2m1fn,
    "si4": ml_dtypes.int4,
    "ui4": ml_dtypes.uint4,
    "si2": ml_dtypes.int2,
    "ui2": ml_dtypes.uint2,
    "ui1": np.uint8,
    "ui3": np.uint8,
    "ui6": np.uint8,
}
NP |= {f"{s}i{b}": np.dtype(f"{'u' if s == 'u' else ''}int{b}").type for s in "su" for b in (8, 16, 32, 64)}
FLOATS = ["f64", "f32", "f16", "bf16"]
F8 = ["f8E4M3FN", "f8E5M2"]
INTS = [f"{s}i{b}" for b in (8, 16, 32, 64) for s in "su"]
NIBBLES = ["si4", "ui4", "si2", "ui2"]
PACKED = {"si4": 4, "ui4": 4, "si2": 2, "ui2": 2, "f4E2M1FN": 4, "ui1": 1, "ui3": 3, "ui6": 6}
# What one evaluation in the compute type and one rounding may be off, relative to the value.
ULP = {"f64": 4e-15, "f32": 3e-6, "f16": 1e-3, "bf16": 8e-3, "f8E4M3FN": 0.126, "f8E5M2": 0.26, "complex<f32>": 3e-6}
INLINE = 48  # bytes of an array that stand in the file itself; longer ones lie in the side file


def is_float(dt):
    return dt in FLOATS or dt in F8 or dt in ("f8E8M0FNU", "f4E2M1FN")


def is_int(dt):
    return dt[:2] in ("si", "ui")


def bounds(dt):
    bits = int(dt[2:])
    return (-(1 << (bits - 1)), (1 << (bits - 1)) - 1) if dt[0] == "s" else (0, (1 << bits) - 1)


def to(dt, a):
    """Values in a dtype: floats round to nearest even, integers keep their low bits."""
    a = np.asarray(a)
    with np.errstate(all="ignore"):
        if is_int(dt) and a.dtype.kind in "iuO":
            low, high = bounds(dt)
            if a.dtype.kind == "O":
                a = np.array([int(v) for v in a.reshape(-1)], dtype=object).reshape(a.shape)
                span = high - low + 1
                a = np.array([(int(v) - low) % span + low for v in a.reshape(-1)], dtype=object).reshape(a.shape)
                return a.astype(np.int64 if low < 0 else np.uint64).astype(NP[dt])
            if dt in PACKED:
                span = high - low + 1
                a = (a.astype(np.int64) - low) % span + low
            return a.astype(NP[dt])
        if dt in ("bf16", *F8) and a.dtype == np.float64:
            return a.astype(np.float32).astype(NP[dt])
        return a.astype(NP[dt])


def wide(a):
    """The type that a definition computes in."""
    a = np.asarray(a)
    if a.dtype.kind == "c":
        return a.astype(np.complex128)
    if a.dtype == np.bool_:
        return a
    if a.dtype.kind == "u" or a.dtype in (ml_dtypes.uint4, ml_dtypes.uint2):
        return a.astype(np.uint64)
    if a.dtype.kind == "i" or a.dtype in (ml_dtypes.int4, ml_dtypes.int2):
        return a.astype(np.int64)
    return a.astype(np.float64)


def pack(dt, a):
    a = np.ascontiguousarray(a)
    if dt not in PACKED:
        return a.tobytes()
    bits = PACKED[dt]
    codes = a.view(np.uint8) if dt == "f4E2M1FN" else a.astype(np.int64)
    codes = codes.reshape(-1).astype(np.int64) & ((1 << bits) - 1)
    stream = ((codes[:, None] >> np.arange(bits)) & 1).astype(np.uint8).reshape(-1)
    return np.packbits(stream, bitorder="little").tobytes()


def type_text(dt, shape):
    return "".join(f"{'?' if d is None else d}x" for d in shape) + dt


def rng_of(name):
    return np.random.default_rng(zlib.crc32(name.encode()))


SPECIAL = [0.0, -0.0, 1.0, -1.0, 0.5, -0.5, 1.5, 2.5, -2.5, np.inf, -np.inf, np.nan]


def sample(dt, shape, rng, kind="any", low=None, high=None):
    """Values for an input. kind: any (specials and extremes in front), plain, positive, unit, nonzero."""
    n = int(np.prod(shape, dtype=np.int64))
    if dt == "i1":
        return (rng.integers(0, 2, n) > 0).reshape(shape)
    if is_int(dt):
        lo, hi = bounds(dt)
        small = (max(lo, -9 if low is None else low), min(hi, 9 if high is None else high))
        v = [int(x) for x in rng.integers(small[0], small[1] + 1, n)]
        if kind == "any":
            edge = [lo, hi, 0, 1, lo + 1, hi - 1] + ([-1] if lo < 0 else [])
            for i, x in enumerate(edge[:n]):
                v[i] = x
        if kind in ("nonzero", "positive"):
            v = [abs(x) or 1 if kind == "positive" else x or 1 for x in v]
        return to(dt, np.array(v, dtype=object).reshape(shape))
    if dt == "complex<f32>":
        return to(dt, (rng.normal(0, 1, n) + 1j * rng.normal(0, 1, n)).reshape(shape))
    v = rng.normal(0, 2, n)
    if kind == "unit":
        v = rng.uniform(-1, 1, n)
    elif kind == "positive":
        v = np.abs(v) + 0.1
    elif kind == "nonzero":
        v = np.where(v < 0, -1, 1) * (np.abs(v) + 0.1)
    if low is not None:
        v = rng.uniform(low, high, n)
    if kind == "any":
        with np.errstate(all="ignore"):
            t = ml_dtypes.finfo(NP[dt])
            special = SPECIAL + [float(t.max), -float(t.max), float(t.smallest_normal), float(t.smallest_subnormal)]
        for i, x in enumerate(special[: max(0, n - 4)]):
            v[i] = x
    return to(dt, v.reshape(shape))


class In:
    """A graph input; None in the shape = any size."""

    def __init__(self, dt, shape):
        self.dt, self.shape = dt, list(shape)


class C:
    """A constant."""

    def __init__(self, dt, values, shape=None):
        a = np.asarray(values, dtype=object if is_int(dt) and not isinstance(values, np.ndarray) else None)
        self.dt, self.a = dt, to(dt, a) if a.dtype != NP[dt] else a
        if shape is not None:
            self.a = self.a.reshape(shape)


def i32(values):
    return C("si32", np.asarray(values, dtype=np.int64))


def u32(values):
    return C("ui32", np.asarray(values, dtype=np.int64))


class Program:
    """Steps over numbered values, inputs first."""

    def __init__(self, inputs):
        self.types = [i if isinstance(i, str) else type_text(i.dt, i.shape) for i in inputs]
        self.inputs, self.steps = list(self.types), []

    def const(self, c):
        self.steps.append(["const", type_text(c.dt, c.a.shape), pack(c.dt, c.a).hex()])
        return self._new(self.steps[-1][1])

    def op(self, name, operands, types, attrs=None, region=None):
        self.steps.append([name, operands, types, attrs or {}] + ([region] if region else []))
        return [self._new(t) for t in types]

    def _new(self, text):
        self.types.append(text)
        return len(self.types) - 1

    def json(self, outputs):
        return {"inputs": self.inputs, "steps": self.steps, "outputs": outputs}


class Table:
    def __init__(self, family):
        self.family, self.items, self.names = family, [], set()
        self.side, self.seen = bytearray(), {}

    def tensor(self, name, dt, a):
        raw = pack(dt, a)
        t = {"name": name, "dtype": dt, "shape": list(a.shape)}
        if len(raw) <= INLINE:
            return t | {"data": raw.hex()}
        key = hashlib.sha256(raw).digest()
        if key not in self.seen:
            self.seen[key] = len(self.side)
            self.side += raw
        return t | {"file": f"{self.family}.bin", "offset": self.seen[key], "bytes": len(raw)}

    def program(self, name, ops, program, calls, rtol=0.0, atol=0.0, zero_sign=False):
        """calls: ([(dtype, array)...] inputs, [(dtype, array)...] outputs)."""
        assert name not in self.names, name
        self.names.add(name)
        item = {"case": name, "ops": ops, "function": name}
        if rtol:
            item["rtol"] = rtol
        if atol:
            item["atol"] = atol
        if zero_sign:
            item["zero_sign"] = True
        item["program"] = program
        item["calls"] = [
            {
                "inputs": [self.tensor(f"x{i}", dt, a) for i, (dt, a) in enumerate(ins)],
                "outputs": [self.tensor(f"y{i}", dt, a) for i, (dt, a) in enumerate(outs)],
            }
            for ins, outs in calls
        ]
        self.items.append(item)

    def add(self, name, op, args, calls, reference, outs, attrs=None, region=None, **check):
        """One operation. args: In and C in the order of the operands; calls: arrays for the inputs;
        reference(all operands) -> arrays or one; outs: result dtypes. Extents that differ between calls or follow
        from a free input are declared free."""
        program = Program([a for a in args if isinstance(a, In)])
        free = any(None in a.shape for a in args if isinstance(a, In))
        ids, at = [], 0
        for a in args:
            if isinstance(a, In):
                ids.append(at)
                at += 1
            else:
                ids.append(program.const(a))
        done = []
        for arrays in calls:
            given = iter(arrays)
            operands = [next(given) if isinstance(a, In) else a.a for a in args]
            with np.errstate(all="ignore"):
                result = reference(*operands)
            result = result if isinstance(result, (list, tuple)) else [result]
            ins = [(a.dt, v) for a, v in zip([a for a in args if isinstance(a, In)], arrays)]
            done.append((ins, [(dt, to(dt, r)) for dt, r in zip(outs, result)]))
        shapes = [[o[1].shape for o in out] for _, out in done]
        types = []
        for i, dt in enumerate(outs):
            per_call = [s[i] for s in shapes]
            dims = [
                None if free or len({s[d] for s in per_call}) > 1 else per_call[0][d] for d in range(len(per_call[0]))
            ]
            types.append(type_text(dt, dims))
        results = program.op(op, ids, types, attrs, region)
        self.program(name, [op], program.json(results), done, **check)

    def write(self, folder):
        head = {"format": 1, "asset": None}
        with open(os.path.join(folder, self.family + ".json"), "w") as f:
            f.write(json.dumps(head)[:-1] + ', "cases": [\n')
            f.write(",\n".join(json.dumps(i, separators=(",", ":")) for i in self.items) + "\n]}\n")
        side = os.path.join(folder, self.family + ".bin")
        if self.side:
            with open(side, "wb") as f:
                f.write(self.side)


def main():
    import op_table_elementwise
    import op_table_indexing
    import op_table_linear
    import op_table_movement
    import op_table_quantised
    import op_table_reduce

    folder = sys.argv[1]
    os.makedirs(folder, exist_ok=True)
    for module in (
        op_table_elementwise,
        op_table_reduce,
        op_table_movement,
        op_table_indexing,
        op_table_linear,
        op_table_quantised,
    ):
        for table in module.tables():
            table.write(folder)
            print(f"{table.family}: {len(table.items)} cases")


if __name__ == "__main__":
    main()
