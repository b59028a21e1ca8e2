"""Matrix products, convolutions, pools and resampling against NumPy."""

import itertools

import numpy as np
from op_table import C, F8, FLOATS, INTS, ULP, In, Table, is_int, rng_of, sample, u32, wide

COMPLEX = ["complex<f32>"]


def label(dt):
    return dt.strip("<>").replace("<", "_")


def scalar(dt, value):
    return C(dt, np.asarray(value))


def check(dt, scale=1.0):
    if is_int(dt):
        return {}
    # A sum that cancels is off by its terms, not by its value.
    return {
        "rtol": ULP[dt],
        "atol": {"f64": 1e-13, "f32": 4e-6, "f16": 2e-3, "bf16": 2e-2, "complex<f32>": 6e-6}.get(dt, 0.3) * scale,
    }


def product(x, y):
    return np.matmul(wide(x), wide(y))


MATRICES = [
    ((3, 4), (4, 2)),
    ((1, 1), (1, 1)),
    ((2, 3, 5), (2, 5, 7)),
    ((2, 2, 1, 3), (2, 2, 3, 4)),
    ((5, 17), (17, 3)),
]
SPECIAL = [
    ((2, 0), (0, 3)),
    ((0, 4), (4, 2)),
    ((37, 65), (65, 41)),
    ((1, 129), (129, 70)),
    ((70, 3), (3, 1)),
    ((2, 1, 2, 3, 4), (2, 1, 2, 4, 3)),
    ((13, 256), (256, 17)),
]
BROADCAST = [
    ((2, 3), (4, 3, 5)),
    ((3, 1, 2, 4), (2, 4, 3)),
    ((1, 0, 3), (2, 3, 2)),
    ((2, 1, 3, 4), (1, 5, 4, 2)),
    ((6, 7), (7, 6)),
    ((2, 3, 4), (4, 5)),
]


def matrices(table):
    for i, dt in enumerate(FLOATS + F8 + INTS + COMPLEX):
        for form, shapes in (
            ("primitive.batch_matmul_v1", MATRICES[i % 5]),
            ("broadcasting_batch_matmul_v1", BROADCAST[i % 6]),
        ):
            case = f"matmul_{form[0]}_{label(dt)}"
            arrays = [
                sample(dt, s, rng_of(case + str(k)), "any" if is_int(dt) else "unit") for k, s in enumerate(shapes)
            ]
            table.add(case, form, [In(dt, s) for s in shapes], [arrays], product, [dt], **check(dt))
    for dt in ("f32", "f16", "bf16"):
        for i, shapes in enumerate(SPECIAL + BROADCAST):
            form = "primitive.batch_matmul_v1" if i < len(SPECIAL) else "broadcasting_batch_matmul_v1"
            case = f"matmul_{dt}_shape{i}"
            arrays = [sample(dt, s, rng_of(case + str(k)), "unit") for k, s in enumerate(shapes)]
            table.add(case, form, [In(dt, s) for s in shapes], [arrays], product, [dt], **check(dt, 2))
            if i in (2, 3, 6):  # a constant right side is packed
                table.add(
                    case + "_weight",
                    form,
                    [In(dt, shapes[0]), C(dt, arrays[1])],
                    [[arrays[0]]],
                    product,
                    [dt],
                    **check(dt, 2),
                )
        case = f"matmul_{dt}_free"
        calls = [
            [sample(dt, (1, m, k), rng_of(case + f"{m}"), "unit"), sample(dt, (b, k, n), rng_of(case + f"{n}"), "unit")]
            for b, m, k, n in ((1, 2, 3, 4), (3, 1, 33, 5), (2, 0, 2, 2), (1, 9, 0, 2))
        ]
        table.add(case, "broadcasting_batch_matmul_v1", [In(dt, [None] * 3)] * 2, calls, product, [dt], **check(dt))


def conv(x, w, stride, dilation, groups):
    x, w, groups = wide(x), wide(w), int(groups)
    axes = x.ndim - 2
    s, d = ([int(v) for v in np.asarray(a)] for a in (stride, dilation))
    out = [(x.shape[2 + i] - d[i] * (w.shape[2 + i] - 1) - 1) // s[i] + 1 for i in range(axes)]
    y = np.zeros((x.shape[0], w.shape[0], *out), x.dtype)
    per_in, per_out = w.shape[1], w.shape[0] // groups
    for g in range(groups):
        xs, ws = x[:, g * per_in : (g + 1) * per_in], w[g * per_out : (g + 1) * per_out]
        for tap in itertools.product(*(range(n) for n in w.shape[2:])):
            at = tuple(slice(t * d[i], t * d[i] + s[i] * (out[i] - 1) + 1, s[i]) for i, t in enumerate(tap))
            y[:, g * per_out : (g + 1) * per_out] += np.einsum(
                "ni...,oi->no...", xs[(slice(None), slice(None), *at)], ws[(slice(None), slice(None), *tap)]
            )
    return y


def transposed(x, w, stride, padding, dilation, output_pad, groups):
    x, w, groups = wide(x), wide(w), int(groups)
    axes = x.ndim - 2
    s, p, d, e = ([int(v) for v in np.asarray(a)] for a in (stride, padding, dilation, output_pad))
    full = [(x.shape[2 + i] - 1) * s[i] + d[i] * (w.shape[2 + i] - 1) + 1 + e[i] for i in range(axes)]
    per_in, per_out = x.shape[1] // groups, w.shape[1]
    y = np.zeros((x.shape[0], per_out * groups, *full), x.dtype)
    for g in range(groups):
        xs, ws = x[:, g * per_in : (g + 1) * per_in], w[g * per_in : (g + 1) * per_in]
        for tap in itertools.product(*(range(n) for n in w.shape[2:])):
            at = tuple(slice(t * d[i], t * d[i] + s[i] * (x.shape[2 + i] - 1) + 1, s[i]) for i, t in enumerate(tap))
            y[(slice(None), slice(g * per_out, (g + 1) * per_out), *at)] += np.einsum(
                "ni...,io->no...", xs, ws[(slice(None), slice(None), *tap)]
            )
    return y[(slice(None), slice(None), *(slice(p[i], full[i] - p[i]) for i in range(axes)))]


# input, weight, stride, dilation, groups
CONV2D = [
    ((1, 2, 5, 6), (3, 2, 3, 2), [1, 1], [1, 1], 1),
    ((2, 4, 7, 7), (6, 2, 3, 3), [2, 1], [1, 2], 2),
    ((1, 3, 9, 4), (3, 1, 3, 1), [1, 1], [2, 1], 3),
    ((1, 1, 1, 1), (1, 1, 1, 1), [1, 1], [1, 1], 1),
    ((1, 5, 4, 33), (7, 5, 1, 1), [1, 1], [1, 1], 1),
    ((1, 8, 1, 40), (8, 1, 1, 5), [1, 2], [1, 1], 8),
    ((1, 16, 11, 13), (17, 16, 3, 3), [1, 1], [1, 1], 1),
    ((0, 2, 3, 3), (2, 2, 2, 2), [1, 1], [1, 1], 1),
]
CONV3D = [
    ((1, 2, 3, 4, 5), (3, 2, 2, 2, 2), [1, 1, 1], [1, 1, 1], 1),
    ((2, 2, 5, 3, 4), (4, 1, 3, 2, 1), [2, 1, 2], [1, 2, 1], 2),
    ((1, 3, 3, 3, 3), (3, 1, 1, 1, 1), [1, 1, 1], [1, 1, 1], 3),
    ((1, 4, 4, 5, 19), (5, 4, 2, 3, 3), [1, 1, 1], [1, 1, 1], 1),
]
# input, weight, stride, padding, dilation, output padding, groups
DECONV2D = [
    ((1, 2, 3, 4), (2, 3, 2, 2), [2, 2], [0, 0], [1, 1], [0, 0], 1),
    ((1, 4, 3, 3), (4, 2, 3, 3), [2, 1], [1, 1], [1, 1], [1, 0], 2),
    ((2, 3, 4, 1), (3, 1, 3, 2), [3, 2], [1, 0], [1, 2], [2, 1], 3),
    ((1, 1, 1, 1), (1, 1, 1, 1), [1, 1], [0, 0], [1, 1], [0, 0], 1),
    ((1, 6, 5, 17), (6, 7, 3, 3), [1, 2], [1, 1], [2, 1], [0, 1], 1),
]
DECONV3D = [
    ((1, 2, 2, 3, 2), (2, 2, 2, 2, 2), [2, 1, 2], [0, 0, 0], [1, 1, 1], [0, 0, 0], 1),
    ((1, 4, 2, 2, 3), (4, 1, 3, 2, 1), [2, 2, 1], [1, 0, 0], [1, 1, 1], [1, 0, 0], 4),
]


def convolutions(table):
    dtypes = FLOATS + F8 + COMPLEX
    for name, shapes, f in (
        ("conv2d", CONV2D, conv),
        ("conv3d", CONV3D, conv),
        ("conv_transpose2d", DECONV2D, transposed),
        ("conv_transpose3d", DECONV3D, transposed),
    ):
        picks = [(dt, shapes[i % len(shapes)], f"{name}_{label(dt)}") for i, dt in enumerate(dtypes)]
        picks += [(dt, s, f"{name}_{dt}_shape{i}") for dt in ("f32", "f16") for i, s in enumerate(shapes)]
        for dt, (x, w, *more, groups), case in picks:
            given = sample(dt, x, rng_of(case), "unit"), sample(dt, w, rng_of(case + "w"), "unit")
            table.add(
                case,
                f"primitive.{name}_v1",
                [In(dt, x), C(dt, given[1]), *[u32(m) for m in more], scalar("ui32", groups)],
                [[given[0]]],
                f,
                [dt],
                **check(dt, 2),
            )
    case = "conv2d_free"
    w = sample("f32", (4, 3, 3, 2), rng_of(case), "unit")
    calls = [
        [sample("f32", (n, 3, h, v), rng_of(case + str(h)), "unit"), w]
        for n, h, v in ((1, 3, 2), (2, 5, 19), (1, 8, 8))
    ]
    table.add(
        case,
        "primitive.conv2d_v1",
        [In("f32", [None, 3, None, None]), In("f32", (4, 3, 3, 2)), u32([1, 1]), u32([1, 1]), scalar("ui32", 1)],
        calls,
        conv,
        ["f32"],
        **check("f32"),
    )


def pool(reduce):
    def apply(x, kernel, stride, dilation, ceil_mode=False):
        w = wide(x)
        axes = x.ndim - 2
        k, s, d = ([int(v) for v in np.asarray(a)] for a in (kernel, stride, dilation))
        reach = [d[i] * (k[i] - 1) + 1 for i in range(axes)]
        out = [(x.shape[2 + i] - reach[i] + (s[i] - 1 if ceil_mode else 0)) // s[i] + 1 for i in range(axes)]
        y = np.zeros((*x.shape[:2], *out), w.dtype)
        for at in np.ndindex(*out):
            cells = tuple(slice(a * s[i], min(a * s[i] + reach[i], x.shape[2 + i]), d[i]) for i, a in enumerate(at))
            y[(slice(None), slice(None), *at)] = reduce(
                w[(slice(None), slice(None), *cells)], axis=tuple(range(2, x.ndim))
            )
        return y

    return apply


POOLS = {
    "2d": [
        ((1, 2, 5, 6), [2, 3], [2, 1], [1, 1]),
        ((2, 1, 7, 4), [3, 2], [1, 1], [2, 1]),
        ((1, 3, 6, 33), [2, 2], [2, 2], [1, 1]),
        ((1, 1, 1, 1), [1, 1], [1, 1], [1, 1]),
        ((1, 2, 7, 7), [3, 3], [2, 2], [1, 1]),
    ],
    "3d": [
        ((1, 2, 3, 4, 5), [2, 2, 2], [1, 2, 2], [1, 1, 1]),
        ((1, 1, 5, 3, 3), [2, 2, 1], [2, 1, 1], [2, 1, 1]),
        ((2, 1, 2, 3, 17), [2, 3, 3], [1, 1, 2], [1, 1, 1]),
    ],
}


def pools(table):
    for rank, shapes in POOLS.items():
        for i, dt in enumerate(FLOATS + F8 + INTS):
            shape, *more = shapes[i % len(shapes)]
            x = sample(dt, shape, rng_of(f"pool{rank}{dt}"), "any" if is_int(dt) else "plain")
            ceil = i % 2 == 1
            table.add(
                f"max_pool_{rank}_{dt}",
                f"primitive.max_pool_{rank}_v1",
                [In(dt, shape), *[u32(m) for m in more], scalar("i1", ceil)],
                [[x]],
                pool(np.max),
                [dt],
            )
            table.add(
                f"sum_pool_{rank}_{dt}",
                f"primitive.sum_pool_{rank}_v1",
                [In(dt, shape), *[u32(m) for m in more]],
                [[x]],
                pool(np.sum),
                [dt],
                **check(dt, 2),
            )
        for i, (shape, *more) in enumerate(shapes):
            x = sample("f32", shape, rng_of(f"pool{rank}{i}"), "plain")
            x.reshape(-1)[x.size // 2] = np.nan
            for ceil in (False, True):
                table.add(
                    f"max_pool_{rank}_shape{i}_{'ceil' if ceil else 'floor'}",
                    f"primitive.max_pool_{rank}_v1",
                    [In("f32", shape), *[u32(m) for m in more], scalar("i1", ceil)],
                    [[x]],
                    pool(np.max),
                    ["f32"],
                )
    case = "max_pool_2d_free"
    calls = [[sample("f32", (1, 2, h, w), rng_of(case + str(h)), "plain")] for h, w in ((2, 3), (9, 20), (4, 4))]
    table.add(
        case,
        "primitive.max_pool_2d_v1",
        [In("f32", [1, 2, None, None]), u32([2, 2]), u32([2, 1]), u32([1, 1]), scalar("i1", False)],
        calls,
        pool(np.max),
        ["f32"],
    )


def interpolated(x, coords, mode):
    """coords: per axis, already clamped."""
    w = wide(x).astype(np.float64)
    for axis, c in enumerate(coords):
        if mode:
            w = np.take(w, np.rint(c).astype(int), axis)
            continue
        low = np.floor(c).astype(int)
        high = np.minimum(low + 1, x.shape[axis] - 1)
        t = (c - low).reshape([-1 if d == axis else 1 for d in range(w.ndim)])
        w = np.take(w, low, axis) * (1 - t) + np.take(w, high, axis) * t
    return w


def resized(mode):
    def apply(x, shape, scale, offset):
        coords = [
            np.clip((np.arange(int(n)) + np.float32(0.5) - o) / s - np.float32(0.5), 0, x.shape[d] - 1)
            for d, (n, s, o) in enumerate(zip(*(np.asarray(v) for v in (shape, scale, offset))))
        ]
        return interpolated(x, coords, mode)

    return apply


def resampling(table):
    shapes = [
        ((3, 4), (6, 8)),
        ((1, 2, 3, 5), (1, 2, 6, 5)),
        ((7,), (3,)),
        ((2, 3, 4), (2, 5, 2)),
        ((1, 1, 4, 33), (1, 1, 8, 66)),
        ((1,), (4,)),
    ]
    for i, dt in enumerate(FLOATS + F8 + INTS):
        for mode, name in enumerate(("linear", "nearest")):
            x, out = shapes[(i + mode) % len(shapes)]
            if mode == 0 and is_int(dt):
                continue  # how a blend of integers is rounded is open
            align = i % 3 == 2
            scale = [np.float32((b - 1) / (a - 1) if align and a > 1 and b > 1 else b / a) for a, b in zip(x, out)]
            offset = [np.float32(0.5) * (1 - s) if align else np.float32(0) for s in scale]
            case = f"interpolate_{name}_{dt}"
            table.add(
                case,
                "primitive.interpolate_v1",
                [In(dt, x), C("si32", np.asarray(out)), C("f32", np.array(scale)), C("f32", np.array(offset))],
                [[sample(dt, x, rng_of(case), "plain")]],
                resized(mode),
                [dt],
                attrs={"interpolation_mode": mode},
                **(check(dt) if mode == 0 else {}),
            )
            if dt in ("f32", "f16", "si32", "bf16"):
                case = f"interpolate_at_{name}_{dt}"
                coords = np.array([[0, 0], [1.25, 2.5], [-3, 9], [1.5, 0.5], [2, 3]], np.float32)

                def at(v, c, mode=mode):
                    return np.array(
                        [
                            interpolated(
                                v, [np.clip(c[k, d : d + 1], 0, v.shape[d] - 1) for d in range(2)], mode
                            ).reshape(())
                            for k in range(len(c))
                        ]
                    )

                table.add(
                    case,
                    "primitive.interpolate_coordinates_v1",
                    [In(dt, (3, 4)), In("f32", (5, 2))],
                    [[sample(dt, (3, 4), rng_of(case), "plain"), coords]],
                    at,
                    [dt],
                    attrs={"interpolation_mode": mode},
                    **(check(dt) if mode == 0 else {}),
                )


def tables():
    made = []
    for family, fill in (("matmul", [matrices]), ("conv", [convolutions]), ("pool", [pools, resampling])):
        table = Table(family)
        for f in fill:
            f(table)
        made.append(table)
    return made
