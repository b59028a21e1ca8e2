#!/usr/bin/env python3
"""llm-runner beside the interpreter of the coreai-core wheel: the same bundle, prompt and greedy tokens in one run.

The interpreter is the only other program on Linux that runs such a bundle; it has one thread, so ours gets one too.
Prints one JSON object; exits 1 when the tokens differ or, without --no-bounds, the target is missed, 2 when something
needed is absent. Options of bench.py that mean nothing here are ignored.
Needs: Python 3.11, coreai-core 1.0.0b3, numpy.
"""
import argparse
import asyncio
import json
import pathlib
import statistics
import subprocess
import sys
import time

import numpy as np

ROOT = pathlib.Path(__file__).resolve().parent.parent.parent
TARGET = 50.0
PROMPT_TOKENS = 8
STEPS = 4          # of the interpreter, each seconds long on 4-bit weights
OUR_TOKENS = 64    # long enough for a steady rate


def ours(args, prompt):
    command = [args.runner, "--model", args.model, "--precision", args.precision, "--threads", "1", "--json",
               "--temperature", "0", "--max-tokens", str(OUR_TOKENS), "--prompt-ids", ",".join(map(str, prompt))]
    done = subprocess.run(command, capture_output=True, text=True)
    if done.returncode != 0:
        raise SystemExit(f"{args.runner} failed ({done.returncode}): {done.stderr.strip()}")
    return json.loads(done.stdout)


async def interpreter(args, prompt):
    """Greedy tokens and the seconds of each step after the prompt."""
    import coreai.authoring  # noqa: F401  (must be imported first)
    from coreai.authoring import AIModelAsset
    from coreai.runtime import NDArray
    bundle = pathlib.Path(args.model)
    asset = bundle / json.loads((bundle / "metadata.json").read_text())["assets"]["main"]
    async with AIModelAsset.load(str(asset)).executable() as model:
        function = model.load_function("main")
        states = {}
        for name in ("keyCache", "valueCache"):
            declared = function.desc.state_descriptor(name)
            shape = [d if d >= 0 else PROMPT_TOKENS + STEPS + 1 for d in declared.shape]
            states[name] = NDArray(np.zeros(shape, np.dtype(declared.dtype)))
        tokens, seconds, fresh, length = [], [], list(prompt), 0
        while len(tokens) < STEPS + 1:
            length += len(fresh)
            begin = time.perf_counter()
            result = await function({"input_ids": NDArray(np.asarray([fresh], np.int32)),
                                     "position_ids": NDArray(np.arange(length, dtype=np.int32)[None])}, states)
            logits = np.asarray(result["logits"].numpy())[0, -1]
            seconds.append(time.perf_counter() - begin)
            tokens.append(int(logits.argmax()))
            fresh = [tokens[-1]]
        return tokens, seconds[1:]


def measure(args):
    cases = json.loads((ROOT / "benchmarks/quality/smollm2_faithful.json").read_text())["cases"]
    prompt = cases[-1]["prompt_ids"][:PROMPT_TOKENS]
    ours(args, prompt)  # packs the weights where that is still to be done
    before = ours(args, prompt)
    tokens, seconds = asyncio.run(interpreter(args, prompt))
    after = ours(args, prompt)
    # The machine may be busy in one of the runs: the slower of ours counts, and the faster steps of theirs.
    rate = min(before["decode_tokens_per_second"], after["decode_tokens_per_second"])
    theirs = max(1.0 / statistics.median(seconds), 1.0 / statistics.mean(seconds))
    same = before["token_ids"][:len(tokens)] == tokens and after["token_ids"] == before["token_ids"]
    if not same:
        print(f"error: the interpreter answers {tokens}, llm-runner {before['token_ids'][:len(tokens)]}", file=sys.stderr)
    fast = rate / theirs >= TARGET
    line = {"figure": "decode_over_interpreter", "value": round(rate / theirs, 1), "target": TARGET, "ok": fast,
            "ours": round(rate, 1), "interpreter": round(theirs, 3), "steps": len(seconds), "same_tokens": same}
    print(json.dumps(line), flush=True)
    if args.json:
        path = pathlib.Path(args.json)
        lines = json.loads(path.read_text()) if path.exists() else []
        path.write_text(json.dumps([*lines, line], indent=1) + "\n")
    return 0 if same and (fast or args.no_bounds) else 1


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--json", help="add the figure to this file")
    parser.add_argument("--no-bounds", action="store_true", help="report a missed target without failing")
    parser.add_argument("--runner", default=str(ROOT / "build" / "release" / "bin" / "llm-runner"))
    parser.add_argument("--model", default=str(ROOT / "models" / "smollm2-135m"), help="a bundle of SmolLM2-135M")
    parser.add_argument("--precision", default="faithful")
    args, _ = parser.parse_known_args()
    for path, advice in ((args.runner, "build the preset release first"),
                         (pathlib.Path(args.model) / "metadata.json", "run scripts/models")):
        if not pathlib.Path(path).exists():
            print(f"error: {path} is absent: {advice}", file=sys.stderr)
            return 2
    return measure(args)


if __name__ == "__main__":
    sys.exit(main())
