#!/usr/bin/env python3
"""Writes the synthetic GGUF files of tests/fixtures/gguf. Needs: gguf, numpy (versions in tests/fixtures/MANIFEST.md).

  quant_types.gguf   one tensor per readable type and `NAME.expected` (F32), dequantised by the gguf package
  metadata.gguf      metadata of every value type
  tiny_llama.gguf    two llama layers in nine types, untied head, the first 512 tokens of SmolLM2's tokenizer
  tiny_gemma3.gguf   seven gemma3 layers (the sixth global), tied head, a SentencePiece-style tokenizer made here
  tiny_*.cases.json  recorded calls of both, by tiny_models.py

Random numbers are seeded; a second run gives the same bytes.
"""
import argparse
import pathlib

import numpy as np
import tiny_models
from gguf import GGMLQuantizationType as Q
from gguf import GGUFReader, GGUFValueType, GGUFWriter
from gguf.quants import dequantize, quantize

QUANT_TYPES = ["F32", "F16", "BF16", "Q4_0", "Q4_1", "Q5_0", "Q5_1", "Q8_0", "Q4_K", "Q5_K", "Q6_K"]
K_BYTES = {"Q4_K": 144, "Q5_K": 176, "Q6_K": 210}
K_HALVES = {"Q4_K": (0, 2), "Q5_K": (0, 2), "Q6_K": (208,)}  # where the f16 scales of a block stand


def random_k_blocks(rng, name, rows, cols, scale):
    """K-quants have no quantiser in the package: random bits with sane scales are as good."""
    blocks = rng.integers(0, 256, (rows * cols // 256, K_BYTES[name]), dtype=np.uint8)
    for at in K_HALVES[name]:
        d = (scale * (0.5 + rng.random(len(blocks)))).astype(np.float16)
        blocks[:, at:at + 2] = d.view(np.uint8).reshape(-1, 2)
    return blocks.reshape(rows, -1)


def pack(rng, name, rows, cols, scale=0.1):
    """-> (raw array for the writer, f32 values that it stands for)."""
    kind = Q[name]
    if name in K_BYTES:
        raw = random_k_blocks(rng, name, rows, cols, scale * {"Q4_K": 4e-3, "Q5_K": 2e-3, "Q6_K": 6e-4}[name])
    else:
        raw = quantize((scale * rng.standard_normal((rows, cols))).astype(np.float32), kind)
    return raw, dequantize(raw, kind).astype(np.float32).reshape(rows, cols)


def add(writer, name, raw, kind):
    writer.add_tensor(name, raw, raw_dtype=Q[kind])


def close(writer):
    writer.write_header_to_file()
    writer.write_kv_data_to_file()
    writer.write_tensors_to_file()
    writer.close()


def quant_types(path):
    rng = np.random.default_rng(11)
    writer = GGUFWriter(path, "none")
    for kind in QUANT_TYPES:
        raw, values = pack(rng, kind, 2, 256)
        add(writer, kind, raw, kind)
        add(writer, kind + ".expected", values, "F32")
    close(writer)


def metadata(path):
    writer = GGUFWriter(path, "none")
    V = GGUFValueType
    for kind, value in ((V.UINT8, 200), (V.INT8, -100), (V.UINT16, 60000), (V.INT16, -30000), (V.UINT32, 4000000000),
                        (V.INT32, -2000000000), (V.UINT64, 1 << 63), (V.INT64, -(1 << 62)), (V.FLOAT32, 0.5),
                        (V.FLOAT64, 0.1), (V.BOOL, True), (V.STRING, "a text")):
        writer.add_key_value("one." + kind.name.lower(), value, kind)
    writer.add_array("array.i32", [1, -2, 3])
    writer.add_array("array.f32", [0.25, -4.0])
    writer.add_array("array.bool", [True, False])
    writer.add_array("array.string", ["x", "", "two words"])
    close(writer)


TEMPLATE = ("{% for message in messages %}{{ '<|im_start|>' + message['role'] + '\n' + message['content'] + "
            "'<|im_end|>\n' }}{% endfor %}{% if add_generation_prompt %}{{ '<|im_start|>assistant\n' }}{% endif %}")


def norm(rng, writer, name, size):
    add(writer, name + ".weight", (1 + 0.1 * rng.standard_normal(size)).astype(np.float32), "F32")


def matrix(rng, writer, name, rows, cols, kind, gain=1.0):
    add(writer, name + ".weight", pack(rng, kind, rows, cols, gain / np.sqrt(cols))[0], kind)


def tiny_llama(path, smollm2):
    """Tokens and merges come from a SmolLM2 checkpoint; all weights are random."""
    fields = GGUFReader(smollm2).fields
    tokens = fields["tokenizer.ggml.tokens"].contents()[:512]
    kinds = fields["tokenizer.ggml.token_type"].contents()[:512]
    known = set(tokens)
    merges = [m for m in fields["tokenizer.ggml.merges"].contents()
              if all(p in known for p in m.split(" ")) and m.replace(" ", "") in known]
    rng = np.random.default_rng(12)
    writer = GGUFWriter(path, "llama")
    writer.add_name("Tiny llama")
    writer.add_block_count(2)
    writer.add_context_length(256)
    writer.add_embedding_length(64)
    writer.add_feed_forward_length(96)
    writer.add_head_count(4)
    writer.add_head_count_kv(2)
    writer.add_rope_freq_base(10000.0)
    writer.add_rope_dimension_count(16)
    writer.add_layer_norm_rms_eps(1e-5)
    writer.add_vocab_size(512)
    writer.add_tokenizer_model("gpt2")
    writer.add_tokenizer_pre("smollm")
    writer.add_token_list(tokens)
    writer.add_token_types(kinds)
    writer.add_token_merges(merges)
    writer.add_bos_token_id(1)
    writer.add_eos_token_id(2)
    writer.add_unk_token_id(0)
    writer.add_pad_token_id(2)
    writer.add_add_bos_token(False)
    writer.add_chat_template(TEMPLATE)
    matrix(rng, writer, "token_embd", 512, 64, "Q8_0", 8.0)
    norm(rng, writer, "output_norm", 64)
    matrix(rng, writer, "output", 512, 64, "Q4_0", 2.0)
    for layer, kinds in enumerate(("Q4_1 Q4_0 Q5_0 Q5_1 F16 BF16 Q8_0", "Q4_1 Q4_1 Q4_1 Q4_1 Q4_1 F32 Q4_1")):
        q, k, v, o, gate, up, down = kinds.split()
        p = "blk.%d." % layer
        norm(rng, writer, p + "attn_norm", 64)
        norm(rng, writer, p + "ffn_norm", 64)
        matrix(rng, writer, p + "attn_q", 64, 64, q)
        matrix(rng, writer, p + "attn_k", 32, 64, k)
        matrix(rng, writer, p + "attn_v", 32, 64, v)
        matrix(rng, writer, p + "attn_output", 64, 64, o)
        matrix(rng, writer, p + "ffn_gate", 96, 64, gate)
        matrix(rng, writer, p + "ffn_up", 96, 64, up)
        matrix(rng, writer, p + "ffn_down", 64, 96, down)
    close(writer)


def sentencepiece_vocabulary():
    """-> (tokens, scores, types): specials, runs of spaces and newlines, bytes, characters, frequent joins."""
    control, user, byte, normal = 3, 4, 6, 1
    rows = [("<pad>", -1000.0, control), ("<eos>", -1000.0, control), ("<bos>", -1000.0, control),
            ("<unk>", -1000.0, 2), ("<start_of_turn>", -1000.0, control), ("<end_of_turn>", -1000.0, control)]
    rows += [("\n" * n, -1000.0, user) for n in (1, 2, 3)] + [(" " * n, -1000.0, user) for n in (2, 3, 4)]
    rows += [("<0x%02X>" % b, 0.0, byte) for b in range(256)]
    mark = "\u2581"
    joins = ("th he in er an on re the in" + " " + mark + "t " + mark + "the " + mark + "a " + mark + "an and " + mark
             + "and ing ou " + mark + "s st " + mark + "w " + mark + "wo or wor " + mark + "wor ld " + mark + "world el "
             + "ll hell hello " + mark + "h " + mark + "hello ca cap it ital capital").split()
    for rank, join in enumerate(dict.fromkeys(joins)):
        rows.append((join, -float(rank), normal))
    letters = mark + "abcdefghijklmnopqrstuvwxyzABCDEFGHIJKLMNOPQRSTUVWXYZ0123456789.,!?\u00e9"
    rows += [(c, -500.0 - i, normal) for i, c in enumerate(letters)]
    return [list(column) for column in zip(*rows)]


def tiny_gemma3(path):
    tokens, scores, kinds = sentencepiece_vocabulary()
    rng = np.random.default_rng(13)
    writer = GGUFWriter(path, "gemma3")
    writer.add_name("Tiny gemma3")
    writer.add_block_count(7)
    writer.add_context_length(4096)
    writer.add_embedding_length(32)
    writer.add_feed_forward_length(256)
    writer.add_head_count(2)
    writer.add_head_count_kv(1)
    writer.add_key_length(32)
    writer.add_value_length(32)
    writer.add_rope_freq_base(1e6)
    writer.add_layer_norm_rms_eps(1e-6)
    writer.add_sliding_window(8)
    writer.add_tokenizer_model("llama")
    writer.add_tokenizer_pre("default")
    writer.add_token_list(tokens)
    writer.add_token_scores(scores)
    writer.add_token_types(kinds)
    writer.add_bos_token_id(2)
    writer.add_eos_token_id(1)
    writer.add_unk_token_id(3)
    writer.add_pad_token_id(0)
    writer.add_add_bos_token(True)
    writer.add_add_space_prefix(False)
    matrix(rng, writer, "token_embd", len(tokens), 32, "Q8_0", 2.0)
    norm(rng, writer, "output_norm", 32)
    for layer in range(7):
        p = "blk.%d." % layer
        for name in ("attn_norm", "post_attention_norm", "ffn_norm", "post_ffw_norm"):
            norm(rng, writer, p + name, 32)
        norm(rng, writer, p + "attn_q_norm", 32)
        norm(rng, writer, p + "attn_k_norm", 32)
        matrix(rng, writer, p + "attn_q", 64, 32, "Q5_0")
        matrix(rng, writer, p + "attn_k", 32, 32, "Q5_0")
        matrix(rng, writer, p + "attn_v", 32, 32, "Q8_0")
        matrix(rng, writer, p + "attn_output", 32, 64, "Q4_1")
        matrix(rng, writer, p + "ffn_gate", 256, 32, "Q5_0")
        matrix(rng, writer, p + "ffn_up", 256, 32, "Q5_1")
        matrix(rng, writer, p + "ffn_down", 32, 256, ("Q4_K", "Q5_K", "Q6_K")[layer % 3])
    close(writer)


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    root = pathlib.Path(__file__).resolve().parents[1] / "fixtures" / "gguf"
    parser.add_argument("--output", type=pathlib.Path, default=root)
    parser.add_argument("--smollm2", help="SmolLM2-135M-Instruct.Q4_1.gguf, for the tokens of tiny_llama")
    args = parser.parse_args()
    out = args.output
    out.mkdir(parents=True, exist_ok=True)
    quant_types(out / "quant_types.gguf")
    metadata(out / "metadata.gguf")
    if args.smollm2:
        tiny_llama(out / "tiny_llama.gguf", args.smollm2)
        tiny_models.record(out / "tiny_llama.gguf", out / "tiny_llama", seed=21, atol=2e-3)
    tiny_gemma3(out / "tiny_gemma3.gguf")
    tiny_models.record(out / "tiny_gemma3.gguf", out / "tiny_gemma3", seed=22, atol=2e-3)


if __name__ == "__main__":
    main()
