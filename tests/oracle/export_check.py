#!/usr/bin/env python3
"""Proves exported bundles with independent programs: the coreai-core wheel and Hugging Face's tokenizers.

  program BUNDLE                          the wheel loads the asset, verifies it and prints its signature
  cases BUNDLE CASES.json [--zero-states] the wheel's interpreter replays recorded calls
  tokens BUNDLE IDS.json [-n 4] [--cases 2]  greedy tokens equal those of a file with `cases[].prompt_ids, greedy_ids`
  tokenizer BUNDLE IDS.json               the rebuilt tokenizer gives `cases[].prompt_ids` for `cases[].prompt`

The wheel aborts on what it does not like, so each check runs in a process of its own with a time limit.
Needs: coreai-core 1.0.0b3, numpy, tokenizers.
"""
import argparse
import asyncio
import json
import os
import pathlib
import subprocess
import sys

import numpy as np


def asset_path(bundle):
    meta = json.load(open(bundle / "metadata.json"))
    return str(bundle / meta["assets"]["main"])


def check_program(args):
    import coreai.authoring  # noqa: F401  (must be imported first)
    from coreai.authoring import AIModelAsset
    asset = AIModelAsset.load(asset_path(args.bundle))
    program = asset.program
    verify = getattr(program, "verify", None)
    if verify is not None:
        verify()
    text = str(program)
    print("\n".join(line[:200] for line in text.splitlines() if "coreai.graph" in line))
    print("ok: %d lines" % len(text.splitlines()))


class Runner:
    """`main` of a bundle in the interpreter, with states of a fixed capacity."""

    def __init__(self, function, capacity):
        from coreai.runtime import NDArray
        self.function, self.array = function, NDArray
        shape, dtype = function.desc.state_descriptor("keyCache").shape, function.desc.state_descriptor("keyCache").dtype
        shape = [d if d >= 0 else capacity for d in shape]
        self.states = {n: NDArray(np.zeros(shape, np.dtype(dtype))) for n in ("keyCache", "valueCache")}

    async def logits(self, ids, positions):
        inputs = {"input_ids": self.array(np.asarray([ids], np.int32)),
                  "position_ids": self.array(np.arange(positions, dtype=np.int32)[None])}
        result = await self.function(inputs, self.states)
        return np.asarray(result["logits"].numpy())[0].astype(np.float32)


async def with_function(bundle, body):
    import coreai.authoring  # noqa: F401
    from coreai.authoring import AIModelAsset
    async with AIModelAsset.load(asset_path(bundle)).executable() as model:
        await body(model.load_function("main"))


def check_cases(args):
    document = json.load(open(args.file))
    blobs = args.file.parent

    def tensor(t, dtype):
        if "data" in t:
            return np.frombuffer(bytes.fromhex(t["data"]), dtype)
        with open(blobs / t["file"], "rb") as f:
            f.seek(t["offset"])
            return np.frombuffer(f.read(t["bytes"]), dtype)

    async def body(function):
        for case in document["cases"]:
            runner, worst = Runner(function, case["states"][0]["shape"][3]), 0.0
            for call in case["calls"]:
                ids = tensor(call["inputs"][0], "<i4")
                want = tensor(call["outputs"][0], "<f4").reshape(call["outputs"][0]["shape"])[0]
                got = await runner.logits(ids, call["inputs"][1]["shape"][1])
                worst = max(worst, float(np.abs(got - want).max()))
            print("%s: worst error %.3g, allowed %.3g" % (case["case"], worst, args.atol or case["atol"]))
            if not worst <= (args.atol or case["atol"]):
                sys.exit("FAILED")
    asyncio.run(with_function(args.bundle, body))
    print("ok")


def check_tokens(args):
    golden = json.load(open(args.file))

    async def body(function):
        for case in golden["cases"][:args.cases]:
            runner, ids, out = Runner(function, len(case["prompt_ids"]) + args.n + 1), list(case["prompt_ids"]), []
            fresh = ids
            while len(out) < min(args.n, len(case["greedy_ids"])):
                out.append(int((await runner.logits(fresh, len(ids)))[-1].argmax()))
                ids.append(out[-1])
                fresh = [out[-1]]
            same = out == case["greedy_ids"][:len(out)]
            print("%s %s" % (out, "as recorded" if same else "differs from %s" % case["greedy_ids"][:len(out)]), flush=True)
            if not same:
                sys.exit("FAILED")
    asyncio.run(with_function(args.bundle, body))
    print("ok")


def check_tokenizer(args):
    from tokenizers import Tokenizer
    tokenizer = Tokenizer.from_file(str(args.bundle / "tokenizer" / "tokenizer.json"))
    for case in json.load(open(args.file))["cases"]:
        got = tokenizer.encode(case["prompt"], add_special_tokens=args.special).ids
        if got != case["prompt_ids"]:
            sys.exit("FAILED: %r gives %s" % (case["prompt"], got))
    print("ok")


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("check", choices=["program", "cases", "tokens", "tokenizer"])
    parser.add_argument("bundle", type=pathlib.Path)
    parser.add_argument("file", type=pathlib.Path, nargs="?")
    parser.add_argument("-n", type=int, default=4, help="tokens to compare")
    parser.add_argument("--cases", type=int, default=2)
    parser.add_argument("--atol", type=float, help="instead of the tolerance of the file")
    parser.add_argument("--special", action="store_true", help="with the tokens that the post-processor adds")
    parser.add_argument("--timeout", type=int, default=600, help="seconds")
    args = parser.parse_args()
    if os.environ.get("EXPORT_CHECK_CHILD") != "1":
        try:
            child = subprocess.run([sys.executable, __file__] + sys.argv[1:], timeout=args.timeout,
                                   env=dict(os.environ, EXPORT_CHECK_CHILD="1"))
        except subprocess.TimeoutExpired:
            sys.exit("FAILED: no answer within %d s" % args.timeout)
        if child.returncode < 0:
            print("the wheel died with signal %d" % -child.returncode, file=sys.stderr)
        sys.exit(1 if child.returncode else 0)
    {"program": check_program, "cases": check_cases, "tokens": check_tokens, "tokenizer": check_tokenizer}[args.check](args)


if __name__ == "__main__":
    main()
