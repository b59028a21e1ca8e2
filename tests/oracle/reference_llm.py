#!/usr/bin/env python3
"""An independent float32 forward pass of a GGUF language model, in NumPy.

Architectures `llama` and `gemma3`. Weights are dequantised to float32 by the `gguf` package; everything else is here.
It shares no code with the runtime, which is measured against it.

  reference_llm.py MODEL.gguf --ids 1,2,3 [--greedy N] [--logits OUT.npy]

Needs: numpy, gguf.
"""
import argparse
import json

import numpy as np

F32 = np.float32
ROWS = 128  # positions whose logits are made at once: 128 x 262144 f32 are 134 MB


class Checkpoint:
    """Hyper-parameters and float32 tensors of a GGUF file."""

    def __init__(self, path):
        from gguf import GGUFReader
        reader = GGUFReader(path)
        self.facts = {name: field.contents() for name, field in reader.fields.items()
                      if not name.startswith("tokenizer.ggml.")}
        self.architecture = self.facts["general.architecture"]
        if self.architecture not in ("llama", "gemma3"):
            raise SystemExit(f"{path}: architecture {self.architecture} is not known here (llama, gemma3)")
        self.tensors = {t.name: t for t in reader.tensors}

    def fact(self, name, default=None):
        return self.facts.get(f"{self.architecture}.{name}", default)

    def weight(self, name):
        """The tensor as float32, [out, in] for matrices; None when the file has none of that name."""
        from gguf.quants import dequantize
        tensor = self.tensors.get(name)
        if tensor is None:
            return None
        shape = [int(n) for n in reversed(tensor.shape)]
        return np.ascontiguousarray(dequantize(tensor.data, tensor.tensor_type).reshape(shape), dtype=F32)


def rms_norm(x, weight, eps):
    return x / np.sqrt(np.mean(x * x, axis=-1, keepdims=True) + F32(eps)) * weight


def softmax(x):
    x = np.exp(x - x.max(axis=-1, keepdims=True))
    return x / x.sum(axis=-1, keepdims=True)


class Rotary:
    """Rotary position embedding of heads [n, heads, dim]: neighbours (2i, 2i+1), or the halves (i, i + dim/2)."""

    def __init__(self, dim, base, neighbours):
        self.frequencies = 1.0 / (float(base) ** (np.arange(0, dim, 2, dtype=np.float64) / dim))
        self.neighbours = neighbours

    def __call__(self, x, positions):
        angle = np.outer(positions.astype(np.float64), self.frequencies)[:, None, :]
        cos, sin = np.cos(angle).astype(F32), np.sin(angle).astype(F32)
        half = x.shape[-1] // 2
        pick = (slice(0, None, 2), slice(1, None, 2)) if self.neighbours else (slice(0, half), slice(half, None))
        a, b = x[..., pick[0]], x[..., pick[1]]
        out = np.empty_like(x)
        out[..., pick[0]] = a * cos - b * sin
        out[..., pick[1]] = a * sin + b * cos
        return out


class Layer:
    """One decoder layer. What differs between the architectures is decided here."""

    def __init__(self, checkpoint, index):
        weight = lambda name: checkpoint.weight(f"blk.{index}.{name}.weight")
        self.q, self.k, self.v, self.o = (weight(f"attn_{n}") for n in ("q", "k", "v", "output"))
        self.gate, self.up, self.down = (weight(f"ffn_{n}") for n in ("gate", "up", "down"))
        self.norm_in, self.norm_ffn = weight("attn_norm"), weight("ffn_norm")
        self.norm_q, self.norm_k = weight("attn_q_norm"), weight("attn_k_norm")
        self.norm_after, self.norm_after_ffn = weight("post_attention_norm"), weight("post_ffw_norm")
        self.eps = checkpoint.fact("attention.layer_norm_rms_epsilon")
        self.heads, self.kv_heads = checkpoint.fact("attention.head_count"), checkpoint.fact("attention.head_count_kv")
        self.dim = self.q.shape[0] // self.heads
        gemma = checkpoint.architecture == "gemma3"
        # Gemma 3: five local layers, then a global one. The file tells the global base; the local one is fixed.
        local = gemma and (index + 1) % 6 != 0
        self.window = checkpoint.fact("attention.sliding_window") if local else None
        base = 10000.0 if local else checkpoint.fact("rope.freq_base", 10000.0)
        # llama files store the rows of q and k so that rotated pairs are neighbours.
        self.rotary = Rotary(self.dim, base, neighbours=not gemma)
        self.activation = gelu_tanh if gemma else silu

    def attention(self, x, cache, start):
        n = x.shape[0]
        positions = np.arange(start, start + n)
        q = (x @ self.q.T).reshape(n, self.heads, self.dim)
        k = (x @ self.k.T).reshape(n, self.kv_heads, self.dim)
        v = (x @ self.v.T).reshape(n, self.kv_heads, self.dim)
        if self.norm_q is not None:
            q, k = rms_norm(q, self.norm_q, self.eps), rms_norm(k, self.norm_k, self.eps)
        q, k = self.rotary(q, positions), self.rotary(k, positions)
        keys, values = cache.append(k, v)
        key_positions = np.arange(keys.shape[0])
        hidden = key_positions[None, :] > positions[:, None]
        if self.window:
            hidden |= key_positions[None, :] <= positions[:, None] - self.window
        group = self.heads // self.kv_heads
        scale = F32(1.0 / np.sqrt(self.dim))
        out = np.empty((n, self.heads, self.dim), F32)
        for head in range(self.heads):
            scores = (q[:, head] @ keys[:, head // group].T) * scale
            scores[hidden] = -np.inf
            out[:, head] = softmax(scores) @ values[:, head // group]
        return out.reshape(n, -1) @ self.o.T

    def __call__(self, x, cache, start):
        y = self.attention(rms_norm(x, self.norm_in, self.eps), cache, start)
        x = x + (y if self.norm_after is None else rms_norm(y, self.norm_after, self.eps))
        h = rms_norm(x, self.norm_ffn, self.eps)
        y = (self.activation(h @ self.gate.T) * (h @ self.up.T)) @ self.down.T
        return x + (y if self.norm_after_ffn is None else rms_norm(y, self.norm_after_ffn, self.eps))


def silu(x):
    return x / (F32(1) + np.exp(-x))


def gelu_tanh(x):
    return F32(0.5) * x * (F32(1) + np.tanh(F32(np.sqrt(2.0 / np.pi)) * (x + F32(0.044715) * x * x * x)))


class Cache:
    """Keys and values of one layer, kept in float32, or rounded to `dtype` as a cache of that type would keep them."""

    def __init__(self, dtype=F32):
        self.keys = self.values = None
        self.dtype = dtype

    def append(self, k, v):
        k, v = k.astype(self.dtype).astype(F32), v.astype(self.dtype).astype(F32)
        self.keys = k if self.keys is None else np.concatenate([self.keys, k])
        self.values = v if self.values is None else np.concatenate([self.values, v])
        return self.keys, self.values


class Model:
    def __init__(self, path):
        checkpoint = Checkpoint(path)
        self.embedding = checkpoint.weight("token_embd.weight")
        head = checkpoint.weight("output.weight")
        self.head = self.embedding if head is None else head
        self.layers = [Layer(checkpoint, i) for i in range(checkpoint.fact("block_count"))]
        self.norm = checkpoint.weight("output_norm.weight")
        self.eps = checkpoint.fact("attention.layer_norm_rms_epsilon")
        self.scale = F32(np.sqrt(self.embedding.shape[1])) if checkpoint.architecture == "gemma3" else None

    def hidden(self, ids, caches=None, start=0):
        """Hidden states after the last norm, [len(ids), width]."""
        caches = caches or [Cache() for _ in self.layers]
        x = self.embedding[np.asarray(ids)]
        if self.scale is not None:
            x = x * self.scale
        for layer, cache in zip(self.layers, caches):
            x = layer(x, cache, start)
        return rms_norm(x, self.norm, self.eps)

    def logits(self, hidden):
        return hidden @ self.head.T

    def logit_blocks(self, ids):
        """(first position, logits) of all positions, ROWS at a time."""
        hidden = self.hidden(ids)
        for first in range(0, len(ids), ROWS):
            yield first, self.logits(hidden[first:first + ROWS])

    def greedy(self, ids, count, end_ids=()):
        caches = [Cache() for _ in self.layers]
        out, start, new = [], 0, list(ids)
        while len(out) < count:
            row = self.logits(self.hidden(new, caches, start)[-1:])[0]
            start, new = start + len(new), [int(row.argmax())]
            out += new
            if out[-1] in end_ids:
                break
        return out

    def margins(self, ids, answer):
        """For each token of a greedy answer: (the reference's choice given the answer so far, its top-2 margin, the
        margin of its choice over the token given)."""
        hidden = self.hidden(list(ids) + list(answer[:-1]))[len(ids) - 1:]
        found = []
        for row, token in zip(self.logits(hidden), answer):
            best = int(row.argmax())
            second = float(np.partition(row, -2)[-2])
            found.append((best, float(row[best]) - second, float(row[best] - row[token])))
        return found


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("gguf")
    parser.add_argument("--ids", required=True)
    parser.add_argument("--greedy", type=int, default=0)
    parser.add_argument("--logits")
    args = parser.parse_args()
    ids = [int(i) for i in args.ids.split(",")]
    model = Model(args.gguf)
    if args.logits:
        np.save(args.logits, np.concatenate([block for _, block in model.logit_blocks(ids)]))
    row = model.logits(model.hidden(ids)[-1:])[0]
    top = [int(i) for i in np.argsort(-row)[:5]]
    print(json.dumps({"top5": top, "top5_logits": [round(float(row[i]), 4) for i in top],
                      "greedy_ids": model.greedy(ids, args.greedy) if args.greedy else []}))


if __name__ == "__main__":
    main()
