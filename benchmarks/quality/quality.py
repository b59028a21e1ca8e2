#!/usr/bin/env python3
"""Quality of llm-runner against a float32 reference of the same dequantised weights.

Two texts, each with caches in float32, as scripts/models exports the two models, and in float16, the exporter's default;
prompts with the bundle in models/. Prints one JSON object per figure; exits 1 when a bound is missed, 2 when something needed is absent.
Needs: numpy, gguf (benchmarks/quality/run makes the environment).
"""
import argparse
import json
import os
import pathlib
import subprocess
import sys
import tempfile

import numpy as np

HERE = pathlib.Path(__file__).resolve().parent
ROOT = HERE.parent.parent
sys.path.insert(0, str(ROOT / "tests" / "oracle"))
import reference_llm  # noqa: E402

TEXT_TOKENS = 1536
ANSWER_TOKENS = 32
MIN_TOP1 = 0.999       # share of positions with the reference's best token
MAX_MEAN_KL = 1e-6     # nats
CACHES = ("float32", "float16")
PROMPT_MARGIN = 0.1    # a first difference is forgiven where the reference's two best logits are closer than this
GOLDEN_MARGIN = 0.02   # the same for the golden continuations

TEXTS = ["prose", "declaration"]
CACHE_NOISE = 2e-5     # relative; what two digits leave in keys and values, enough to turn another set of roundings

MODELS = {
    "smollm2": {"bundle": "smollm2-135m", "gguf": "smollm2-135m-instruct.q4_1.gguf"},
    "gemma3": {"bundle": "gemma3-270m", "gguf": "gemma-3-270m.q4_k_m.gguf"},
}


class Absent(Exception):
    pass


class Report:
    def __init__(self, path):
        self.lines, self.failed, self.path = [], False, path

    def add(self, figure, value, bound=None, ok=True, **more):
        line = {"figure": figure, "value": value, **({"bound": bound, "ok": bool(ok)} if bound else {}), **more}
        self.lines.append(line)
        self.failed |= not ok
        print(json.dumps(line), flush=True)

    def finish(self):
        if self.path:
            pathlib.Path(self.path).write_text(json.dumps(self.lines, indent=1) + "\n")
        return 1 if self.failed else 0


class Runner:
    def __init__(self, args, bundle):
        self.command = [args.runner, "--model", str(bundle), "--precision", args.precision, "--threads",
                        str(args.threads), "--json"]

    def __call__(self, *options):
        done = subprocess.run([*self.command, *options], capture_output=True, text=True)
        if done.returncode != 0:
            raise SystemExit(f"{' '.join(self.command)} failed ({done.returncode}): {done.stderr.strip()}")
        return json.loads(done.stdout)

    def ids(self, ids, *options):
        return self("--prompt-ids", ",".join(map(str, ids)), *options)


def log_softmax(x):
    x = x.astype(np.float64)
    x -= x.max(axis=-1, keepdims=True)
    return x - np.log(np.exp(x).sum(axis=-1, keepdims=True))


class Agreement:
    """Of two sets of logits, block by block: equal best tokens, KL divergences in nats, the largest difference."""

    def __init__(self):
        self.agreed, self.divergences, self.largest = 0, [], 0.0

    def add(self, expected, found):
        self.agreed += int((found.argmax(axis=-1) == expected.argmax(axis=-1)).sum())
        self.largest = max(self.largest, float(np.abs(found - expected).max()))
        reference = log_softmax(expected)
        self.divergences += list((np.exp(reference) * (reference - log_softmax(found))).sum(axis=-1))

    def top1(self):
        return self.agreed / len(self.divergences)

    def mean_kl(self):
        return float(np.mean(self.divergences))


class NoisyCache(reference_llm.Cache):
    """An f16 cache whose entries got a little noise before they were rounded: one draw of the roundings."""

    def __init__(self, random):
        super().__init__(np.float16)
        self.random = random

    def append(self, k, v):
        noisy = [(x * (1 + CACHE_NOISE * self.random.standard_normal(x.shape))).astype(np.float32) for x in (k, v)]
        return super().append(*noisy)


def report_floor(prefix, model, report, ids, draws):
    """What the rounding of an f16 cache alone costs: the float32 reference against itself with such a cache, plain
    first, then with other draws of the roundings."""
    if draws == 0:
        return
    exact, random = model.hidden(ids), np.random.default_rng(1)
    for draw in range(draws):
        kinds = [reference_llm.Cache(np.float16) if draw == 0 else NoisyCache(random) for _ in model.layers]
        rounded, floor = model.hidden(ids, kinds), Agreement()
        for first in range(0, len(ids), reference_llm.ROWS):
            rows = slice(first, first + reference_llm.ROWS)
            floor.add(model.logits(exact[rows]), model.logits(rounded[rows]))
        report.add(f"{prefix}.f16_cache_alone.mean_kl", floor.mean_kl(), draw=draw, top1_agreement=floor.top1())


def compare_text(name, text, runners, model, report, tokens, draws):
    """`runners` by the dtype of their bundle's cache."""
    path = HERE / "texts" / f"{text}.txt"
    ids = next(iter(runners.values()))("--raw", "--prompt-file", str(path), "--max-tokens", "0")["prompt_ids"][:tokens]
    if len(ids) < tokens:
        raise SystemExit(f"{path} has only {len(ids)} tokens")
    agreements = {cache: Agreement() for cache in runners}
    with tempfile.TemporaryDirectory() as folder:
        ours = {}
        for cache, runner in runners.items():
            file = pathlib.Path(folder) / f"{cache}.npy"
            runner.ids(ids, "--logits", str(file))
            ours[cache] = np.load(file, mmap_mode="r")
        for first, expected in model.logit_blocks(ids):
            for cache, agreement in agreements.items():
                agreement.add(expected, np.asarray(ours[cache][first:first + len(expected)]))
    for cache, agreement in agreements.items():
        prefix, top1, mean = f"{name}.{text}.{cache}_cache", agreement.top1(), agreement.mean_kl()
        report.add(f"{prefix}.top1_agreement", top1, f">= {MIN_TOP1}", top1 >= MIN_TOP1, positions=tokens)
        report.add(f"{prefix}.mean_kl", mean, f"<= {MAX_MEAN_KL}", mean <= MAX_MEAN_KL, positions=tokens)
        report.add(f"{prefix}.max_kl", float(np.max(agreement.divergences)))
        report.add(f"{prefix}.max_logit_difference", agreement.largest)
    report_floor(f"{name}.{text}", model, report, ids, draws)


def compare_prompts(name, runner, model, report, prompts):
    equal, forgiven, wrong = 0, [], []
    for prompt in prompts:
        answer = runner("--prompt", prompt, "--temperature", "0", "--max-tokens", str(ANSWER_TOKENS))
        given = answer["token_ids"]
        margins = model.margins(answer["prompt_ids"], given)
        first = next((i for i, m in enumerate(margins) if m[0] != given[i]), None)
        if first is None:
            equal += 1
            continue
        difference = {"prompt": prompt, "position": first, "margin": round(margins[first][1], 4)}
        (forgiven if margins[first][1] < PROMPT_MARGIN else wrong).append(difference)
    report.add(f"{name}.prompts_faithful", equal + len(forgiven), f"== {len(prompts)}", not wrong, equal=equal,
               differ_at_small_margin=forgiven, wrong=wrong)


def first_difference(a, b):
    return next((i for i, (x, y) in enumerate(zip(a, b)) if x != y), None if len(a) == len(b) else min(len(a), len(b)))


def compare_recorded(name, runner, model, report, file, margin):
    """Recorded greedy ids; a difference is forgiven only at a top-2 margin below `margin`."""
    cases = json.loads((HERE / file).read_text())["cases"]
    equal, forgiven, wrong = 0, [], []
    for case in cases:
        wanted = case["greedy_ids"]
        given = runner.ids(case["prompt_ids"], "--temperature", "0", "--max-tokens", str(len(wanted)))["token_ids"]
        first = first_difference(given, wanted)
        if first is None:
            equal += 1
            continue
        found = model.margins(case["prompt_ids"], wanted[:first + 1])[-1][1]
        allowed = margin is not None and found < margin
        (forgiven if allowed else wrong).append({"case": case["name"], "position": first, "margin": round(found, 4)})
    report.add(f"{name}.{pathlib.Path(file).stem}", equal + len(forgiven), f"== {len(cases)}", not wrong, equal=equal,
               differ_at_small_margin=forgiven, wrong=wrong)


def find_gguf(args, name):
    given = getattr(args, f"{name}_gguf")
    if given:
        return given
    cache = pathlib.Path(os.environ.get("XDG_CACHE_HOME") or pathlib.Path.home() / ".cache")
    path = cache / "coreai" / "checkpoints" / MODELS[name]["gguf"]
    if not path.exists():
        raise Absent(f"{path} is absent: run scripts/models, or give --{name}-gguf")
    return str(path)


def export(args, gguf, folder, cache):
    exporter = pathlib.Path(args.runner).with_name("coreai-export")
    done = subprocess.run([str(exporter), "llm", gguf, "--output", folder, "--kv-precision", cache],
                          capture_output=True, text=True)
    if done.returncode != 0:
        raise SystemExit(f"{exporter} failed ({done.returncode}): {done.stderr.strip()}")
    return folder


def measure(args, name, report):
    bundle = pathlib.Path(args.models) / MODELS[name]["bundle"]
    if not (bundle / "metadata.json").exists():
        raise Absent(f"{bundle} is absent: run scripts/models")
    gguf = find_gguf(args, name)
    model, runner = reference_llm.Model(gguf), Runner(args, bundle)
    prompts = json.loads((HERE / "prompts.json").read_text())
    with tempfile.TemporaryDirectory() as folder:
        runners = {cache: Runner(args, export(args, gguf, f"{folder}/{bundle.name}-{cache}", cache)) for cache in CACHES}
        for text in [args.text] if args.text else TEXTS:
            compare_text(name, text, runners, model, report, 256 if args.quick else TEXT_TOKENS, args.floor)
    if args.only_texts:
        return
    compare_prompts(name, runner, model, report, prompts[:4] if args.quick else prompts)
    if name == "smollm2":
        compare_recorded(name, runner, model, report, "smollm2_faithful.json", None)
        compare_recorded(name, runner, model, report, "smollm2_golden.json", GOLDEN_MARGIN)


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--model", choices=[*MODELS, "all"], default="all")
    parser.add_argument("--models", default=str(ROOT / "models"), help="folder of the bundles")
    parser.add_argument("--runner", default=str(ROOT / "build" / "release" / "bin" / "llm-runner"))
    parser.add_argument("--precision", default="faithful")
    parser.add_argument("--threads", type=int, default=0)
    parser.add_argument("--smollm2-gguf")
    parser.add_argument("--gemma3-gguf")
    parser.add_argument("--text", choices=TEXTS, help="one text instead of all")
    parser.add_argument("--only-texts", action="store_true", help="no prompts, no recorded continuations")
    parser.add_argument("--floor", type=int, default=0, metavar="DRAWS",
                        help="also what an f16 cache alone costs the reference, for so many draws of its roundings")
    parser.add_argument("--quick", action="store_true", help="256 tokens of text and 4 prompts")
    parser.add_argument("--json", help="also write all figures to this file")
    args = parser.parse_args()
    report = Report(args.json)
    try:
        if not pathlib.Path(args.runner).exists():
            raise Absent(f"{args.runner} is absent: build the preset release first")
        for name in MODELS if args.model == "all" else [args.model]:
            measure(args, name, report)
    except Absent as absent:
        print(f"error: {absent}", file=sys.stderr)
        return 2
    return report.finish()


if __name__ == "__main__":
    sys.exit(main())
