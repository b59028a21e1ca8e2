#!/usr/bin/env python3
"""llm-runner beside llama.cpp on the CPU: same weights, prompts and threads, alternating in one run, medians.

Prints one JSON object per figure. Exits 1 when an answer is wrong or, without --no-bounds, a target is missed;
2 when something needed is absent.
"""
import argparse
import json
import os
import pathlib
import statistics
import subprocess
import sys
import tempfile

HERE = pathlib.Path(__file__).resolve().parent
ROOT = HERE.parent.parent

PREFILL_TOKENS = 512
DECODE_PROMPT_TOKENS = 32
DECODE_TOKENS = 64           # recorded greedy ids reach that far
LONG_TOKENS = 2304           # context of the memory figure
KV_BYTES_PER_TOKEN = 46080   # SmolLM2-135M: 30 layers x 2 x 3 heads x 64 x f32
PEER_PREFIX = 8              # ids that llama.cpp on these weights shares with the float32 reference at least

TARGETS = {"decode_over_llamacpp": 1.5, "prefill_over_llamacpp": 2.0, "faithful_prompts": 7, "load_ms_warm": 100.0}


class Absent(Exception):
    pass


def call(command, **kwargs):
    done = subprocess.run([str(c) for c in command], capture_output=True, text=True, **kwargs)
    if done.returncode != 0:
        raise SystemExit(f"{command[0]} failed ({done.returncode}): {done.stderr.strip()[-2000:]}")
    return json.loads(done.stdout)


class Bench:
    def __init__(self, args):
        self.args, self.lines, self.failed = args, [], False
        cases = json.loads((ROOT / "benchmarks/quality/smollm2_faithful.json").read_text())["cases"]
        self.cases = cases
        self.long_text = cases[-1]
        self.short_text = cases[-2]
        self.loads, self.peaks = [], []

    def figure(self, name, value, better=None, **more):
        line = {"figure": name, "value": value}
        target = TARGETS.get(name)
        if target is not None and better:
            line["target"] = target
            line["ok"] = value >= target if better == "higher" else value <= target
            self.failed |= not line["ok"] and not self.args.no_bounds
        line.update(more)
        self.lines.append(line)
        print(json.dumps(line), flush=True)

    def wrong(self, what):
        print(f"error: {what}", file=sys.stderr)
        self.failed = True

    def ours(self, ids, count, threads):
        result = call([self.args.runner, "--model", self.args.model, "--precision", self.args.precision, "--threads",
                       threads, "--json", "--temperature", 0, "--max-tokens", count, "--prompt-ids",
                       ",".join(map(str, ids))])
        self.loads.append(result["load_ms"])
        return result

    def peer(self, ids, count, threads):
        environment = dict(os.environ, OMP_NUM_THREADS=str(threads))
        return call([sys.executable, HERE / "llamacpp_worker.py", self.args.gguf, threads, count, *ids],
                    env=environment)

    def bandwidth(self, threads):
        return call([self.probe, threads])

    def build_probe(self, folder):
        self.probe = pathlib.Path(folder) / "read_bandwidth"
        subprocess.run(["cc", "-O3", "-march=native", "-pthread", HERE / "read_bandwidth.c", "-o", self.probe],
                       check=True)

    def weight_bytes(self):
        from gguf import GGUFReader
        return sum(int(t.n_bytes) for t in GGUFReader(self.args.gguf).tensors)

    def rates(self, threads):
        """Alternating rounds; medians of (prefill, decode) for both, and of the read rate."""
        seen = {"prefill": ([], []), "decode": ([], []), "bandwidth": []}
        long_ids, short_ids = self.long_text["prompt_ids"][:PREFILL_TOKENS], self.short_text["prompt_ids"]
        wanted = self.short_text["greedy_ids"]
        for _ in range(self.args.rounds):
            seen["prefill"][0].append(self.ours(long_ids, 1, threads)["prefill_tokens_per_second"])
            seen["prefill"][1].append(self.peer(long_ids, 1, threads)["prefill_tokens_per_second"])
            ours, peer = self.ours(short_ids, DECODE_TOKENS, threads), self.peer(short_ids, DECODE_TOKENS, threads)
            seen["decode"][0].append(ours["decode_tokens_per_second"])
            seen["decode"][1].append(peer["decode_tokens_per_second"])
            seen["bandwidth"].append(self.bandwidth(threads)["median"])
            if ours["token_ids"] != wanted[:DECODE_TOKENS]:
                self.wrong(f"{threads} threads: the answer leaves the float32 reference: {ours['token_ids']}")
            if peer["token_ids"][:PEER_PREFIX] != wanted[:PEER_PREFIX]:
                self.wrong(f"llama.cpp does not run the same weights: {peer['token_ids'][:PEER_PREFIX]}")
        median = lambda values: statistics.median(values)
        return {"prefill": [median(v) for v in seen["prefill"]], "decode": [median(v) for v in seen["decode"]],
                "bandwidth": median(seen["bandwidth"])}

    def faithful(self):
        equal = 0
        for case in self.cases:
            ids = self.ours(case["prompt_ids"], len(case["greedy_ids"]), 2)["token_ids"]
            equal += ids == case["greedy_ids"]
        return equal

    def memory(self):
        """Peak memory of a run that ends at LONG_TOKENS, over what it must hold: weights and the cache."""
        ids = self.long_text["prompt_ids"]
        ids = (ids * (LONG_TOKENS // len(ids) + 1))[:LONG_TOKENS - DECODE_TOKENS]
        peak = self.ours(ids, DECODE_TOKENS, 2)["peak_rss_bytes"]
        return peak, peak / (self.weight_bytes() + LONG_TOKENS * KV_BYTES_PER_TOKEN)

    def run(self):
        self.ours(self.short_text["prompt_ids"], 1, 1)  # the first load packs the weights and fills the page cache
        self.loads.clear()
        all_rates = {threads: self.rates(threads) for threads in (1, 2)}
        ratios = lambda kind: {t: r[kind][0] / r[kind][1] for t, r in all_rates.items()}
        detail = lambda kind: {f"threads_{t}": {"ours": round(r[kind][0], 1), "llamacpp": round(r[kind][1], 1)}
                               for t, r in all_rates.items()}
        for kind in ("decode", "prefill"):
            self.figure(f"{kind}_over_llamacpp", round(min(ratios(kind).values()), 3), "higher", **detail(kind))
        read = self.weight_bytes()
        shares = {t: r["decode"][0] * read / r["bandwidth"] for t, r in all_rates.items()}
        self.figure("decode_bandwidth_share", round(min(shares.values()), 3),
                    **{f"threads_{t}": {"share": round(s, 3), "read_gb_per_second": round(all_rates[t]["bandwidth"] / 1e9, 1)}
                       for t, s in shares.items()})
        self.figure("load_ms_warm", round(statistics.median(self.loads), 1), "lower", runs=len(self.loads))
        self.figure("faithful_prompts", self.faithful(), "higher", of=len(self.cases))
        peak, ratio = self.memory()
        self.figure("peak_rss_over_bytes", round(ratio, 3), peak_rss_bytes=peak)
        if self.args.json:
            pathlib.Path(self.args.json).write_text(json.dumps(self.lines, indent=1) + "\n")
        return 1 if self.failed else 0


def find_gguf():
    cache = pathlib.Path(os.environ.get("XDG_CACHE_HOME") or pathlib.Path.home() / ".cache")
    path = cache / "coreai" / "checkpoints" / "smollm2-135m-instruct.q4_1.gguf"
    if not path.exists():
        raise Absent(f"{path} is absent: run scripts/models, or give --gguf")
    return str(path)


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--quick", action="store_true", help="two rounds instead of five")
    parser.add_argument("--rounds", type=int, help="alternating rounds per thread count")
    parser.add_argument("--json", help="also write all figures to this file")
    parser.add_argument("--no-bounds", action="store_true", help="report missed targets without failing")
    parser.add_argument("--runner", default=str(ROOT / "build" / "release" / "bin" / "llm-runner"))
    parser.add_argument("--model", default=str(ROOT / "models" / "smollm2-135m"))
    parser.add_argument("--gguf")
    parser.add_argument("--precision", default="faithful")
    args = parser.parse_args()
    args.rounds = args.rounds or (2 if args.quick else 5)
    try:
        args.gguf = args.gguf or find_gguf()
        if not pathlib.Path(args.runner).exists():
            raise Absent(f"{args.runner} is absent: build the preset release first")
        if not (pathlib.Path(args.model) / "metadata.json").exists():
            raise Absent(f"{args.model} is absent: run scripts/models")
        bench = Bench(args)
        with tempfile.TemporaryDirectory() as folder:
            bench.build_probe(folder)
            return bench.run()
    except Absent as absent:
        print(f"error: {absent}", file=sys.stderr)
        return 2


if __name__ == "__main__":
    sys.exit(main())
