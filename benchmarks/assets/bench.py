#!/usr/bin/env python3
"""coreai-run beside coreai-core's interpreter and ONNX Runtime: the same f32 programs, weights and inputs, alternating
in one run, medians.

Prints one JSON object per program and peer: time of a call, ratio, largest difference of the outputs. Exits 1 when an
output differs by more than 1e-3 of its largest value or, without --no-bounds, when the interpreter's time is below 8 of
ours or ours above 1.5 of ONNX Runtime's (vit, unet, whisper); 2 when something needed is absent. Programs are written by `benchmark_assets` (preset release with -DCOREAI_BUILD_BENCHMARKS=ON).
"""
import argparse
import asyncio
import json
import os
import pathlib
import statistics
import subprocess
import sys
import tempfile
import time

import numpy as np

import onnx_programs

ROOT = pathlib.Path(__file__).resolve().parent.parent.parent
TARGET = 8.0            # interpreter / ours
ONNXRUNTIME_TARGET = 1.5  # ours / ONNX Runtime


class Absent(Exception):
    pass


def interpreter(asset, inputs, calls):
    """Output and seconds per call, in a process of its own: coreai-core ends the process on what it cannot do."""
    code = "import sys; sys.path.insert(0, %r); import bench; bench.interpreter_worker()" % str(ROOT / "benchmarks/assets")
    with tempfile.TemporaryDirectory() as folder:
        order = {"asset": str(asset), "inputs": {k: str(v) for k, v in inputs.items()}, "calls": calls,
                 "output": folder + "/y.npy"}
        done = subprocess.run([sys.executable, "-c", code], input=json.dumps(order), capture_output=True, text=True,
                              timeout=1200)
        if done.returncode != 0:
            raise SystemExit(f"coreai-core failed on {asset} ({done.returncode}): {done.stderr.strip()[-1000:]}")
        return np.load(order["output"]), json.loads(done.stdout.splitlines()[-1])


def interpreter_worker():
    import coreai.authoring  # noqa: F401  (must be imported first)
    from coreai.authoring import AIModelAsset
    from coreai.runtime import NDArray
    order = json.load(sys.stdin)

    async def body():
        async with AIModelAsset.load(order["asset"]).executable() as model:
            function = model.load_function("main")
            inputs = {name: NDArray(np.load(file)) for name, file in order["inputs"].items()}
            seconds = []
            for _ in range(order["calls"]):
                begin = time.perf_counter()
                result = await function(inputs)
                seconds.append(time.perf_counter() - begin)
            np.save(order["output"], np.asarray(result["y"].numpy()))
            print(json.dumps(seconds))

    asyncio.run(body())


def ours(runner, asset, inputs, calls, threads):
    with tempfile.TemporaryDirectory() as folder:
        base = [str(runner), str(asset), "--threads", str(threads)]
        for name, file in inputs.items():
            base += ["--input", f"{name}={file}"]
        for extra in (["--output-dir", folder], ["--profile", "--repeat", str(calls), "--json"]):
            done = subprocess.run(base + extra, capture_output=True, text=True)
            if done.returncode != 0:
                raise SystemExit(f"coreai-run failed on {asset}: {done.stderr.strip()}")
        report = json.loads(done.stdout)
        return np.load(folder + "/y.npy"), report


def onnxruntime_session(model, threads):
    import onnxruntime
    options = onnxruntime.SessionOptions()
    options.intra_op_num_threads = threads
    return onnxruntime.InferenceSession(str(model), options, providers=["CPUExecutionProvider"])


def onnxruntime_call(session, inputs, calls):
    """Output and milliseconds of the fastest call; the first call is not counted."""
    arrays = {name: np.load(file) for name, file in inputs.items()}
    output = session.run(["y"], arrays)[0]
    times = []
    for _ in range(calls):
        begin = time.perf_counter()
        session.run(["y"], arrays)
        times.append(1e3 * (time.perf_counter() - begin))
    return output, min(times)


def difference(got, wanted):
    return float(f"{np.abs(got - wanted).max() / np.abs(wanted).max():.2g}")


def measure(args, folder, name):
    """Lines and whether all is well."""
    asset = folder / f"{name}.aimodel"
    inputs = {f.name[len(name) + 1:-4]: f for f in sorted(folder.glob(f"{name}.*.npy"))}
    session = None
    if name in onnx_programs.PROGRAMS and not args.alone:
        onnx_programs.write(folder, name, folder / f"{name}.onnx")
        session = onnxruntime_session(folder / f"{name}.onnx", args.threads)
    own_ms, their_ms, onnx_ms = [], [], []
    for _ in range(args.rounds):
        got, report = ours(args.runner, asset, inputs, 3, args.threads)
        own_ms.append(report["call_ms"])
        if session:
            onnx_output, best = onnxruntime_call(session, inputs, 3)
            onnx_ms.append(best)
        if not args.alone:
            wanted, seconds = interpreter(asset, inputs, 1 if args.quick else 2)
            their_ms.append(1e3 * min(seconds))
    own = statistics.median(own_ms)
    line = {"figure": f"{name}_over_interpreter", "ours_ms": round(own, 2), "threads": args.threads,
            "execution": report["execution"],
            "gflop": round(2e-9 * sum(s["multiply_adds"] for s in report["steps"]), 2)}
    if args.alone:
        return [line], True
    error, ratio = difference(got, wanted), statistics.median(their_ms) / own
    line |= {"value": round(ratio, 2), "target": TARGET, "ok": ratio >= TARGET,
             "interpreter_ms": round(statistics.median(their_ms), 1), "largest_difference": error}
    fine = error <= 1e-3 and (ratio >= TARGET or args.no_bounds)
    if not session:
        return [line], fine
    error, ratio = difference(got, onnx_output), own / statistics.median(onnx_ms)
    other = {"figure": f"{name}_time_over_onnxruntime", "value": round(ratio, 2), "target": ONNXRUNTIME_TARGET,
             "ok": ratio <= ONNXRUNTIME_TARGET, "ours_ms": round(own, 2), "threads": args.threads,
             "onnxruntime_ms": round(statistics.median(onnx_ms), 2), "largest_difference": error}
    return [line, other], fine and error <= 1e-3 and (ratio <= ONNXRUNTIME_TARGET or args.no_bounds)


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--quick", action="store_true", help="one round")
    parser.add_argument("--json", help="also write all figures to this file")
    parser.add_argument("--no-bounds", action="store_true", help="report missed targets without failing")
    parser.add_argument("--alone", action="store_true", help="only our own times")
    parser.add_argument("--threads", type=int, default=2)
    parser.add_argument("--only", help="one program by name")
    parser.add_argument("--runner", default=str(ROOT / "build/release/bin/coreai-run"))
    parser.add_argument("--author", default=str(ROOT / "build/release/bin/benchmark_assets"))
    args = parser.parse_args()
    args.rounds = 1 if args.quick else 3
    try:
        for tool in (args.runner, args.author):
            if not os.path.exists(tool):
                raise Absent(f"{tool} is absent: build the preset release with -DCOREAI_BUILD_BENCHMARKS=ON")
        lines, fine = [], True
        with tempfile.TemporaryDirectory() as folder:
            names = subprocess.run([args.author, folder], capture_output=True, text=True, check=True).stdout.split()
            for name in names:
                if args.only and name != args.only:
                    continue
                found, good = measure(args, pathlib.Path(folder), name)
                fine = fine and good
                lines += found
                for line in found:
                    print(json.dumps(line), flush=True)
        if args.json:
            pathlib.Path(args.json).write_text(json.dumps(lines, indent=1) + "\n")
        return 0 if fine else 1
    except Absent as absent:
        print(f"error: {absent}", file=sys.stderr)
        return 2


if __name__ == "__main__":
    sys.exit(main())
