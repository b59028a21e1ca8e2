"""Reductions, softmax, argmax, scans and sorting against NumPy."""

import numpy as np
from op_table import C, F8, FLOATS, INTS, ULP, In, Program, Table, i32, is_int, rng_of, sample, to, type_text, wide

SHAPES = [
    ((5,), [0]),
    ((3, 4), [1]),
    ((3, 4), [0]),
    ((2, 3, 5), [0, 2]),
    ((2, 3, 4, 5), [1]),
    ((2, 1, 3, 2, 2), [-1, 1]),
    ((4, 67), [-1]),
    ((2, 3), [0, 1]),
    ((3, 2), []),
    ((1, 7), [0]),
]
EMPTY = [((0, 3), [0]), ((2, 0), [1]), ((2, 0, 3), [1, 2]), ((3, 0), [0])]


def axes_of(axes):
    return tuple(int(a) for a in axes)


def fold(name, x, axes):
    axes = axes_of(axes)
    if axes == ():
        return wide(x)
    w = wide(x)
    f = {"sum": np.sum, "mean": np.mean, "product": np.prod, "max": np.max, "min": np.min}[name]
    if w.size == 0 and name in ("max", "min"):
        shape = [1 if d in {a % w.ndim for a in axes} else n for d, n in enumerate(w.shape)]
        if is_float_array(w):
            return np.full(shape, -np.inf if name == "max" else np.inf)
        return None
    return f(w, axis=axes, keepdims=True)


def is_float_array(w):
    return w.dtype.kind == "f"


def reductions(table):
    lists = {
        "sum": FLOATS + F8 + INTS,
        "mean": FLOATS + F8,
        "product": FLOATS + F8 + INTS,
        "max": FLOATS + F8 + INTS,
        "min": FLOATS + F8 + INTS,
    }
    for name, dtypes in lists.items():
        exact = name in ("max", "min")
        for i, dt in enumerate(dtypes):
            shape, axes = SHAPES[i % 7]
            case = f"reduce_{name}_{dt}"
            kind = "plain" if not is_int(dt) else "any"
            x = sample(dt, shape, rng_of(case), kind)
            if name == "product" and not is_int(dt):
                x = sample(dt, shape, rng_of(case), "positive", 0.5, 1.5)
            check = {} if exact or is_int(dt) else {"rtol": ULP[dt], "atol": 2e-3 if dt in F8 else ULP[dt] / 2}
            table.add(
                case,
                f"reduce_{name}_v1",
                [In(dt, shape), i32(axes)],
                [[x]],
                lambda v, a, n=name: fold(n, v, a),
                [dt],
                **check,
            )
        for i, (shape, axes) in enumerate(SHAPES):
            for dt in ("f32", "bf16"):
                case = f"reduce_{name}_{dt}_shape{i}"
                axis_type = C("si16", np.asarray(axes, dtype=np.int64)) if i % 3 == 2 else i32(axes)
                x = sample(dt, shape, rng_of(case), "positive", 0.5, 1.5)
                table.add(
                    case,
                    f"reduce_{name}_v1",
                    [In(dt, shape), axis_type],
                    [[x]],
                    lambda v, a, n=name: fold(n, v, a),
                    [dt],
                    **({} if exact else {"rtol": ULP[dt]}),
                )
        for i, (shape, axes) in enumerate(EMPTY):
            case = f"reduce_{name}_f32_empty{i}"
            table.add(
                case,
                f"reduce_{name}_v1",
                [In("f32", shape), i32(axes)],
                [[np.zeros(shape, np.float32)]],
                lambda v, a, n=name: fold(n, v, a),
                ["f32"],
            )
        case = f"reduce_{name}_f32_nan"
        x = sample("f32", (4, 6), rng_of(case), "plain")
        x[1, 2], x[2, 0], x[3] = np.nan, np.inf, -np.inf
        table.add(
            case,
            f"reduce_{name}_v1",
            [In("f32", (4, 6)), i32([1])],
            [[x]],
            lambda v, a, n=name: fold(n, v, a),
            ["f32"],
            rtol=3e-6,
            atol=1e-6,
        )
        case = f"reduce_{name}_f32_free"
        calls = [
            [sample("f32", s, rng_of(case + str(s)), "positive", 0.5, 1.5), np.array([a], np.int32)]
            for s, a in (((3, 5), 1), ((2, 33), 0), ((1, 8), -1))
        ]
        table.add(
            case,
            f"reduce_{name}_v1",
            [In("f32", [None, None]), In("si32", [1])],
            calls,
            lambda v, a, n=name: fold(n, v, a),
            ["f32"],
            **({} if exact else {"rtol": 3e-6}),
        )
    # A 16-bit sum is accumulated wider: in steps of 16 bits it would stand still.
    for dt, n, big in (("f16", 64, 2048.0), ("bf16", 64, 256.0)):
        x = to(dt, np.array([big] + [1.0] * n))
        table.add(
            f"reduce_sum_{dt}_wide",
            "reduce_sum_v1",
            [In(dt, (n + 1,)), i32([0])],
            [[x]],
            lambda v, a: np.sum(wide(v), keepdims=True),
            [dt],
        )
    for name, f in (("all", np.all), ("any", np.any)):
        for i, (shape, axes) in enumerate([s for s in SHAPES if s[1]] + EMPTY):
            case = f"{name}_shape{i}"
            table.add(
                case,
                f"{name}_v1",
                [In("i1", shape), i32(axes)],
                [[sample("i1", shape, rng_of(case))]],
                lambda v, a, f=f: f(v, axis=axes_of(a), keepdims=True),
                ["i1"],
            )


def softmax_of(x, axis):
    x = wide(x)
    if x.size == 0:
        return x
    e = np.exp(x - np.max(x, axis=int(axis), keepdims=True))
    return e / e.sum(axis=int(axis), keepdims=True)


def scalar(dt, value):
    return C(dt, np.asarray(value))


def softmax(table):
    for i, dt in enumerate(FLOATS + F8):
        for shape, axis in (((3, 7), 1), ((4, 3, 2), -2), ((5,), 0), ((2, 1, 33), 2), ((0, 3), 1)):
            case = f"softmax_{dt}_{'x'.join(map(str, shape))}_{axis % len(shape)}"
            table.add(
                case,
                "softmax_v1",
                [In(dt, shape), scalar("si32", axis)],
                [[sample(dt, shape, rng_of(case), "plain")]],
                softmax_of,
                [dt],
                rtol=ULP[dt],
                atol=2e-3 if dt in F8 else 1e-7,
            )
    case = "softmax_f32_free"
    calls = [[sample("f32", s, rng_of(case + str(s)), "plain")] for s in ((1, 3), (4, 65), (2, 0), (7, 1))]
    table.add(
        case,
        "softmax_v1",
        [In("f32", [None, None]), scalar("si32", -1)],
        calls,
        softmax_of,
        ["f32"],
        rtol=3e-6,
        atol=1e-7,
    )
    x = np.array(
        [[-np.inf] * 4, [0, -np.inf, 1, 2], [np.inf, 0, np.inf, 1], [1, np.nan, 2, 3], [1000, 1000, -1000, 0]],
        np.float32,
    )
    want = [
        [0, 0, 0, 0],
        [*softmax_of(np.array([0, -np.inf, 1, 2.0]), 0)],
        [0.5, 0, 0.5, 0],
        [np.nan] * 4,
        [0.5, 0.5, 0, 0],
    ]
    table.add(
        "softmax_f32_infinities",
        "softmax_v1",
        [In("f32", (5, 4)), scalar("si32", 1)],
        [[x]],
        lambda *_: np.array(want),
        ["f32"],
        rtol=3e-6,
        atol=1e-7,
    )


def order(x, axis, descending):
    """NaN last in both directions, ties in their order."""
    w, axis = wide(x), int(axis)

    def row(values):
        keys = [int(v) if w.dtype.kind in "iu" else float(v) for v in values]
        nan = [k != k for k in keys]
        key = (
            (lambda i: (nan[i], 0 if nan[i] else -keys[i]))
            if descending
            else (lambda i: (nan[i], 0 if nan[i] else keys[i]))
        )
        return np.array(sorted(range(len(keys)), key=key), dtype=np.int64)

    return np.apply_along_axis(row, axis, w) if w.size else np.zeros(w.shape, np.int64)


def argmax_of(x, axis):
    return np.argmax(wide(x), axis=int(axis), keepdims=True)


def ordering(table):
    shapes = [((19,), 0), ((4, 6), -1), ((5, 3), 0), ((2, 5, 3), 1)]
    for i, dt in enumerate(FLOATS + INTS):
        for descending in (False, True):
            shape, axis = shapes[(i + descending) % len(shapes)]
            args = [In(dt, shape), scalar("si32", axis), scalar("i1", descending), scalar("i1", True)]
            case = f"sort_{dt}_{'down' if descending else 'up'}"
            x = sample(dt, shape, rng_of(case))
            table.add(
                case, "sort_v1", args, [[x]], lambda v, a, d, s: np.take_along_axis(v, order(v, a, d), int(a)), [dt]
            )
            table.add("arg" + case, "primitive.argsort_v1", args, [[x]], lambda v, a, d, s: order(v, a, d), ["si32"])
    for shape in ((0,), (1,), (3, 0), (1, 1, 4)):
        case = f"argsort_f32_{'x'.join(map(str, shape))}"
        table.add(
            case,
            "primitive.argsort_v1",
            [In("f32", shape), scalar("si16", -1), scalar("i1", False), scalar("i1", True)],
            [[sample("f32", shape, rng_of(case), "plain")]],
            lambda v, a, d, s: order(v, a, d),
            ["si32"],
        )
    case = "sort_f32_free"
    calls = [
        [sample("f32", s, rng_of(case + str(s)), "plain"), np.array(d)] for s, d in (((2, 5), True), ((1, 33), False))
    ]
    table.add(
        case,
        "sort_v1",
        [In("f32", [None, None]), scalar("si32", 1), In("i1", []), scalar("i1", True)],
        calls,
        lambda v, a, d, s: np.take_along_axis(v, order(v, a, d), int(a)),
        ["f32"],
    )
    for i, dt in enumerate(FLOATS + F8 + INTS):
        shape, axis = [((17,), 0), ((4, 6), -1), ((3, 4), 0), ((2, 3, 2), 1)][i % 4]
        case = f"argmax_{dt}"
        x = sample(dt, shape, rng_of(case), "plain", low=-3, high=3)
        table.add(
            case,
            "argmax_v1",
            [In(dt, shape), scalar("si32", axis)],
            [[x]],
            argmax_of,
            ["ui16" if i % 5 == 4 else "ui32"],
        )
    case = "argmax_f32_free"
    calls = [[sample("f32", s, rng_of(case + str(s)), "plain")] for s in ((1, 3), (4, 65), (7, 1))]
    table.add(case, "argmax_v1", [In("f32", [None, None]), scalar("si32", -1)], calls, argmax_of, ["ui32"])
    table.add(
        "argmax_f32_lowest",
        "argmax_v1",
        [In("f32", (2, 3)), scalar("si32", 1)],
        [[np.array([[-np.inf] * 3, [-np.inf, -np.inf, 0]], np.float32)]],
        argmax_of,
        ["ui32"],
    )


def scan_of(name):
    f = {"sum": np.cumsum, "product": np.cumprod, "min": np.minimum.accumulate, "max": np.maximum.accumulate}[name]

    def apply(x, axis, reverse):
        w, axis = wide(x), int(axis)
        w = np.flip(w, axis) if reverse else w
        w = f(w, axis=axis)
        return np.flip(w, axis) if reverse else w

    return apply


def scans(table):
    shapes = [((9,), 0), ((3, 5), 1), ((4, 2), 0), ((2, 3, 2), 1), ((0, 2), 0), ((2, 33), 1)]
    for mode, name in enumerate(("sum", "product", "min", "max")):
        for i, dt in enumerate(FLOATS + F8 + INTS):
            shape, axis = shapes[i % len(shapes)]
            case = f"scan_{name}_{dt}"
            exact = is_int(dt) or name in ("min", "max")
            x = sample(
                dt, shape, rng_of(case), "any" if is_int(dt) else "positive", *(() if is_int(dt) else (0.5, 1.5))
            )
            # Whether 16-bit running values are rounded on the way is open.
            check = {} if exact else {"rtol": 4 * ULP[dt]}
            table.add(
                case,
                "primitive.scan_v1",
                [In(dt, shape), scalar("ui16" if i % 2 else "ui32", axis), scalar("i1", i % 3 == 1)],
                [[x]],
                scan_of(name),
                [dt],
                attrs={"combiner": mode},
                **check,
            )
        x = np.array([[1, 2, np.nan, 0, 5], [-1, np.inf, 2, -np.inf, 3]], np.float32)
        table.add(
            f"scan_{name}_f32_nan",
            "primitive.scan_v1",
            [In("f32", (2, 5)), scalar("ui32", 1), In("i1", [])],
            [[x, np.array(False)], [x, np.array(True)]],
            scan_of(name),
            ["f32"],
            attrs={"combiner": mode},
        )


def body(inputs, steps, output):
    """A region over rank-0 values: steps are (operation, operands, result dtype)."""
    program = Program([type_text(dt, []) for dt in inputs])
    for op, operands, dt in steps:
        program.op(op, operands, [type_text(dt, [])])
    return program.json([output])


def folded(f, x, axes, start):
    """From `start`, in row-major order of the folded axes."""
    axes = sorted(int(a) % x.ndim for a in axes)
    kept = [d for d in range(x.ndim) if d not in axes]
    rows = np.transpose(wide(x), kept + axes).reshape([x.shape[d] for d in kept] + [-1])
    acc = np.full(rows.shape[:-1], wide(start)[()])
    for k in range(rows.shape[-1]):
        acc = f(acc, rows[..., k])
    return acc.reshape([1 if d in axes else n for d, n in enumerate(x.shape)])


def regions(table):
    """The two forms that carry a combiner, as decompositions hold them."""
    combiners = {
        "add": ("primitive.add_v1", np.add, 0),
        "mul": ("primitive.mul_v1", np.multiply, 1),
        "max": ("primitive.maximum_v1", np.maximum, 0),
        "min": ("primitive.minimum_v1", np.minimum, 0),
        "sub": ("primitive.sub_v1", np.subtract, 5),
    }
    for i, dt in enumerate(["f32", "f64", "si32", "ui8", "si64", "f16"]):
        for name, (op, f, start) in combiners.items():
            for shape, axes in [SHAPES[(i * 2 + len(name)) % 8], SHAPES[(i + 5) % 8]]:
                case = f"fold_{name}_{dt}_{'x'.join(map(str, shape))}_{len(axes)}"
                if case in table.names:
                    continue
                x = sample(dt, shape, rng_of(case), "positive", *(() if is_int(dt) else (0.5, 1.5)))
                check = {} if is_int(dt) or name in ("max", "min") else {"rtol": ULP[dt] * 4, "atol": ULP[dt] * 4}
                table.add(
                    case,
                    "primitive.reduce_v1",
                    [In(dt, shape), i32(axes), C(dt, np.asarray(start))],
                    [[x]],
                    lambda v, a, s, f=f: folded(f, v, a, s),
                    [dt],
                    region=body([dt, dt], [(op, [0, 1], dt)], 2),
                    **check,
                )
    for name, op in (("or", "primitive.bitwise_or_v1"), ("and", "primitive.bitwise_and_v1")):
        x = sample("i1", (3, 4), rng_of("fold" + name))
        f = np.logical_or if name == "or" else np.logical_and
        table.add(
            f"fold_{name}_i1",
            "primitive.reduce_v1",
            [In("i1", (3, 4)), i32([1]), C("i1", np.asarray(name == "and"))],
            [[x]],
            lambda v, a, s, f=f: folded(f, v, a, s),
            ["i1"],
            region=body(["i1", "i1"], [(op, [0, 1], "i1")], 2),
        )
    # A wider accumulator: 2,048 ones in f16 do not stand still.
    ones = np.ones((2, 2100), np.float16)
    table.add(
        "fold_add_f16_in_f32",
        "primitive.reduce_v1",
        [In("f16", (2, 2100)), i32([1]), C("f32", np.float32(0))],
        [[ones]],
        lambda v, a, s: folded(np.add, v, a, s),
        ["f32"],
        region=body(["f32", "f16"], [("primitive.cast_v1", [1], "f32"), ("primitive.add_v1", [0, 2], "f32")], 3),
    )
    # A region that is no chain of element-wise operations runs element by element.
    x = sample("f32", (3, 5), rng_of("foldreshape"), "plain")
    program = Program([type_text("f32", [])] * 2)
    one = program.const(C("si32", np.array([1])))
    row = program.op("primitive.reshape_v2", [1, one], ["1xf32"])
    program.const(i32([0]))
    top = program.op("reduce_max_v1", [row[0], len(program.types) - 1], ["1xf32"])
    none = program.const(C("si32", np.zeros(0, np.int64)))
    back = program.op("primitive.reshape_v2", [top[0], none], ["f32"])
    total = program.op("primitive.maximum_v1", [0, back[0]], ["f32"])
    table.add(
        "fold_max_f32_reshaped",
        "primitive.reduce_v1",
        [In("f32", (3, 5)), i32([0]), C("f32", np.float32(-9))],
        [[x]],
        lambda v, a, s: folded(np.maximum, v, a, s),
        ["f32"],
        region=program.json(total),
    )
    table.add(
        "fold_nothing",
        "primitive.reduce_v1",
        [In("f32", (2, 0)), i32([1]), C("f32", np.float32(7))],
        [[np.zeros((2, 0), np.float32)]],
        lambda v, a, s: folded(np.add, v, a, s),
        ["f32"],
        region=body(["f32", "f32"], [("primitive.add_v1", [0, 1], "f32")], 2),
    )
    for i, dt in enumerate(["f32", "f16", "si32", "ui8", "f64"]):
        shape, axis = [((9,), 0), ((3, 4), 1), ((4, 3), 0), ((2, 5, 3), -2), ((0, 2), 1)][i]
        for name in ("greatest", "smallest"):
            order_of = [1, 0] if name == "greatest" else [0, 1]
            x = sample(dt, shape, rng_of(name + dt), "plain", *((0, 4) if is_int(dt) else (-2, 2)))
            start = (-100 if name == "greatest" else 100) if dt != "ui8" else (0 if name == "greatest" else 100)

            def winner(v, a, s, k, name=name):
                f = np.argmax if name == "greatest" else np.argmin
                if v.size == 0:
                    return np.zeros((0, 1), np.int64)
                wins = np.max(wide(v), int(a), keepdims=True) > s if name == "greatest" else True
                return np.where(wins, f(wide(v), axis=int(a), keepdims=True), int(k))

            table.add(
                f"fold_index_{name}_{dt}",
                "primitive.reduce_index_v1",
                [In(dt, shape), scalar("si32", axis), C(dt, np.asarray(start)), scalar("ui32", 77)],
                [[x]],
                winner,
                ["ui32"],
                region=body([dt, dt], [("primitive.greater_v1", order_of, "i1")], 2),
            )


def tables():
    made = []
    for family, fill in (("reduce", [reductions, softmax, regions]), ("order", [ordering, scans])):
        table = Table(family)
        for f in fill:
            f(table)
        made.append(table)
    return made
