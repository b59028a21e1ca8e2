"""Quantisation, look-up tables, sparse and block-scaled data against NumPy."""

import ml_dtypes
import numpy as np
from op_table import (
    C,
    F8,
    FLOATS,
    NP,
    PACKED,
    ULP,
    In,
    Program,
    Table,
    bounds,
    is_int,
    pack,
    rng_of,
    sample,
    to,
    type_text,
    wide,
)

TARGETS = ["si4", "ui4", "si8", "ui8", *F8, "f4E2M1FN"]


def scalar(dt, value):
    return C(dt, np.asarray(value))


def limits(dt):
    if is_int(dt):
        return bounds(dt)
    top = float(ml_dtypes.finfo(NP[dt]).max)
    return -top, top


def along(v, axis, rank):
    return v if v.ndim == 0 else v.reshape([-1 if d == axis else 1 for d in range(rank)])


def quantized(dt):
    def apply(x, scale, o1, o2, axis):
        a = int(np.asarray(axis).reshape(-1)[0]) % max(x.ndim, 1) if np.asarray(axis).ndim == 0 else 0
        s, p, q = (along(wide(v).astype(np.float64), a, x.ndim) for v in (scale, o1, o2))
        narrow = np.float64 if x.dtype == np.float64 else np.float32
        steps = ((wide(x) - q).astype(narrow) / s.astype(narrow)).astype(np.float64)
        low, high = limits(dt)
        steps = (np.rint(steps) if is_int(dt) else steps) + p
        steps = np.clip(np.nan_to_num(steps, nan=0, posinf=high, neginf=low), low, high)
        return steps.astype(np.int64).astype(object) if is_int(dt) else steps

    return apply


def dequantized(x, scale, o1, o2, axis):
    a = int(np.asarray(axis).reshape(-1)[0]) % max(x.ndim, 1) if np.asarray(axis).ndim == 0 else 0
    s, p, q = (along(wide(v).astype(np.float64), a, x.ndim) for v in (scale, o1, o2))
    return (wide(x).astype(np.float64) - p) * s + q


def parameters(dt_in, dt_q, n, rng, spread):
    """scale and offsets of n channels (0: one for all), scales exact powers of two apart from a factor."""
    shape = (n,) if n else ()
    scale = to(dt_in, 2.0 ** rng.integers(-3, 2, shape) * spread)
    o1 = to(dt_q, rng.integers(0, 3, shape).astype(np.int64) if is_int(dt_q) else np.zeros(shape))
    o2 = to(dt_in, rng.integers(-2, 3, shape) * 0.5)
    return scale, o1, o2


def quantising(table):
    shapes = [((3, 5), 0), ((2, 3, 4), 1), ((7,), 0), ((2, 9), -1), ((1, 2, 2, 3), 2)]
    for i, q in enumerate(TARGETS):
        for k, dt in enumerate(("f32", "f16", "bf16")):
            for per_axis in (False, True):
                shape, axis = shapes[(i + k) % len(shapes)]
                n = shape[axis] if per_axis else 0
                case = f"quantize_{dt}_{q}_{'axis' if per_axis else 'tensor'}"
                rng = rng_of(case)
                scale, o1, o2 = parameters(dt, q, n, rng, 1.0)
                axes = scalar("si32", axis) if per_axis else C("si32", np.arange(len(shape)))
                # Multiples of the scale and halves between them: where a tie goes is visible.
                x = to(
                    dt,
                    along(wide(scale), axis % len(shape), len(shape)) * rng.integers(-20, 21, shape) * 0.5
                    + along(wide(o2), axis % len(shape), len(shape)),
                )
                table.add(
                    case,
                    "quantize_v2",
                    [In(dt, shape), C(dt, scale), C(q, o1), C(dt, o2), axes],
                    [[x]],
                    quantized(q),
                    [q],
                )
                codes = (
                    to(q, rng.integers(*[int(v) for v in limits(q)], shape))
                    if is_int(q)
                    else to(q, rng.integers(-6, 7, shape))
                )
                codes = codes.astype(NP[q])
                if q == "f4E2M1FN":
                    args, calls = [C(q, codes)], [[]]
                else:
                    args, calls = [In(q, shape)], [[codes]]
                table.add(
                    "de" + case,
                    "dequantize_v2",
                    [*args, C(dt, scale), C(q, o1), C(dt, o2), axes],
                    calls,
                    dequantized,
                    [dt],
                    rtol=ULP[dt] / 2 if dt != "f32" else 1e-6,
                )
    for dt in ("f32", "f16"):
        x = to(dt, np.array([1000, -1000, np.inf, -np.inf, 0.5, 1.5, 2.5, -0.5]))
        for q in TARGETS[:6]:
            table.add(
                f"quantize_{dt}_{q}_ends",
                "quantize_v2",
                [In(dt, (8,)), scalar(dt, 1.0), C(q, to(q, np.zeros(()))), scalar(dt, 0.0), C("si32", np.array([0]))],
                [[x]],
                quantized(q),
                [q],
            )


def blocks(v, shape):
    for d, n in enumerate(shape):
        v = np.repeat(v, n // v.shape[d], axis=d)
    return v


def block_scaled(table):
    shapes = [((4, 6), (4, 2)), ((2, 3, 8), (1, 3, 2)), ((6,), (1,)), ((4, 32), (4, 1)), ((2, 64), (2, 2))]
    data = ["si4", "ui4", "si2", "ui2", "si8", "ui8", "si16", "si32", *F8, "f4E2M1FN"]
    for i, dt in enumerate(data):
        for k, (scale_dt, out) in enumerate((("f32", "f32"), ("f16", "f16"), ("bf16", "bf16"), ("f8E8M0FNU", "f32"))):
            if scale_dt == "f8E8M0FNU" and is_int(dt) or dt == "f4E2M1FN" and scale_dt == "f32":
                continue
            shape, grid = shapes[(i + k) % len(shapes)]
            case = f"block_{dt}_{scale_dt}_{out}"
            rng = rng_of(case)
            x = sample(dt, shape, rng, "any" if is_int(dt) else "plain")
            if dt in ("si16", "si32"):
                x = sample(dt, shape, rng, "plain", -900, 900)
            scale = to(scale_dt, 2.0 ** rng.integers(-4, 3, grid) * (1.0 if scale_dt == "f8E8M0FNU" else 1.25))
            o1 = to(dt, rng.integers(0, 2, grid).astype(np.int64)) if is_int(dt) else np.zeros(grid, NP[dt])
            o2 = to(out, rng.integers(-1, 2, grid) * 0.5)

            def f(v, s, a, b, shape=shape):
                s, a, b = (blocks(wide(p).astype(np.float64), shape) for p in (s, a, b))
                return s * (wide(v).astype(np.float64) - a) + b

            given = [C(dt, x)] if dt == "f4E2M1FN" or i % 2 else [In(dt, shape)]
            table.add(
                case,
                "primitive.blockwise_shift_scale_v2",
                [*given, C(scale_dt, scale), C(dt, o1), C(out, o2)],
                [[x] if isinstance(given[0], In) else []],
                f,
                [out],
                rtol=ULP[out] / 2,
                atol=1e-6,
            )


def looked_up(indices, lut, axis):
    grid, vector = lut.shape[:-2], lut.shape[-1]
    out_shape = list(indices.shape)
    if vector > 1:
        out_shape[int(axis)] *= vector
    out = np.zeros(out_shape, lut.dtype)
    for at in np.ndindex(*indices.shape):
        block = tuple(a // (n // g) for a, n, g in zip(at, indices.shape, grid))
        values = lut[block][int(indices[at])]
        for v in range(vector):
            to_at = list(at)
            if vector > 1:
                to_at[int(axis)] = at[int(axis)] * vector + v
            out[tuple(to_at)] = values[v]
    return out


def tables_of_values(table):
    shapes = [
        ((4, 6), (1, 1), 1, 0),
        ((4, 6), (2, 3), 1, 0),
        ((2, 5), (1, 1), 2, 1),
        ((3, 4), (3, 2), 2, 0),
        ((7,), (1,), 1, 0),
    ]
    for i, index in enumerate(("ui1", "ui2", "ui3", "ui4", "ui6", "ui8")):
        bits = int(index[2:])
        for k, dt in enumerate(("f32", "f16", "bf16", "f64", "f8E4M3FN", "f8E5M2", "si8", "ui8", "si32")):
            shape, grid, vector, axis = shapes[(i + k) % len(shapes)]
            if bits > 4 and (k > 2 or int(np.prod(grid)) * vector > 2):
                continue
            case = f"lut_{index}_{dt}"
            rng = rng_of(case)
            codes = rng.integers(0, 1 << bits, shape).astype(np.uint8).astype(NP[index])
            lut = sample(dt, (*grid, 1 << bits, vector), rng, "plain")
            table.add(
                case,
                "primitive.lut_to_dense_v1",
                [C(index, codes), C(dt, lut), scalar("si16", axis)],
                [[]],
                looked_up,
                [dt],
            )


def sparse(table):
    """values, mask -> sparse -> dense."""
    for i, dt in enumerate(
        FLOATS + F8 + ["si8", "ui8", "si16", "si32", "ui32", "si64", "i1", "ui1", "ui2", "ui3", "ui4", "ui6"]
    ):
        shape = [(3, 5), (9,), (2, 2, 4), (1, 17)][i % 4]
        case = f"sparse_{dt}"
        rng = rng_of(case)
        mask = rng.integers(0, 2, shape)
        mask.reshape(-1)[0] = 1
        n = int(mask.sum())
        values = sample(dt, (n,), rng, "plain")
        dense = np.zeros(shape, values.dtype)
        dense[mask == 1] = values
        program = Program([])
        v = program.const(C(dt, values)) if dt not in ("ui1", "ui3", "ui6") else program_constant(program, dt, values)
        m = program_constant(program, "ui1", mask.astype(np.uint8))
        s = program.op("primitive.build_sparse_with_bitmask_v1", [v, m], [f"{type_text(dt, shape)} sparse {n}"])
        d = program.op("primitive.sparse_with_bitmask_to_dense_v1", s, [type_text(dt, shape)])
        if dt in ("ui1", "ui3", "ui6"):  # no graph output has this type: looked at through a table of its own values
            bits = PACKED[dt]
            lut = program.const(
                C("ui8", np.arange(1 << bits).reshape((1,) * len(shape) + (1 << bits, 1)).astype(np.uint8))
            )
            a = program.const(scalar("si16", 0))
            d = program.op("primitive.lut_to_dense_v1", [d[0], lut, a], [type_text("ui8", shape)])
            dense, dt = dense.astype(np.uint8), "ui8"
        table.program(
            case,
            ["primitive.build_sparse_with_bitmask_v1", "primitive.sparse_with_bitmask_to_dense_v1"],
            program.json(d),
            [([], [(dt, dense)])],
        )
    for index in ("ui2", "ui3", "ui4", "ui8"):
        bits, shape = int(index[2:]), (3, 6)
        rng = rng_of("lutsparse" + index)
        mask = rng.integers(0, 2, shape)
        mask[0, 0] = 1
        n = int(mask.sum())
        codes = rng.integers(0, 1 << bits, n)
        lut = sample("f16", (1, 1, 1 << bits, 1), rng, "plain")
        dense = np.zeros(shape, lut.dtype)
        dense[mask == 1] = lut[0, 0, codes, 0]
        program = Program([])
        v = program_constant(program, index, codes)
        m = program_constant(program, "ui1", mask)
        s = program.op("primitive.build_sparse_with_bitmask_v1", [v, m], [f"{type_text(index, shape)} sparse {n}"])
        t, a = program.const(C("f16", lut)), program.const(scalar("si16", 0))
        w = program.op("primitive.lut_to_sparse_with_bitmask_v1", [*s, t, a], [f"{type_text('f16', shape)} sparse {n}"])
        d = program.op("primitive.sparse_with_bitmask_to_dense_v1", w, [type_text("f16", shape)])
        table.program(
            f"lut_sparse_{index}",
            ["primitive.lut_to_sparse_with_bitmask_v1"],
            program.json(d),
            [([], [("f16", dense)])],
        )


def program_constant(program, dt, values):
    program.steps.append(["const", type_text(dt, values.shape), pack(dt, values.astype(np.uint8)).hex()])
    return program._new(program.steps[-1][1])


def statistics(table):
    for i, dt in enumerate(("f32", "f16", "bf16")):
        for shape, axis in (((3, 5), 0), ((2, 4, 3), 1), ((6, 2), -1)):
            x = sample(dt, shape, rng_of(f"stat{dt}{shape}"), "plain")
            others = tuple(d for d in range(len(shape)) if d != axis % len(shape))
            low, high = wide(x).min(axis=others), wide(x).max(axis=others)
            name = f"{dt}_{'x'.join(map(str, shape))}"
            span = [-8.0, 7.0]
            table.add(
                f"symmetric_{name}",
                "symmetric_quantization_statistics_v1",
                [In(dt, shape), C(dt, np.array(span)), scalar("si32", axis)],
                [[x]],
                lambda v, r, a, lo=low, hi=high: 2 * np.maximum(abs(lo), abs(hi)) / 15.0,
                [dt],
                rtol=ULP[dt],
            )
            s = (np.maximum(high, 0) - np.minimum(low, 0)) / 255.0
            z = np.clip(0 - np.rint(np.float32(low / s)), 0, 255)
            table.add(
                f"asymmetric_{name}",
                "asymmetric_quantization_statistics_v1",
                [In(dt, shape), C("ui8", np.array([0, 255])), scalar("si32", axis)],
                [[x]],
                lambda v, r, a, s=s, z=z: [s, z.astype(np.int64)],
                [dt, "ui8"],
                rtol=ULP[dt],
            )


def tables():
    table = Table("quantised")
    for f in (quantising, block_scaled, tables_of_values, sparse, statistics):
        f(table)
    return [table]
