"""Shapes and data movement against NumPy."""

import numpy as np
from op_table import C, F8, FLOATS, INTS, NIBBLES, In, Program, Table, i32, rng_of, sample, type_text, u32, wide

EVERY = FLOATS + F8 + INTS + NIBBLES + ["i1", "complex<f32>"]


def label(dt):
    return dt.strip("<>").replace("<", "_")


def scalar(dt, value):
    return C(dt, np.asarray(value))


def slice_of(x, begin, end, stride):
    """Negative starts and ends count from the end once, both are clamped; backwards an end of -1 is before index 0."""
    picks = []
    for n, b, e, s in zip(x.shape, *(np.asarray(v).tolist() for v in (begin, end, stride))):
        if s > 0:
            b, e = (b + n if b < 0 else b), (e + n if e < 0 else e)
            b, e = min(max(b, 0), n), min(max(e, 0), n)
        else:
            b, e = (b + n if b < 0 else b), (e + n if e < -1 else e)
            b, e = min(max(b, 0), n - 1), min(max(e, -1), n - 1)
        picks.append(list(range(b, e, s)))
    return np.ix_(*picks)


def updated(x, begin, end, stride, update):
    out = x.copy()
    out[slice_of(x, begin, end, stride)] = update
    return out


def padded(x, padding, value, mode):
    pairs = np.asarray(padding).astype(int).reshape(-1, 2).tolist()
    if mode == "constant":
        out = np.full([n + b + e for n, (b, e) in zip(x.shape, pairs)], value, x.dtype)
        out[tuple(slice(b, b + n) for n, (b, _) in zip(x.shape, pairs))] = x
        return out
    index = np.pad(np.arange(x.size).reshape(x.shape), pairs, mode=mode)
    return x.reshape(-1)[index]


# name, operation, shape, further operands, definition
MOVES = [
    ("reshape", "primitive.reshape_v2", (2, 3, 4), [i32([4, -1])], lambda x, s: x.reshape(s)),
    ("transpose", "primitive.transpose_v1", (2, 3, 4), [u32([2, 0, 1])], lambda x, p: x.transpose(p)),
    ("expand", "primitive.expand_dims_v1", (3, 5), [i32([0, -1])], lambda x, a: x[None, :, :, None]),
    ("shrink", "primitive.shrink_dims_v1", (1, 3, 1, 5), [i32([-2, 0])], lambda x, a: x.reshape(3, 5)),
    (
        "slice",
        "primitive.slice_v1",
        (4, 7),
        [i32([1, -1]), i32([4, -9]), i32([1, -2])],
        lambda x, b, e, s: x[slice_of(x, b, e, s)],
    ),
    ("broadcast_to", "primitive.broadcast_to_v1", (3, 1), [u32([2, 3, 5])], lambda x, s: np.broadcast_to(x, s)),
    (
        "broadcast_in",
        "primitive.broadcast_in_dims_v1",
        (1, 3, 1),
        [u32([4, 2]), i32([-1, 0])],
        lambda x, s, a: np.broadcast_to(x, (2, 3, 4)),
    ),
    ("tile", "tile_v2", (2, 3), [u32([2, 3])], lambda x, r: np.tile(x, r)),
    ("reverse", "primitive.reverse_v1", (3, 5), [i32([-1])], lambda x, d: x[:, ::-1]),
]
MODES = ["wrap", "constant", "reflect", "edge", "symmetric"]


def by_dtype(table):
    for dt in EVERY:
        for name, op, shape, more, f in MOVES:
            case = f"{name}_{label(dt)}"
            table.add(case, op, [In(dt, shape), *more], [[sample(dt, shape, rng_of(case))]], f, [dt])
        case = f"slice_update_{label(dt)}"
        x, u = sample(dt, (4, 7), rng_of(case)), sample(dt, (2, 3), rng_of(case + "u"))
        table.add(
            case,
            "primitive.slice_update_v1",
            [In(dt, (4, 7)), i32([3, 1]), i32([-5, 7]), i32([-2, 2]), In(dt, (2, 3))],
            [[x, u]],
            lambda v, b, e, s, w: updated(v, b, e, s, w),
            [dt],
        )
        case = f"concat_{label(dt)}"
        parts = [sample(dt, s, rng_of(case + str(s))) for s in ((2, 3), (2, 0), (2, 5))]
        table.add(
            case,
            "primitive.concat_v1",
            [scalar("si32", -1)] + [In(dt, p.shape) for p in parts],
            [parts],
            lambda a, *p: np.concatenate(p, int(a)),
            [dt],
        )
        case = f"split_{label(dt)}"
        table.add(
            case,
            "primitive.split_v1",
            [In(dt, (3, 7)), scalar("ui32", 3), scalar("si32", 1)],
            [[sample(dt, (3, 7), rng_of(case))]],
            lambda x, s, a: np.split(x, [3, 6], 1),
            [dt] * 3,
        )
        if dt not in NIBBLES:
            for mode in (MODES.index("constant"), 2 + EVERY.index(dt) % 3):
                case = f"pad_{MODES[mode]}_{label(dt)}"
                table.add(
                    case,
                    "primitive.pad_v1",
                    [In(dt, (3, 4)), u32([1, 2, 2, 0]), C(dt, sample(dt, (), rng_of(case + "v"), "plain"))],
                    [[sample(dt, (3, 4), rng_of(case))]],
                    lambda x, p, v, m=MODES[mode]: padded(x, p, v, m),
                    [dt],
                    attrs={"padding_mode": mode},
                )
        table.add(
            f"get_shape_{label(dt)}",
            "primitive.get_shape_v2",
            [In(dt, (2, 0, 3))],
            [[sample(dt, (2, 0, 3), rng_of("shape"))]],
            lambda x: np.array(x.shape),
            ["ui32"],
        )
        if dt not in NIBBLES and dt != "complex<f32>":
            case = f"non_zero_{label(dt)}"
            x = sample(dt, (3, 4), rng_of(case), "any" if dt in FLOATS else "plain")
            table.add(
                case,
                "primitive.non_zero_v1",
                [In(dt, (3, 4))],
                [[x], [np.zeros((3, 4), x.dtype)]],
                lambda v: np.argwhere(wide(v) != 0),
                ["si32"],
            )


def by_shape(table):
    def one(name, op, shape, more, f, attrs=None):
        x = sample("f32", shape, rng_of(name), "plain")
        table.add(name, op, [In("f32", shape), *more], [[x]], f, ["f32"], attrs=attrs)

    for i, (shape, new) in enumerate(
        [
            ((), [1, 1]),
            ((6,), [2, -1]),
            ((2, 3), []),
            ((0, 3), [3, 0]),
            ((1, 1), []),
            ((2, 3, 4), [24]),
            ((4, 6), [2, 2, 2, 3, 1]),
            ((5,), [5]),
        ]
    ):
        if int(np.prod(shape)) == int(np.prod([abs(n) for n in new])) or -1 in new:
            one(f"reshape_shape{i}", "primitive.reshape_v2", shape, [i32(new)], lambda x, s: x.reshape(s))
    for i, perm in enumerate([[0], [1, 0], [0, 2, 1], [2, 1, 0], [3, 1, 2, 0], [0, 1, 3, 2], [4, 2, 0, 3, 1], []]):
        shape = [(2, 3, 1, 5, 4), (17, 1, 9, 2, 3)][i % 2][: len(perm)]
        one(f"transpose_shape{i}", "primitive.transpose_v1", shape, [u32(perm)], lambda x, p: x.transpose(p.tolist()))
    one("transpose_empty", "primitive.transpose_v1", (2, 0, 3), [u32([1, 2, 0])], lambda x, p: x.transpose(p))
    slices = [
        ((10,), [9], [-1], [-1]),
        ((10,), [9], [-11], [-1]),
        ((10,), [7], [0], [-1]),
        ((10,), [-3], [2**31 - 1], [1]),
        ((10,), [-20], [20], [3]),
        ((10,), [5], [5], [1]),
        ((10,), [8], [2], [1]),
        ((0,), [0], [5], [1]),
        ((3, 4, 5), [0, 3, 1], [3, 0, 4], [2, -1, 1]),
        ((2, 3, 2, 3, 2), [0, 1, 0, 2, 1], [2, 3, 1, -5, 2], [1, 1, 1, -1, 1]),
        ((1, 9), [0, 0], [1, 9], [1, 4]),
    ]
    for i, (shape, b, e, s) in enumerate(slices):
        one(
            f"slice_shape{i}",
            "primitive.slice_v1",
            shape,
            [i32(b), i32(e), i32(s)],
            lambda x, b, e, s: x[slice_of(x, b, e, s)],
        )
        case = f"slice_given{i}"
        x = sample("f32", shape, rng_of(case), "plain")
        table.add(
            case,
            "primitive.slice_v1",
            [In("f32", [None] * len(shape))] + [In("si32", [len(shape)])] * 3,
            [[x] + [np.array(v, np.int32) for v in (b, e, s)]],
            lambda x, b, e, s: x[slice_of(x, b, e, s)],
            ["f32"],
        )
        u = sample("f32", x[slice_of(x, b, e, s)].shape, rng_of(case + "u"), "plain")
        table.add(
            f"slice_update_shape{i}",
            "primitive.slice_update_v1",
            [In("f32", shape), i32(b), i32(e), i32(s), In("f32", u.shape)],
            [[x, u]],
            lambda v, b, e, s, w: updated(v, b, e, s, w),
            ["f32"],
        )
    one("slice_scalar", "primitive.slice_v1", (), [i32([])] * 3, lambda x, *_: x)
    for i, (shape, to_shape) in enumerate(
        [((), [2, 3]), ((1,), [0]), ((1, 1), [0, 3]), ((3,), [3]), ((1, 5, 1), [2, 3, 5, 4])]
    ):
        one(
            f"broadcast_to_shape{i}",
            "primitive.broadcast_to_v1",
            shape,
            [u32(to_shape)],
            lambda x, s: np.broadcast_to(x, s.tolist()),
        )
    for i, (shape, reps) in enumerate(
        [((3,), [2]), ((2, 3), [4]), ((2, 1, 2), [1, 3, 2]), ((0, 2), [2, 2]), ((1, 2, 1, 2, 1), [2, 1, 3, 1, 2])]
    ):
        one(f"tile_shape{i}", "tile_v2", shape, [u32(reps)], lambda x, r: np.tile(x, r.tolist()))
    for i, (shape, dims) in enumerate(
        [((5,), [0]), ((2, 3, 4), [0, 2]), ((2, 3), []), ((0, 2), [0]), ((2, 1, 3, 2, 2), [4, 2, 0])]
    ):
        one(f"reverse_shape{i}", "primitive.reverse_v1", shape, [i32(dims)], lambda x, d: np.flip(x, tuple(d.tolist())))
    for mode, name in enumerate(MODES):
        for i, (shape, p) in enumerate(
            [
                ((5,), [3, 4]),
                ((2, 3, 4), [0, 0, 1, 2, 3, 0]),
                ((4, 33), [2, 1, 5, 7]),
                ((2, 2, 3, 3, 2), [1, 0, 0, 1, 2, 2, 0, 0, 1, 1]),
            ]
        ):
            one(
                f"pad_{name}_shape{i}",
                "primitive.pad_v1",
                shape,
                [u32(p), C("f32", np.float32(-1.5))],
                lambda x, q, v, m=name: padded(x, q, v, m),
                {"padding_mode": mode},
            )
    one(
        "pad_constant_scalar",
        "primitive.pad_v1",
        (),
        [u32([]), C("f32", np.float32(1))],
        lambda x, *_: x,
        {"padding_mode": 1},
    )
    one(
        "pad_constant_empty",
        "primitive.pad_v1",
        (0, 2),
        [u32([1, 2, 0, 1]), C("f32", np.float32(2))],
        lambda x, q, v: padded(x, q, v, "constant"),
        {"padding_mode": 1},
    )


def free_shapes(table):
    shapes = [(2, 3), (1, 19), (0, 4)]
    for name, op, more, f in [
        ("transpose", "primitive.transpose_v1", [u32([1, 0])], lambda x, p: x.T),
        ("expand", "primitive.expand_dims_v1", [i32([1])], lambda x, a: x[:, None]),
        ("reverse", "primitive.reverse_v1", [i32([0, 1])], lambda x, d: x[::-1, ::-1]),
        ("tile", "tile_v2", [u32([2, 1])], lambda x, r: np.tile(x, r)),
        ("reshape", "primitive.reshape_v2", [i32([-1])], lambda x, s: x.reshape(-1)),
        (
            "slice",
            "primitive.slice_v1",
            [i32([0, -2]), i32([1, 2**31 - 1]), i32([1, 1])],
            lambda x, b, e, s: x[slice_of(x, b, e, s)],
        ),
        (
            "pad",
            "primitive.pad_v1",
            [u32([0, 1, 2, 0]), C("f32", np.float32(7))],
            lambda x, p, v: padded(x, p, v, "constant"),
        ),
    ]:
        calls = [[sample("f32", s, rng_of(name + str(s)), "plain")] for s in shapes]
        table.add(
            f"{name}_free",
            op,
            [In("f32", [None, None]), *more],
            calls,
            f,
            ["f32"],
            attrs={"padding_mode": 1} if name == "pad" else None,
        )
    calls = [
        [sample("f32", (n, 3), rng_of(f"cat{n}"), "plain"), sample("f32", (2, 3), rng_of("cat"), "plain")]
        for n in (1, 0, 9)
    ]
    table.add(
        "concat_free",
        "primitive.concat_v1",
        [scalar("si32", 0), In("f32", [None, 3]), In("f32", [None, 3])],
        calls,
        lambda a, x, y: np.concatenate([x, y]),
        ["f32"],
    )
    for i, (a, b) in enumerate([([2, 3], [3]), ([], [4]), ([1, 5, 1], [7, 1, 2]), ([0], [1])]):
        for dt in ("ui32", "ui16"):
            arrays = [np.array(v, dt.replace("ui", "uint")) for v in (a, b)]
            table.add(
                f"broadcast_shapes_{dt}_{i}",
                "primitive.broadcast_shapes_v1",
                [In(dt, [len(a)]), In(dt, [len(b)])],
                [arrays],
                lambda p, q: np.array(np.broadcast_shapes(tuple(p.tolist()), tuple(q.tolist()))),
                [dt],
            )
    for i, dt in enumerate(FLOATS + INTS):
        cases = [(0, 7, 2), (5, 5, 1), (9, 0, -3)] if dt[0] != "u" else [(0, 7, 2), (5, 5, 1), (3, 100, 19)]
        program = [[np.array(v).astype(wide_type(dt)) for v in c] for c in cases]
        table.add(
            f"range_{dt}",
            "primitive.range_v1",
            [In(dt, [])] * 3,
            program,
            lambda a, b, s: np.arange(float(a), float(b), float(s)),
            [dt],
        )
    for i, (sections, axis, shape) in enumerate([([2, 0, 3], 0, (5, 2)), ([1, 1], -1, (3, 2)), ([4], 1, (1, 4, 2))]):
        x = sample("f32", shape, rng_of(f"split{i}"), "plain")
        table.add(
            f"split_sections{i}",
            "primitive.split_v1",
            [In("f32", shape), u32(sections), scalar("si32", axis)],
            [[x]],
            lambda v, s, a: np.split(v, np.cumsum(s)[:-1].tolist(), int(a)),
            ["f32"] * len(sections),
        )


def wide_type(dt):
    from op_table import NP

    return NP[dt]


def images(table):
    """Bytes keep their order through an image and back."""
    for code, channels in ((24, 3), (32, 4), (1111970369, 4)):
        shape = (3, 5, channels)
        x = sample("ui8", shape, rng_of(f"image{code}"), "any", 0, 255)
        program = Program([In("ui8", shape)])
        image = program.op("primitive.tensor_to_image_v1", [0], [f"image {code} 3 5"])
        back = program.op("primitive.image_to_tensor_v1", image, [type_text("ui8", shape)])
        table.program(
            f"image_{code}",
            ["primitive.tensor_to_image_v1", "primitive.image_to_tensor_v1"],
            program.json(back),
            [([("ui8", x)], [("ui8", x)])],
        )


def tables():
    table, shapes = Table("movement"), Table("movement_shapes")
    by_dtype(table)
    by_shape(shapes)
    free_shapes(shapes)
    images(shapes)
    return [table, shapes]
