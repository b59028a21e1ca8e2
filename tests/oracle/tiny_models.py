"""Tiny random llama and gemma3 checkpoints, and an independent NumPy forward pass over what they hold.

Source of the two architectures: the papers' formulas as the Hugging Face models state them (half-split rotary
embedding; llama's GGUF rows of q and k are stored as (head, pair, half)).
"""
import json

import numpy as np
from gguf import GGUFReader
from gguf.quants import dequantize


class Model:
    """Hyper-parameters and dequantised f32 tensors of a GGUF file, in Hugging Face's row order."""

    def __init__(self, path):
        reader = GGUFReader(path)
        meta = {k: f.contents() for k, f in reader.fields.items()}
        self.meta, self.arch = meta, meta["general.architecture"]
        get = lambda k, d=None: meta.get(self.arch + "." + k, d)
        self.layers, self.hidden = get("block_count"), get("embedding_length")
        self.heads, self.kv = get("attention.head_count"), get("attention.head_count_kv")
        self.hd = get("attention.key_length", self.hidden // self.heads)
        self.eps, self.base = np.float32(get("attention.layer_norm_rms_epsilon")), get("rope.freq_base")
        self.window = get("attention.sliding_window", 0)
        self.gemma = self.arch == "gemma3"
        self.tensors = {}
        for t in reader.tensors:
            a = dequantize(t.data, t.tensor_type).astype(np.float32).reshape([int(d) for d in reversed(t.shape)])
            self.tensors[t.name] = self._halves(t.name, a)

    def _halves(self, name, a):
        heads = {"attn_q": self.heads, "attn_k": self.kv}.get(name.split(".")[-2])
        if self.gemma or not heads or a.ndim != 2:
            return a
        return np.ascontiguousarray(a.reshape(heads, self.hd // 2, 2, -1).swapaxes(1, 2).reshape(a.shape))

    def windowed(self, layer):
        return self.gemma and (layer + 1) % 6 != 0


class Forward:
    """f32 arithmetic; keys and values are rounded to `cache` where they are stored."""

    def __init__(self, model, cache=np.float16):
        self.m, self.cache = model, cache
        empty = lambda: [np.zeros((model.kv, 0, model.hd), cache) for _ in range(model.layers)]
        self.k, self.v = empty(), empty()

    def norm(self, x, name):
        mean = (x * x).mean(-1, keepdims=True, dtype=np.float32)
        return x / np.sqrt(mean + self.m.eps) * self.m.tensors[name + ".weight"]

    def linear(self, x, name):
        return x @ self.m.tensors[name + ".weight"].T

    def rope(self, x, positions, base):
        half = self.m.hd // 2
        inv = (np.float64(base) ** (-np.arange(half) / half)).astype(np.float32)
        angle = positions[:, None].astype(np.float32) * inv
        c, s = np.cos(angle), np.sin(angle)
        a, b = x[..., :half], x[..., half:]
        return np.concatenate([a * c - b * s, b * c + a * s], -1)

    def attention(self, x, layer):
        m, p = self.m, "blk.%d." % layer
        n, past = len(x), self.k[layer].shape[1]
        heads = lambda y, count: y.reshape(n, count, m.hd).transpose(1, 0, 2)
        q = heads(self.linear(x, p + "attn_q"), m.heads)
        k = heads(self.linear(x, p + "attn_k"), m.kv)
        v = heads(self.linear(x, p + "attn_v"), m.kv)
        if m.gemma:
            q, k = self.norm(q, p + "attn_q_norm"), self.norm(k, p + "attn_k_norm")
        positions = np.arange(past, past + n)
        base = 10000.0 if m.windowed(layer) else m.base
        q, k = self.rope(q, positions, base), self.rope(k, positions, base)
        self.k[layer] = np.concatenate([self.k[layer], k.astype(self.cache)], 1)
        self.v[layer] = np.concatenate([self.v[layer], v.astype(self.cache)], 1)
        repeat = lambda y: np.repeat(y.astype(np.float32), m.heads // m.kv, 0)
        scores = q @ repeat(self.k[layer]).transpose(0, 2, 1) / np.float32(np.sqrt(m.hd))
        distance = positions[:, None] - np.arange(past + n)[None, :]
        seen = (distance >= 0) & ((distance < m.window) | (not m.windowed(layer)))
        scores = np.where(seen, scores, -np.inf)
        scores = np.exp(scores - scores.max(-1, keepdims=True))
        out = (scores / scores.sum(-1, keepdims=True)) @ repeat(self.v[layer])
        return self.linear(out.transpose(1, 0, 2).reshape(n, -1), p + "attn_output")

    def mlp(self, x, layer):
        p = "blk.%d." % layer
        gate = self.linear(x, p + "ffn_gate")
        if self.m.gemma:
            inner = np.float32(np.sqrt(2 / np.pi)) * (gate + np.float32(0.044715) * gate * gate * gate)
            gate = np.float32(0.5) * gate * (1 + np.tanh(inner))
        else:
            gate = gate / (1 + np.exp(-gate))
        return self.linear(gate * self.linear(x, p + "ffn_up"), p + "ffn_down")

    def logits(self, ids):
        m = self.m
        x = m.tensors["token_embd.weight"][np.asarray(ids)]
        if m.gemma:
            x = x * np.float32(np.sqrt(m.hidden))
        for layer in range(m.layers):
            p = "blk.%d." % layer
            y = self.attention(self.norm(x, p + "attn_norm"), layer)
            x = x + (self.norm(y, p + "post_attention_norm") if m.gemma else y)
            y = self.mlp(self.norm(x, p + "ffn_norm"), layer)
            x = x + (self.norm(y, p + "post_ffw_norm") if m.gemma else y)
        x = self.norm(x, "output_norm")
        head = "output" if "output.weight" in m.tensors else "token_embd"
        return self.linear(x, head).astype(np.float32)


def record(gguf_path, stem, seed, atol, capacity=64):
    """Writes STEM.cases.json and STEM.cases.bin: a prefill of 5, three single steps, 4 at once (and 12 for a window)."""
    model = Model(gguf_path)
    forward = Forward(model)
    vocab = len(model.tensors["token_embd.weight"])
    ids = np.random.default_rng(seed).integers(0, vocab, 24).astype("<i4")
    blob, calls, done = b"", [], 0
    for count in (5, 1, 1, 1, 4, 12):
        part = ids[done:done + count]
        out = forward.logits(part).astype("<f4")[None]
        done += count
        ints = lambda name, a: {"name": name, "dtype": "si32", "shape": [1, len(a)], "data": a.tobytes().hex()}
        calls.append({"function": "main", "expect": "ok",
                      "inputs": [ints("input_ids", part), ints("position_ids", np.arange(done, dtype="<i4"))],
                      "outputs": [{"name": "logits", "dtype": "f32", "shape": list(out.shape),
                                   "file": stem.name + ".cases.bin", "offset": len(blob), "bytes": out.nbytes}]})
        blob += out.tobytes()
    shape = [model.layers, 1, model.kv, capacity, model.hd]
    states = [{"name": n, "dtype": "f16", "shape": shape, "init": "zeros"} for n in ("keyCache", "valueCache")]
    case = {"case": stem.name, "function": "main", "source": "NumPy, f32 on the dequantised weights, f16 cache",
            "strength": "must", "rtol": 0.0, "atol": atol, "states": states, "calls": calls}
    stem.with_name(stem.name + ".cases.bin").write_bytes(blob)
    text = json.dumps({"format": 1, "kind": "llm", "asset": None, "cases": [case]}, indent=1)
    stem.with_name(stem.name + ".cases.json").write_text(text + "\n")
