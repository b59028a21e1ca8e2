"""The grammar engine beside xgrammar and llguidance, over the instances of JSON Schemas, token by token, in one run.

All three are called from compiled programs, so that no interpreter counts: grammar_bench links the engine,
xgrammar_bench calls the library of xgrammar's package through its function tables (wrapping_us is what two such calls
cost), llguidance_bench links the crate. One thread each; they take turns over the schemas, a piece at a time. A rival
that crashes or takes longer than the limit on a schema goes on with the next. The better rival of a column is the
least over all modes of both. Figures are in microseconds per token (mask + commit) and milliseconds to the first mask.
Exits 1 where a verdict of ours is wrong or, without --no-bounds, where a ratio to the better rival is above its bound.
"""
import argparse
import json
import math
import os
import pathlib
import shutil
import statistics
import subprocess
import sys
import tempfile

import cases

ROOT = cases.REPOSITORY
XGRAMMAR = ["xgrammar==0.2.9", "apache-tvm-ffi==0.1.15.post2"]
TIMES = ["mask_avg_us", "mask_p50_us", "mask_p90_us", "mask_p95_us", "mask_p99_us", "mask_p999_us", "mask_max_us",
         "ttfm_p50_ms", "ttfm_p90_ms", "ttfm_p99_ms", "ttfm_max_ms", "ttfm_avg_ms"]
COUNTS = ["schemas", "passing", "validation_errors", "invalidation_errors", "refused", "stopped", "crashed", "mismatches",
          "tokens"]
BOUNDS = {"mask_avg_us": 0.25, "mask_p50_us": 0.25, "mask_p99_us": 0.25, "ttfm_p50_ms": 0.5, "ttfm_p99_ms": 0.4}
# What each mode says to its program. Ours: any order, up to 32 characters of white space in a place.
MODES = {
    "coreai": [],
    "coreai_any_whitespace": ["--whitespace", "any"],
    "coreai_no_copy": ["--no-copy"],
    "coreai_shared": ["--shared"],
    "xgrammar": ["--open", "--any-order", "--whitespace", "any"],
    "xgrammar_strict": ["--whitespace", "fixed"],
    "xgrammar_eager": ["--whitespace", "fixed", "--eager"],
    "xgrammar_shared": ["--whitespace", "fixed", "--shared"],
    "llguidance": [],
}
WARM = {"coreai_shared", "xgrammar_shared"}  # masks found for one schema serve the next
STRESS_MODES = ["coreai", "xgrammar", "xgrammar_strict", "llguidance"]


class Absent(Exception):
    pass


def build_xgrammar():
    """The command that starts xgrammar_bench; its package is unpacked without what it needs for GPUs."""
    folder = cases.CACHE / "-".join(XGRAMMAR).replace("==", "-")
    if not folder.exists():
        with tempfile.TemporaryDirectory(dir=folder.parent) as part:
            subprocess.run([sys.executable, "-m", "pip", "install", "--quiet", "--no-deps", "--target", part, *XGRAMMAR],
                           check=True, stdout=sys.stderr)
            shutil.copytree(part, folder)
    program, source = folder / "xgrammar_bench", cases.HERE / "xgrammar_bench.cpp"
    newest = max(source.stat().st_mtime, (cases.HERE / "walk.h").stat().st_mtime)
    if not program.exists() or program.stat().st_mtime < newest:
        libraries = folder / "tvm_ffi/lib"
        subprocess.run(["c++", "-O2", "-std=c++20", "-isystem", str(folder / "tvm_ffi/include"), "-o", str(program),
                        str(source), f"-Wl,-rpath,{libraries}", f"-L{libraries}", "-ltvm_ffi", "-lfmt", "-ldl"], check=True)
    return [str(program), "--library", str(folder / "xgrammar/libxgrammar_bindings.so")]


def build_llguidance():
    cargo = shutil.which("cargo", path=os.pathsep.join([os.environ.get("PATH", ""), str(pathlib.Path.home() / ".cargo/bin")]))
    if cargo is None:
        raise Absent("llguidance needs cargo (Rust 1.87 or newer)")
    target = cases.CACHE / "cargo"
    subprocess.run(["nice", cargo, "build", "--release", "--locked", "--quiet", "--jobs", "1", "--target-dir", str(target),
                    "--manifest-path", str(cases.HERE / "llguidance_bench/Cargo.toml")], check=True)
    return [str(target / "release/llguidance_bench")]


def programs(args):
    """The command of each engine; a rival that cannot be had is left out, and stderr says so."""
    if not os.path.exists(args.program):
        sys.exit(f"error: {args.program} is absent: build the preset release with -DCOREAI_BUILD_BENCHMARKS=ON")
    found = {"coreai": [args.program]}
    for name, build in ("xgrammar", build_xgrammar), ("llguidance", build_llguidance):
        try:
            found[name] = build()
        except (Absent, subprocess.CalledProcessError, OSError) as error:
            print(f"{name} is left out: {error}", file=sys.stderr)
    return found


def rows_of(command, vocabulary, file, begin, count, limit):
    """The rows of schemas begin .. begin + count; one that ends the program is marked, and the next ones follow."""
    rows = []
    with tempfile.TemporaryDirectory() as folder:
        while len(rows) < count:
            out = pathlib.Path(folder, "rows")
            out.unlink(missing_ok=True)
            done = subprocess.run([*command, str(vocabulary), str(file), "--rows", str(out), "--limit", str(limit), "--from",
                                   str(begin + len(rows)), "--count", str(count - len(rows))], capture_output=True, text=True)
            if done.returncode == 2 or not out.exists():
                raise RuntimeError(f"{command[0]}: {done.stderr.strip()}")
            for line in out.read_text(encoding="utf-8").splitlines():
                rows.append(json.loads(line))
            if done.returncode not in (0, 1) and len(rows) < count:
                rows.append({"name": "", "status": "crashed", "ttfm_ms": 0, "valid_rejected": 0, "invalid_accepted": 0,
                             "mismatches": 0, "memory_bytes": 0, "steps_ns": [],
                             "error": "time limit" if done.returncode == 3 else f"exit status {done.returncode}"})
            elif len(rows) < count:
                raise RuntimeError(f"{command[0]}: rows are missing")
    return rows


def percentile(ordered, p):
    return ordered[min(max(math.ceil(p * len(ordered)), 1), len(ordered)) - 1] if ordered else 0


def summary(rows):
    steps = sorted(step * 1e-3 for row in rows for step in row["steps_ns"])
    ttfm = sorted(row["ttfm_ms"] for row in rows if row["ttfm_ms"] > 0)
    memory = sorted(row["memory_bytes"] / 1024 for row in rows if row["ttfm_ms"] > 0)
    result = {"mask_avg_us": statistics.fmean(steps) if steps else 0}
    for name, p in ("p50", 0.5), ("p90", 0.9), ("p95", 0.95), ("p99", 0.99), ("p999", 0.999), ("max", 1):
        result[f"mask_{name}_us"] = percentile(steps, p)
    for name, p in ("p50", 0.5), ("p90", 0.9), ("p99", 0.99), ("max", 1):
        result[f"ttfm_{name}_ms"] = percentile(ttfm, p)
    result["ttfm_avg_ms"] = statistics.fmean(ttfm) if ttfm else 0
    result["schemas"] = len(rows)
    result["passing"] = sum(row["status"] == "ok" and not row["valid_rejected"] and not row["invalid_accepted"] for row in rows)
    result["validation_errors"] = sum(row["valid_rejected"] > 0 for row in rows)
    result["invalidation_errors"] = sum(row["invalid_accepted"] > 0 for row in rows)
    for status in "refused", "stopped", "crashed":
        result[status] = sum(row["status"] == status for row in rows)
    result["mismatches"] = sum(row["mismatches"] for row in rows)
    result["tokens"] = len(steps)
    if any(memory):
        result["grammar_p99_kb"] = percentile(memory, 0.99)
    return {key: round(value, 3) for key, value in result.items()}


def median_rows(rounds):
    """One row for each schema out of those of all rounds: every step at its median, or another program's time slice would count."""
    merged = []
    for rows in zip(*rounds):
        one = dict(rows[-1])
        alike = [row for row in rows if len(row["steps_ns"]) == len(one["steps_ns"]) and row["status"] == one["status"]]
        one["ttfm_ms"] = statistics.median(row["ttfm_ms"] for row in alike)
        one["steps_ns"] = [statistics.median(times) for times in zip(*(row["steps_ns"] for row in alike))]
        merged.append(one)
    return merged


def engine_of(mode):
    return mode.split("_")[0]


def main_set(args, commands, vocabulary, file):
    total = sum(1 for _ in open(file, encoding="utf-8"))
    total = min(total, args.count or total)
    modes = [mode for mode in MODES if engine_of(mode) in commands and (not args.modes or mode in args.modes)]
    rounds = {mode: [] for mode in modes}
    for number in range(args.rounds):
        rows = {mode: [] for mode in modes}
        for piece, begin in enumerate(range(0, total, args.piece)):
            turn = (piece + number) % len(modes)
            for mode in modes[turn:] + modes[:turn]:
                if mode in WARM and begin > 0:
                    continue  # in one piece, or the masks would be cold again
                count = total if mode in WARM else min(args.piece, total - begin)
                rows[mode] += rows_of(commands[engine_of(mode)] + MODES[mode], vocabulary, file, begin, count, args.limit)
            print(f"round {number + 1}: {min(begin + args.piece, total)} of {total}", file=sys.stderr, flush=True)
        for mode in modes:
            rounds[mode].append(rows[mode])
    rows = {mode: median_rows(rounds[mode]) for mode in modes}
    if args.rows:
        pathlib.Path(args.rows).mkdir(parents=True, exist_ok=True)
        for mode in modes:
            lines = "".join(json.dumps(row, ensure_ascii=False) + "\n" for row in rows[mode])
            pathlib.Path(args.rows, f"{vocabulary.parent.name}-{mode}.jsonl").write_text(lines, encoding="utf-8")
    return {mode: summary(rows[mode]) for mode in modes}


def better_rival(figures, warm):
    """The least of each column over the modes of the rivals; warm ones only beside warm ones."""
    rivals = [one for mode, one in figures.items() if engine_of(mode) != "coreai" and (warm or mode not in WARM)]
    return {key: min(one[key] for one in rivals) for key in TIMES} if rivals else {}


def ratios(figures):
    result = {}
    for mode, one in figures.items():
        better = better_rival(figures, mode in WARM)
        if engine_of(mode) == "coreai" and better:
            result[mode] = {key: round(one[key] / better[key], 4) for key in TIMES if better[key] > 0}
    return result


def stress(args, commands, vocabulary, file):
    """Each case walked twice, so that what a mask costs when it comes again stands apart."""
    source = [json.loads(line) for line in open(file, encoding="utf-8")]
    twice = file.with_name("stress_twice.jsonl")
    cases.write(twice, "".join(json.dumps(one | {"instances": one["instances"] * 2}, ensure_ascii=False) + "\n" for one in source))
    result = {one["name"]: {} for one in source}
    for mode in STRESS_MODES:
        if engine_of(mode) not in commands or (args.modes and mode not in args.modes):
            continue
        command = commands[engine_of(mode)] + MODES[mode]
        rounds = [rows_of(command, vocabulary, twice, 0, len(source), min(args.limit, 10)) for _ in range(args.rounds)]
        for one, row in zip(source, median_rows(rounds)):
            steps = [step * 1e-3 for step in row["steps_ns"]]
            first, again = steps[:(len(steps) - 1) // 2], steps[(len(steps) - 1) // 2:]
            wrong = row["valid_rejected"] + row["invalid_accepted"]
            status = row["error"] if row["status"] == "crashed" else row["status"]
            result[one["name"]][mode] = {
                "status": status if not wrong else "wrong", "ttfm_ms": round(row["ttfm_ms"], 3),
                "mask_p50_us": round(percentile(sorted(first), 0.5), 3), "mask_max_us": round(max(first, default=0), 3),
                "again_max_us": round(max(again, default=0), 3)}
    return result


def number(value):
    if value == 0:
        return "-"
    return f"{value:.3g}" if value < 100 else f"{value:,.0f}"


def print_table(title, header, lines):
    widths = [max(len(line[i]) for line in [header, *lines]) for i in range(len(header))]
    print(f"\n{title}")
    for line in [header, *lines]:
        print("  ".join(cell.ljust(width) if i == 0 else cell.rjust(width) for i, (cell, width) in enumerate(zip(line, widths))))


def print_tables(name, figures, ratio, stressed):
    short = [key.removeprefix("mask_").removesuffix("_us").removesuffix("_ms").replace("_", " ") for key in TIMES]
    print_table(f"{name}: us per token (mask + commit), ms to the first mask (ttfm)", ["mode", *short],
                [[mode, *(number(one[key]) for key in TIMES)] for mode, one in figures.items()])
    print_table(f"{name}: verdicts", ["mode", *(key.replace("_", " ") for key in COUNTS)],
                [[mode, *(f"{one[key]:,.0f}" for key in COUNTS)] for mode, one in figures.items()])
    print_table(f"{name}: ratio to the better rival of each column", ["mode", *short],
                [[mode, *(f"{one[key]:.3f}" if key in one else "-" for key in TIMES)] for mode, one in ratio.items()])
    for mode in STRESS_MODES:
        lines = [[case, one[mode]["status"], *(number(one[mode][key]) for key in
                  ("ttfm_ms", "mask_p50_us", "mask_max_us", "again_max_us"))] for case, one in stressed.items() if mode in one]
        if lines:
            print_table(f"{name}: stress set, {mode}", ["case", "status", "ttfm ms", "p50 us", "max us", "max us again"], lines)


def missed(args, name, figures, ratio, stressed):
    """What is not as it has to be: verdicts always, times unless --no-bounds."""
    ours = figures.get("coreai")
    if ours is None:
        return []
    lines = [f"{name}: {key} is {ours[key]:.0f}" for key in ("invalidation_errors", "mismatches", "stopped", "crashed") if ours[key]]
    if ours["validation_errors"] > 1:
        lines.append(f"{name}: validation_errors is {ours['validation_errors']:.0f}, above 1")
    if args.no_bounds:
        return lines
    if ours["schemas"] == 1200 and ours["passing"] < 1155:
        lines.append(f"{name}: passing is {ours['passing']:.0f}, below 1155")
    lines += [f"{name}: {key} over the better rival is {ratio['coreai'][key]}, above {bound}"
              for key, bound in BOUNDS.items() if ratio.get("coreai", {}).get(key, 0) > bound]
    for case, one in stressed.items():
        if one["coreai"]["status"] != "ok":
            lines.append(f"{name}: stress case {case}: {one['coreai']['status']}")
        for key, bound in ("ttfm_ms", 5), ("mask_max_us", 1000), ("again_max_us", 100):
            if one["coreai"][key] > bound:
                lines.append(f"{name}: stress case {case}: {key} is {one['coreai'][key]}, above {bound}")
    return lines


def read_arguments():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--quick", action="store_true", help="the 300 schemas of the baseline instead of the 1,200, one vocabulary")
    parser.add_argument("--full", metavar="DIR", help="all schemas below a folder of MaskBench's data")
    parser.add_argument("--json", metavar="FILE", help="also write all figures to this file")
    parser.add_argument("--data", metavar="DIR", help="folder with maskbench_dev.tar.gz and grammar_stress.jsonl "
                        "(../shared/data); where it is absent, the cases of tests/fixtures/json_schema are taken")
    parser.add_argument("--vocabulary", action="append", choices=cases.PACKAGES, help="both without --quick, else llama3")
    parser.add_argument("--modes", nargs="+", choices=MODES, help="only these")
    parser.add_argument("--rounds", type=int, default=1, help="run so often; each step and each first mask counts with its median")
    parser.add_argument("--piece", type=int, default=100, help="schemas until the next engine's turn")
    parser.add_argument("--count", type=int, help="only the first schemas")
    parser.add_argument("--limit", type=int, default=60, help="seconds that one schema may take")
    parser.add_argument("--rows", metavar="DIR", help="write a line for each schema and mode into this folder")
    parser.add_argument("--no-bounds", action="store_true", help="report missed targets without failing")
    parser.add_argument("--program", default=str(ROOT / "build/release/bin/grammar_bench"))
    args = parser.parse_args()
    args.vocabulary = args.vocabulary or (["llama3"] if args.quick else list(cases.PACKAGES))
    return args


def main():
    args = read_arguments()
    commands = programs(args)
    result, problems = {}, []
    for name in args.vocabulary:
        vocabulary, file, stress_file = cases.prepare(name, args.data, args.quick, args.full)
        figures = main_set(args, commands, vocabulary, file)
        ratio, stressed = ratios(figures), stress(args, commands, vocabulary, stress_file)
        if "xgrammar" in commands:
            wrapping = subprocess.run([*commands["xgrammar"], "--wrapping", str(vocabulary), str(file)], capture_output=True,
                                      text=True, check=True)
            for mode, one in figures.items():
                one["wrapping_us"] = float(wrapping.stdout) if engine_of(mode) == "xgrammar" else 0.0
        print_tables(name, figures, ratio, stressed)
        problems += missed(args, name, figures, ratio, stressed)
        whole = {"vocabulary": name, "file": file.stem, "pins": XGRAMMAR[:1] + ["llguidance==1.9.1"], **figures, "ratios": ratio}
        print("\n" + json.dumps(whole))
        whole["stress"] = stressed
        if not result:
            result = whole
        else:
            result[name] = whole
    if args.json:
        pathlib.Path(args.json).write_text(json.dumps(result, indent=1) + "\n")
    for problem in problems:
        print(f"missed: {problem}", file=sys.stderr)
    return 1 if problems else 0


if __name__ == "__main__":
    sys.exit(main())
