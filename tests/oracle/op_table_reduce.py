"""Reductions, softmax, argmax, scans and sorting against NumPy."""

import numpy as np
from op_table import C, F8, FLOATS, INTS, ULP, In, Table, i32, is_int, rng_of, sample, to, wide

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


def tables():
    made = []
    for family, fill in (("reduce", [reductions, softmax]), ("order", [ordering, scans])):
        table = Table(family)
        for f in fill:
            f(table)
        made.append(table)
    return made
