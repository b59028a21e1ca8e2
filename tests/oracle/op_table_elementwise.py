"""Unary, binary, comparing and selecting operations against NumPy."""

import math

import numpy as np
from op_table import F8, FLOATS, INTS, NIBBLES, ULP, In, Program, Table, bounds, is_int, rng_of, sample, to, wide

SHAPES = [(), (0,), (1,), (7,), (3, 5), (1, 67), (2, 0, 3), (2, 3, 5), (2, 1, 3, 5), (1, 2, 3, 1, 5)]
erf = np.vectorize(math.erf, otypes=[np.float64])


def sigmoid(x):
    return 1 / (1 + np.exp(-x))


def reciprocal_root(x):
    return 1 / np.sqrt(x)


def gelu_none(x):
    return x * 0.5 * (1 + erf(x / math.sqrt(2)))


def gelu_tanh(x):
    return x * 0.5 * (1 + np.tanh(math.sqrt(2 / math.pi) * (x + 0.044715 * x**3)))


# name -> (definition, dtypes, kind of values, exact)
UNARY = {
    "acos": (np.arccos, FLOATS, "unit", False),
    "acosh": (np.arccosh, FLOATS, "any", False),
    "asin": (np.arcsin, FLOATS, "unit", False),
    "asinh": (np.arcsinh, FLOATS, "any", False),
    "atan": (np.arctan, FLOATS, "any", False),
    "atanh": (np.arctanh, FLOATS, "unit", False),
    "erf": (erf, FLOATS, "any", False),
    "rsqrt": (reciprocal_root, FLOATS, "any", False),
    "sqrt": (np.sqrt, FLOATS, "any", True),
    "tanh": (np.tanh, FLOATS, "any", False),
    "cos": (np.cos, FLOATS + ["complex<f32>"], "any", False),
    "cosh": (np.cosh, FLOATS + ["complex<f32>"], "any", False),
    "log": (np.log, FLOATS + ["complex<f32>"], "any", False),
    "sin": (np.sin, FLOATS + ["complex<f32>"], "any", False),
    "tan": (np.tan, FLOATS + ["complex<f32>"], "plain", False),
    "exp": (np.exp, FLOATS + F8 + ["complex<f32>"], "any", False),
    "sinh": (np.sinh, FLOATS + F8 + ["complex<f32>"], "any", False),
    "abs": (np.abs, FLOATS + INTS, "any", True),
    "round": (np.rint, FLOATS + INTS, "any", True),
    "relu_v1": (lambda x: np.maximum(x, np.zeros((), x.dtype)), FLOATS + F8 + INTS, "any", True),
    "sigmoid_v1": (sigmoid, FLOATS + F8 + ["complex<f32>"], "any", False),
    "silu_v1": (lambda x: x * sigmoid(x), FLOATS + F8 + ["complex<f32>"], "any", False),
}


def disk(name):
    return name if name.endswith("_v1") else f"primitive.{name}_v1"


# Exact results whose zeros have a defined sign.
SIGNED_ZEROS = {"add", "sub", "mul", "divide", "modulo", "sqrt", "round", "abs"}


def tolerance(dt, exact, name=""):
    if is_int(dt) or dt == "i1":
        return {}
    if exact:
        return {"zero_sign": True} if name in SIGNED_ZEROS else {}
    atol = {"f64": 1e-14, "f32": 1e-6, "f16": 1e-6, "bf16": 1e-6, "complex<f32>": 3e-6}.get(dt, 0.002)
    return {"rtol": ULP[dt], "atol": atol}


def unary(table):
    for name, (f, dtypes, kind, exact) in UNARY.items():

        def reference(x, f=f):
            return f(wide(x))

        for i, dt in enumerate(dtypes):
            case = f"{name.removesuffix('_v1')}_{dt.strip('<>').replace('<', '_')}"
            integer_round = name == "round" and is_int(dt)
            ref = (lambda x: wide(x)) if integer_round else reference
            shape = [(24,), (4, 7), (2, 3, 5)][i % 3]
            table.add(
                case,
                disk(name),
                [In(dt, shape)],
                [[sample(dt, shape, rng_of(case), kind)]],
                ref,
                [dt],
                **tolerance(dt, exact, name),
            )
        for dt in ("f32", "f16"):
            case = f"{name.removesuffix('_v1')}_{dt}_free"
            shapes = [(3, 5), (1, 33), (0, 4), (5, 1)]
            table.add(
                case,
                disk(name),
                [In(dt, [None, None])],
                [[sample(dt, s, rng_of(case), "unit" if kind == "unit" else "plain")] for s in shapes],
                reference,
                [dt],
                **tolerance(dt, exact, name),
            )
    for shape in SHAPES:  # every rank and extent once; one kernel serves all
        for name in ("exp", "abs", "sigmoid_v1"):
            f, _, _, exact = UNARY[name]
            case = f"{name.removesuffix('_v1')}_shape_{'x'.join(map(str, shape)) or 'scalar'}"
            table.add(
                case,
                disk(name),
                [In("f32", shape)],
                [[sample("f32", shape, rng_of(case), "plain")]],
                lambda x, f=f: f(wide(x)),
                ["f32"],
                **tolerance("f32", exact, name),
            )
    for mode, (name, f) in enumerate(
        [("none", gelu_none), ("tanh", gelu_tanh), ("sigmoid", lambda x: x * sigmoid(1.702 * x))]
    ):
        for dt in FLOATS:
            case = f"gelu_{name}_{dt}"
            check = tolerance(dt, False)
            # The sum in the formula cancels for x below -5.
            check["atol"] = {"f64": 1e-14, "f32": 2e-6, "f16": 5e-4, "bf16": 2e-6}[dt]
            table.add(
                case,
                "primitive.gelu_v1",
                [In(dt, (3, 9))],
                [[sample(dt, (3, 9), rng_of(case), "plain")]],
                lambda x, f=f: f(wide(x)),
                [dt],
                attrs={"approximate": mode},
                **check,
            )
    x = sample("i1", (3, 7), rng_of("not"))
    table.add("not_i1", "primitive.not_v1", [In("i1", (3, 7))], [[x]], np.logical_not, ["i1"])


def pairs(x, y):
    x, y = np.broadcast_arrays(x, y)
    return [int(v) for v in x.reshape(-1)], [int(v) for v in y.reshape(-1)]


def per_pair(f):
    def apply(x, y):
        values = [f(a, b) for a, b in zip(*pairs(x, y))]
        return np.array(values, dtype=object).reshape(np.broadcast_shapes(np.shape(x), np.shape(y)))

    return apply


def integer_pow(a, b):
    if b >= 0:
        return pow(a, b, 1 << 64)
    return 1 if a == 1 else (1 if b % 2 == 0 else -1) if a == -1 else 0


def float_floor_divide(x, y):
    narrow = np.asarray(x).dtype != np.float64
    q = wide(x) / wide(y)
    return np.floor(q.astype(np.float32) if narrow else q).astype(np.float64)


def arithmetic(name, dt):
    """-> (definition on arrays of the dtype, exact)."""
    if is_int(dt):
        f = {
            "add": lambda a, b: a + b,
            "sub": lambda a, b: a - b,
            "mul": lambda a, b: a * b,
            "divide": lambda a, b: abs(a) // abs(b) * (1 if (a < 0) == (b < 0) else -1),
            "floor_divide": lambda a, b: a // b,
            "modulo": lambda a, b: int(math.copysign(1, a)) * (abs(a) % abs(b)),
            "pow": integer_pow,
            "maximum": max,
            "minimum": min,
        }[name]
        return per_pair(f), True
    if dt == "i1":
        return {"add": np.logical_or, "mul": np.logical_and}[name], True
    if name == "floor_divide":
        return float_floor_divide, True
    f = {
        "add": np.add,
        "sub": np.subtract,
        "mul": np.multiply,
        "divide": np.divide,
        "modulo": np.fmod,
        "pow": np.power,
        "maximum": np.maximum,
        "minimum": np.minimum,
    }[name]
    return (lambda x, y: f(wide(x), wide(y))), name != "pow" and dt != "complex<f32>"


B, COMPLEX = ["i1"], ["complex<f32>"]
# name -> (dtypes of the plain form, dtypes of the broadcasting form)
ARITHMETIC = {
    "add": (FLOATS + F8 + INTS + B + COMPLEX,) * 2,
    "mul": (FLOATS + F8 + INTS + B + COMPLEX,) * 2,
    "sub": (FLOATS + F8 + INTS + COMPLEX,) * 2,
    "divide": (FLOATS + F8 + INTS + COMPLEX,) * 2,
    "maximum": (FLOATS + F8 + INTS,) * 2,
    "minimum": (FLOATS + F8 + INTS,) * 2,
    "floor_divide": (FLOATS + INTS,) * 2,
    "modulo": (FLOATS + INTS,) * 2,
    "pow": (FLOATS + INTS + COMPLEX, FLOATS + INTS),
}
BROADCASTS = [
    ((3, 5), (5,)),
    ((), (2, 3)),
    ((2, 1, 4), (3, 1)),
    ((4, 1), (1, 6)),
    ((1, 0, 3), (2, 1, 3)),
    ((2, 1, 3, 1, 2), (1, 4, 1, 3, 1)),
    ((7,), (1,)),
    ((1,), ()),
    ((2, 3, 33), (2, 1, 33)),
    ((5, 1, 1), (17,)),
]


def operands(name, dt, shapes, rng):
    x = sample(dt, shapes[0], rng, "any" if dt not in F8 else "plain")
    divides = name in ("divide", "floor_divide", "modulo")
    kind = "nonzero" if is_int(dt) and divides else "plain" if name == "pow" or is_int(dt) else "any"
    y = sample(dt, shapes[1], rng, kind)
    if dt == "complex<f32>" or dt in F8:
        y = sample(dt, shapes[1], rng, "nonzero")
    if y.ndim == 1 and not is_int(dt):
        y = np.roll(y, 3)  # specials meet other specials
    return [x, y]


def binary(table):
    for name, lists in ARITHMETIC.items():
        for form, dtypes in zip(("plain", "broadcasting"), lists):
            op = f"broadcasting_{name}_v1" if form == "broadcasting" else f"primitive.{name}_v1"
            for i, dt in enumerate(dtypes):
                f, exact = arithmetic(name, dt)
                shapes = [(26,)] * 2 if form == "plain" else BROADCASTS[i % len(BROADCASTS)]
                case = f"{name}_{form}_{dt.strip('<>').replace('<', '_')}"
                args = [In(dt, s) for s in shapes]
                table.add(
                    case, op, args, [operands(name, dt, shapes, rng_of(case))], f, [dt], **tolerance(dt, exact, name)
                )
    for i, shapes in enumerate(BROADCASTS):
        for name in ("sub", "pow") if i % 2 else ("divide", "maximum"):
            f, exact = arithmetic(name, "f32")
            case = f"{name}_f32_shapes{i}"
            table.add(
                case,
                f"broadcasting_{name}_v1",
                [In("f32", s) for s in shapes],
                [[sample("f32", s, rng_of(case), "positive") for s in shapes]],
                f,
                ["f32"],
                **tolerance("f32", exact, name),
            )
    free = [((3, 5), (1, 5)), ((1, 17), (4, 1)), ((2, 2), (2, 2)), ((1, 0), (3, 1))]
    for name in ("add", "mul", "floor_divide", "minimum"):
        for dt in ("f32", "bf16", "si32"):
            f, exact = arithmetic(name, dt)
            case = f"{name}_{dt}_free"
            calls = [
                [sample(dt, a, rng_of(case), "nonzero"), sample(dt, b, rng_of(case + "b"), "nonzero")] for a, b in free
            ]
            table.add(
                case,
                f"broadcasting_{name}_v1",
                [In(dt, [None, None])] * 2,
                calls,
                f,
                [dt],
                **tolerance(dt, exact, name),
            )


def comparing(table):
    lists = {
        "equal": (FLOATS + INTS + B + COMPLEX,) * 2,
        "not_equal": (FLOATS + INTS + B + COMPLEX,) * 2,
        "greater": (FLOATS + F8 + INTS, FLOATS + INTS + B),
    }
    f = {"equal": np.equal, "not_equal": np.not_equal, "greater": np.greater}
    for name, forms in lists.items():
        for form, dtypes in zip(("plain", "broadcasting"), forms):
            op = f"broadcasting_{name}_v1" if form == "broadcasting" else f"primitive.{name}_v1"
            for i, dt in enumerate(dtypes):
                shapes = [(26,)] * 2 if form == "plain" else BROADCASTS[(i + 3) % len(BROADCASTS)]
                case = f"{name}_{form}_{dt.strip('<>').replace('<', '_')}"
                x = sample(dt, shapes[0], rng_of(case))
                y = sample(dt, shapes[1], rng_of(case + "y"))
                if form == "plain":
                    y[::2] = x[::2]
                table.add(
                    case, op, [In(dt, s) for s in shapes], [[x, y]], lambda a, b, g=f[name]: g(wide(a), wide(b)), ["i1"]
                )
    bitwise = {"and": np.bitwise_and, "or": np.bitwise_or, "xor": np.bitwise_xor}
    for name, g in bitwise.items():
        for form, shapes in (("primitive.{}_v1", ((13,), (13,))), ("broadcasting_{}_v1", ((3, 1, 2), (4, 1)))):
            kind = form.split("{")[0].strip("._")
            for i, dt in enumerate(INTS + B):
                case = f"bitwise_{name}_{kind}_{dt}"
                arrays = [sample(dt, s, rng_of(case + str(k))) for k, s in enumerate(shapes)]
                table.add(
                    case,
                    form.format(f"bitwise_{name}"),
                    [In(dt, s) for s in shapes],
                    [arrays],
                    lambda a, b, g=g: g(wide(a), wide(b)),
                    [dt],
                )
            case = f"logical_{name}_{kind}"
            arrays = [sample("i1", s, rng_of(case + str(k))) for k, s in enumerate(shapes)]
            table.add(
                case,
                form.format(f"logical_{name}"),
                [In("i1", s) for s in shapes],
                [arrays],
                lambda a, b, g=g: g(a, b),
                ["i1"],
            )


def selecting(table):
    every = FLOATS + F8 + INTS + NIBBLES + B + COMPLEX
    for i, dt in enumerate(every):
        for form, shapes in (
            ("primitive.where_v1", ((11,), (11,), (11,))),
            ("broadcasting_where_v1", [((2, 1), (3,), ()), ((), (2, 3), (2, 1)), ((1, 4, 1), (2, 1, 3), (1,))][i % 3]),
        ):
            case = f"where_{form[0]}_{dt.strip('<>').replace('<', '_')}"
            args = [In("i1", shapes[0]), In(dt, shapes[1]), In(dt, shapes[2])]
            arrays = [sample(a.dt, a.shape, rng_of(case + str(k))) for k, a in enumerate(args)]
            table.add(case, form, args, [arrays], lambda c, a, b: np.where(c, a, b), [dt])
    for dt in ("f32", "f16"):
        case = f"where_{dt}_free"
        calls = [
            [sample("i1", s, rng_of(case)), sample(dt, s, rng_of(case)), sample(dt, s[1:], rng_of(case))]
            for s in ((2, 3), (1, 19), (0, 2))
        ]
        table.add(
            case,
            "broadcasting_where_v1",
            [In("i1", [None, None]), In(dt, [None, None]), In(dt, [None])],
            calls,
            lambda c, a, b: np.where(c, a, b),
            [dt],
        )


def complex_parts(table):
    for shape in ((), (5,), (2, 3), (0, 2)):
        case = f"complex_{'x'.join(map(str, shape)) or 'scalar'}"
        re, im = (sample("f32", shape, rng_of(case + k), "plain") for k in "ri")
        z = (re + 1j * im).astype(np.complex64)
        table.add(
            "create_" + case,
            "primitive.create_complex_v1",
            [In("f32", shape)] * 2,
            [[re, im]],
            lambda a, b: (a + 1j * b).astype(np.complex64),
            ["complex<f32>"],
        )
        table.add("real_" + case, "primitive.real_part_v1", [In("complex<f32>", shape)], [[z]], np.real, ["f32"])
        table.add(
            "imaginary_" + case, "primitive.imaginary_part_v1", [In("complex<f32>", shape)], [[z]], np.imag, ["f32"]
        )


def casts(table):
    """Floats truncate and saturate, NaN gives 0; integers clamp; i1 is a test against zero; floats round once."""
    every = FLOATS + F8 + INTS + NIBBLES + B

    def cast(x, dt):
        x = wide(x)
        if dt == "i1":
            return x != 0
        if not is_int(dt):
            return to(dt, x.astype(np.float64) if x.dtype == np.bool_ else x)
        low, high = bounds(dt)
        values = [
            0
            if isinstance(v, float) and math.isnan(v)
            else (high if v > 0 else low)
            if isinstance(v, float) and math.isinf(v)
            else min(max(int(v), low), high)
            for v in x.reshape(-1).tolist()
        ]
        return np.array(values, dtype=object).reshape(x.shape)

    for dt in every:
        x = sample(dt, (23,), rng_of("cast" + dt))
        if dt in FLOATS:
            x[-4:] = to(dt, np.array([100.7, -3.5, 0.9, 300.0]))
        program = Program([In(dt, (23,))])
        targets = [t for t in every if t != dt]
        ids = [program.op("primitive.cast_v1", [0], [f"23x{t}"])[0] for t in targets]
        with np.errstate(all="ignore"):
            outs = [(t, to(t, cast(x, t))) for t in targets]
        table.program(f"cast_from_{dt}", ["primitive.cast_v1"], program.json(ids), [([(dt, x)], outs)])
    z = sample("f32", (4,), rng_of("castc"), "plain")
    table.add(
        "cast_f32_to_complex",
        "primitive.cast_v1",
        [In("f32", (4,))],
        [[z]],
        lambda a: a.astype(np.complex64),
        ["complex<f32>"],
    )


def tables():
    made = []
    for family, fill in (
        ("unary", [unary]),
        ("binary", [binary]),
        ("compare", [comparing, selecting]),
        ("cast", [casts, complex_parts]),
    ):
        table = Table(family)
        for f in fill:
            f(table)
        made.append(table)
    return made
