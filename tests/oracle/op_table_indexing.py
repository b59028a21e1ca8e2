"""Gathers and scatters, every combining mode and region, against NumPy."""

import numpy as np
from op_table import C, F8, FLOATS, INTS, NIBBLES, In, Table, is_int, rng_of, sample, to, type_text, wide

EVERY = FLOATS + F8 + INTS + NIBBLES + ["i1"]


def label(dt):
    return dt.strip("<>").replace("<", "_")


def indices(rng, shape, extent, negative=True):
    return rng.integers(-extent if negative else 0, extent, shape)


def gathered(x, index):
    index = np.asarray(index).astype(np.int64)
    if index.shape[-1] == 0:
        return np.broadcast_to(x, index.shape[:-1] + x.shape)
    return x[tuple(np.moveaxis(index, -1, 0))]


def placed(x, index, updates):
    out = x.copy()
    index = np.asarray(index).astype(np.int64)
    flat = index.reshape(-1, index.shape[-1])
    rows = updates.reshape((len(flat),) + x.shape[index.shape[-1] :])
    for at, row in zip(flat, rows):
        out[tuple(at)] = row
    return out


def scattered(mode):
    def apply(x, index, updates, axis):
        axis = int(axis)
        floats = wide(x).dtype.kind == "f"
        out = wide(x).astype(np.float64) if floats else wide(x).astype(object)
        u = wide(updates)
        index = np.asarray(index).astype(np.int64)
        for at in np.ndindex(*index.shape):
            target = list(at)
            target[axis] = index[at] % x.shape[axis]
            target, v = tuple(target), u[at] if floats else int(u[at])
            old = out[target]
            if mode == "div" and not floats:
                v = abs(old) // abs(v) * (1 if (old < 0) == (v < 0) else -1)
            else:
                v = {
                    "update": lambda: v,
                    "add": lambda: old + v,
                    "sub": lambda: old - v,
                    "mul": lambda: old * v,
                    "div": lambda: old / v,
                    "max": lambda: v if v > old else old,
                    "min": lambda: v if v < old else old,
                }[mode]()
            out[target] = v
        return out

    return apply


# data shape, index shape: of gather_nd and scatter_nd
DEPTHS = [
    ((5,), (3, 1)),
    ((4, 3), (5, 1)),
    ((4, 3), (2, 2)),
    ((2, 3, 4), (3, 2)),
    ((2, 3, 4), (2, 2, 3)),
    ((3, 2), (0, 1)),
    ((2, 2, 3, 2, 2), (4, 4)),
    ((6, 33), (7, 1)),
    ((3, 4), (2, 0)),
    ((4,), (1,)),
]


def nd_indices(rng, shape, index_shape):
    return (
        np.stack([indices(rng, index_shape[:-1], shape[d]) for d in range(index_shape[-1])], -1)
        if index_shape[-1]
        else np.zeros(index_shape, np.int64)
    )


def nd(table):
    for i, dt in enumerate(EVERY + ["complex<f32>"]):
        shape, at = DEPTHS[i % 8]
        width = "si16" if i % 3 == 0 else "si32"
        case = f"gather_nd_{label(dt)}"
        rng = rng_of(case)
        index = to(width, nd_indices(rng, shape, at))
        table.add(
            case,
            "primitive.gather_nd_v1",
            [In(dt, shape), In(width, at)],
            [[sample(dt, shape, rng), index]],
            gathered,
            [dt],
        )
        case = f"scatter_nd_{label(dt)}"
        updates = sample(dt, at[:-1] + shape[at[-1] :], rng_of(case), "plain")
        table.add(
            case,
            "primitive.scatter_nd_v1",
            [In(dt, shape), In(width, at), In(dt, updates.shape)],
            [[sample(dt, shape, rng), index, updates]],
            placed,
            [dt],
        )
    for i, (shape, at) in enumerate(DEPTHS):
        case = f"gather_nd_shape{i}"
        rng = rng_of(case)
        x, index = sample("f32", shape, rng, "plain"), to("si32", nd_indices(rng, shape, at))
        table.add(case, "primitive.gather_nd_v1", [In("f32", shape), C("si32", index)], [[x]], gathered, ["f32"])
    case = "gather_nd_free"
    calls = []
    for n, m in ((3, 2), (40, 5), (1, 0)):
        rng = rng_of(case + str(n))
        calls.append([sample("f16", (n, 5), rng, "plain"), to("si32", indices(rng, (m, 1), n))])
    table.add(case, "primitive.gather_nd_v1", [In("f16", [None, 5]), In("si32", [None, 1])], calls, gathered, ["f16"])
    element = type_text("f32", [])
    x = sample("f32", (4, 2), rng_of("keep"), "plain")
    table.add(
        "scatter_nd_keeps_old",
        "primitive.scatter_nd_v1",
        [In("f32", (4, 2)), C("si32", np.array([[1], [2]])), In("f32", (2, 2))],
        [[x, x[:2] + 1]],
        lambda v, i, u: v,
        ["f32"],
        region={"inputs": [element, element], "steps": [], "outputs": [0]},
    )


def combined(table):
    """scatter_nd whose region combines (old, new); duplicates one after the other."""
    forms = {
        "add": ("primitive.add_v1", [0, 1], lambda a, b: a + b),
        "sub": ("primitive.sub_v1", [0, 1], lambda a, b: a - b),
        "mul": ("primitive.mul_v1", [0, 1], lambda a, b: a * b),
        "max": ("primitive.maximum_v1", [1, 0], np.maximum),
        "less": ("primitive.sub_v1", [1, 0], lambda a, b: b - a),
    }
    for i, dt in enumerate(["f32", "f16", "si32", "ui8", "f64"]):
        for name, (op, operands, f) in forms.items():
            shape, at = [((5,), (7, 1)), ((4, 3), (3, 1)), ((2, 3, 4), (5, 2)), ((3, 2), (0, 1))][(i + len(name)) % 4]
            case = f"scatter_nd_{name}_{dt}"
            rng = rng_of(case)
            index = to("si32", nd_indices(rng, shape, at))
            updates = to(dt, rng.integers(0, 3, at[:-1] + shape[at[-1] :]).astype(np.int64))
            x = to(dt, rng.integers(0, 5, shape).astype(np.int64))

            def apply(v, k, u, f=f):
                out = wide(v).copy()
                flat = np.asarray(k).astype(np.int64).reshape(-1, k.shape[-1])
                for where, row in zip(flat, wide(u).reshape((len(flat),) + v.shape[k.shape[-1] :])):
                    out[tuple(where)] = f(out[tuple(where)], row)
                return out

            element = type_text(dt, [])
            table.add(
                case,
                "primitive.scatter_nd_v1",
                [In(dt, shape), In("si32", at), In(dt, updates.shape)],
                [[x, index, updates]],
                apply,
                [dt],
                region={
                    "inputs": [element, element],
                    "steps": [[op, operands, [element], {}]],
                    "outputs": [2],
                },
            )


def along_axis(table):
    shapes = [
        ((7,), (4,), 0),
        ((3, 5), (3, 2), 1),
        ((4, 3), (6, 3), 0),
        ((2, 3, 4), (2, 5, 4), -2),
        ((2, 3), (2, 0), 1),
        ((2, 2, 3, 2, 2), (2, 2, 4, 2, 2), 2),
        ((3, 33), (3, 40), 1),
    ]
    modes = ["update", "add", "sub", "mul", "div", "max", "min"]
    for i, dt in enumerate(EVERY):
        shape, at, axis = shapes[i % len(shapes)]
        width = "si16" if i % 2 else "si32"
        case = f"gather_along_{label(dt)}"
        rng = rng_of(case)
        index = to(width, indices(rng, at, shape[axis]))
        args = [In(dt, shape), In(width, at), C("si32", np.asarray(axis))]
        x = sample(dt, shape, rng)
        table.add(
            case,
            "primitive.gather_along_axis_v1",
            args,
            [[x, index]],
            lambda v, k, a: np.take_along_axis(v, np.asarray(k).astype(np.int64) % v.shape[int(a)], int(a)),
            [dt],
        )
        if dt == "i1":
            x, u = sample(dt, shape, rng), sample(dt, at, rng)
            table.add(
                "scatter_update_i1",
                "primitive.scatter_along_axis_v1",
                [args[0], args[1], In(dt, at), args[2]],
                [[x, index, u]],
                lambda v, k, w, a: scattered("update")(v, k, w, a).astype(bool),
                [dt],
                attrs={"scatter_mode": 0},
            )
            continue
        for m, mode in enumerate(modes):
            if dt not in ("f32", "f16", "bf16", "si32", "ui8", "si8") and m not in (0, 1 + i % 6):
                continue
            case = f"scatter_{mode}_{label(dt)}"
            rng = rng_of(case)
            # Duplicates are combined in order; small whole values keep 16- and 8-bit floats exact.
            whole = to(dt, rng.integers(1, 3, at))
            x = to(dt, rng.integers(0, 4, shape))
            f = scattered(mode)
            if is_int(dt):
                x, whole = (
                    sample(dt, shape, rng, "plain"),
                    sample(dt, at, rng, "positive" if dt[0] == "u" else "nonzero"),
                )
            table.add(
                case,
                "primitive.scatter_along_axis_v1",
                [args[0], args[1], In(dt, at), args[2]],
                [[x, index, whole]],
                f,
                [dt],
                attrs={"scatter_mode": m},
            )


def tables():
    table = Table("indexing")
    nd(table)
    combined(table)
    along_axis(table)
    return [table]
