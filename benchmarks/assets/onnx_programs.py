"""The programs `vit`, `unet` and `whisper` of author.cpp as ONNX models, with the weights that it wrote.

Standard operations of opset 21, one for each norm, Gelu and Softmax, so that ONNX Runtime meets what it has kernels for.
Weights are read in the order in which author.cpp makes them.
"""
import math
import pathlib

import numpy as np
import onnx
from onnx import TensorProto, helper, numpy_helper


class Program:
    def __init__(self, folder, name, inputs, output):
        self.name, self.inputs, self.output = name, inputs, output
        self.nodes, self.constants, self.count = [], [], 0
        self.stored = np.fromfile(pathlib.Path(folder) / f"{name}.weights", dtype=np.float32)
        self.used = 0

    def constant(self, array):
        self.constants.append(numpy_helper.from_array(np.asarray(array), f"c{len(self.constants)}"))
        return self.constants[-1].name

    def take(self, *shape):
        first, self.used = self.used, self.used + math.prod(shape)
        return self.stored[first:self.used].reshape(shape)

    def op(self, kind, *inputs, **attributes):
        self.count += 1
        self.nodes.append(helper.make_node(kind, list(inputs), [f"v{self.count}"], **attributes))
        return f"v{self.count}"

    def reshape(self, x, *shape):
        return self.op("Reshape", x, self.constant(np.array(shape, np.int64)))

    def linear(self, x, inputs, outputs, bias=True):
        y = self.op("MatMul", x, self.constant(np.ascontiguousarray(self.take(outputs, inputs).T)))
        return self.op("Add", y, self.constant(self.take(outputs))) if bias else y

    def layer_norm(self, x, width):
        scale, shift = self.take(width), self.take(width)
        return self.op("LayerNormalization", x, self.constant(scale), self.constant(shift), epsilon=1e-5)

    def group_norm(self, x, channels, groups):
        scale, shift = self.take(channels), self.take(channels)
        return self.op("GroupNormalization", x, self.constant(scale), self.constant(shift), epsilon=1e-6,
                       num_groups=groups)

    def silu(self, x):
        return self.op("Mul", x, self.op("Sigmoid", x))

    def conv(self, x, inputs, outputs, kernel, stride, pad):
        weight, bias = self.take(outputs, inputs, *kernel), self.take(outputs)
        return self.op("Conv", x, self.constant(weight), self.constant(bias), kernel_shape=kernel, strides=stride,
                       pads=[*pad, *pad])

    def heads(self, x, heads, width):
        return self.op("Transpose", self.reshape(x, 1, -1, heads, width // heads), perm=[0, 2, 1, 3])

    def attention(self, x, source, heads, width):
        q = self.heads(self.linear(x, width, width), heads, width)
        k = self.heads(self.linear(source, width, width, bias=False), heads, width)
        v = self.heads(self.linear(source, width, width), heads, width)
        q = self.op("Mul", q, self.constant(np.float32(1 / math.sqrt(width // heads))))
        scores = self.op("MatMul", q, self.op("Transpose", k, perm=[0, 1, 3, 2]))
        y = self.op("MatMul", self.op("Softmax", scores, axis=-1), v)
        y = self.reshape(self.op("Transpose", y, perm=[0, 2, 1, 3]), 1, -1, width)
        return self.linear(y, width, width)

    def encoder_layer(self, x, heads, width, ffn):
        norm = self.layer_norm(x, width)
        x = self.op("Add", x, self.attention(norm, norm, heads, width))
        y = self.op("Gelu", self.linear(self.layer_norm(x, width), width, ffn))
        return self.op("Add", x, self.linear(y, ffn, width))

    def save(self, result, path):
        if self.used != len(self.stored):
            raise SystemExit(f"{self.name}: {self.used} of {len(self.stored)} weights used: author.cpp has changed")
        self.nodes.append(helper.make_node("Identity", [result], ["y"]))
        value = lambda n, shape: helper.make_tensor_value_info(n, TensorProto.FLOAT, shape)  # noqa: E731
        graph = helper.make_graph(self.nodes, self.name, [value(n, s) for n, s in self.inputs.items()],
                                  [value("y", self.output)], self.constants)
        model = helper.make_model(graph, opset_imports=[helper.make_opsetid("", 21)], ir_version=10)
        onnx.checker.check_model(model)
        onnx.save(model, path)


def vit(folder):
    width, patches = 384, 196
    p = Program(folder, "vit", {"x": [1, 3, 224, 224]}, [1, patches, width])
    x = p.conv("x", 3, width, [16, 16], [16, 16], [0, 0])
    x = p.op("Transpose", p.reshape(x, 1, width, patches), perm=[0, 2, 1])
    x = p.op("Add", x, p.constant(p.take(1, patches, width)))
    for _ in range(6):
        x = p.encoder_layer(x, 6, width, 1536)
    return p, p.layer_norm(x, width)


def unet(folder):
    channels, side = 320, 32
    p = Program(folder, "unet", {"x": [1, channels, side, side], "context": [1, 77, channels]},
                [1, channels, side, side])
    three, one = ([3, 3], [1, 1], [1, 1]), ([1, 1], [1, 1], [0, 0])
    y = p.conv(p.silu(p.group_norm("x", channels, 32)), channels, channels, *three)
    x = p.op("Add", "x", p.conv(p.silu(p.group_norm(y, channels, 32)), channels, channels, *three))
    t = p.conv(p.group_norm(x, channels, 32), channels, channels, *one)
    t = p.op("Transpose", p.reshape(t, 1, channels, side * side), perm=[0, 2, 1])
    norm = p.layer_norm(t, channels)
    t = p.op("Add", t, p.attention(norm, norm, 8, channels))
    t = p.op("Add", t, p.attention(p.layer_norm(t, channels), "context", 8, channels))
    y = p.op("Gelu", p.linear(p.layer_norm(t, channels), channels, 4 * channels))
    t = p.op("Add", t, p.linear(y, 4 * channels, channels))
    t = p.reshape(p.op("Transpose", t, perm=[0, 2, 1]), 1, channels, side, side)
    return p, p.op("Add", x, p.conv(t, channels, channels, *one))


def whisper(folder):
    width, positions = 384, 1500
    p = Program(folder, "whisper", {"x": [1, 80, 1, 3000]}, [1, positions, width])
    x = p.op("Gelu", p.conv("x", 80, width, [1, 3], [1, 1], [0, 1]))
    x = p.op("Gelu", p.conv(x, width, width, [1, 3], [1, 2], [0, 1]))
    x = p.op("Transpose", p.reshape(x, 1, width, positions), perm=[0, 2, 1])
    x = p.op("Add", x, p.constant(p.take(1, positions, width)))
    for _ in range(4):
        x = p.encoder_layer(x, 6, width, 1536)
    return p, p.layer_norm(x, width)


PROGRAMS = {"vit": vit, "unet": unet, "whisper": whisper}


def write(folder, name, path):
    """Writes the ONNX model of a program; `folder` holds its weights."""
    program, result = PROGRAMS[name](folder)
    program.save(result, path)
