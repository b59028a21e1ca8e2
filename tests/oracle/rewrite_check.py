#!/usr/bin/env python3
"""Proves with the reference wheel that rewriting an asset keeps its program.

usage: rewrite_check.py [--tool build/dev/bin/coreai-build] [--strip-locations] [--limit SECONDS] [--verbose] FOLDER...

Every .aimodel below the folders goes through `coreai-build rewrite`; the wheel then loads the genuine file and the
rewritten one, each in a process of its own (it ends the process on many inputs), and prints both programs with all
constants and locations. The texts must be equal. With --strip-locations the tool leaves the locations out: the programs
must be equal but for them, and the rewritten one must have none left. Blobs are compared by name and bytes: the wheel lists them in the order of the file
and prints their alignment, which the rewriting sets to 16, before their bytes.
Exit status: 0 all equal, 1 at least one differs, 2 the tool or the wheel cannot be run at all.
Needs Python with coreai-core 1.0.0b3; never part of the build.
"""
import argparse
import hashlib
import os
import re
import select
import shutil
import signal
import subprocess
import sys
import tempfile
import time

REFUSED_BY_THE_WHEEL = {"aicode_all_codes", "attr_enumerated_shapes", "encoding_version_3", "loc_builtin_legacy", "reduce",
                        "reduce_index"}
# How the wheel prints the one location that stands for none: it refuses a file with MLIR's unknown location.
NO_LOCATION = {b'loc("":0:0)', b"#debuginfo.location<#loc in unit>"}
ALIGNMENT_DIGITS = 8  # hexadecimal, before the bytes of a printed blob
REFUSED_BY_US = {"encoding_version_3"}  # an encoding that no version of the dialect has


class WheelRefuses(Exception):
    def __init__(self, origin, reason):
        super().__init__(reason)
        self.origin = origin


def assets_below(folders):
    found = []
    for folder in folders:
        if folder.rstrip("/").endswith(".aimodel"):
            found.append(folder)
        for root, folders_here, _ in os.walk(folder):
            found += [os.path.join(root, name) for name in folders_here if name.endswith(".aimodel")]
    return sorted(set(found))


def printed(path, locations):
    from coreai.authoring import AIModelAsset

    program = AIModelAsset.load(path).program
    return program._module._mlir_module.operation.get_asm(enable_debug_info=True) if locations else str(program)


def wheel_text(path, limit, locations):
    """The program as the wheel prints it, or None with a reason. Runs in a forked process under a time limit."""
    read_end, write_end = os.pipe()
    child = os.fork()
    if child == 0:
        try:
            os.close(read_end)
            null = os.open(os.devnull, os.O_WRONLY)
            os.dup2(null, 1)
            os.dup2(null, 2)
            signal.alarm(int(limit) + 5)
            text = printed(path, locations).encode()
            while text:
                text = text[os.write(write_end, text):]
            os._exit(0)
        except BaseException:
            os._exit(3)
    os.close(write_end)
    data, end = [], time.monotonic() + limit
    while True:
        ready, _, _ = select.select([read_end], [], [], max(0.0, end - time.monotonic()))
        if not ready:
            os.kill(child, signal.SIGKILL)
            os.waitpid(child, 0)
            os.close(read_end)
            return None, "time limit"
        block = os.read(read_end, 1 << 20)
        if not block:
            break
        data.append(block)
    os.close(read_end)
    _, status = os.waitpid(child, 0)
    code = os.waitstatus_to_exitcode(status)
    return (b"".join(data), "") if code == 0 else (None, f"exit status {code}")


def normalised(text):
    """Program lines in their order; the lines of the blob list sorted, each as the digest of its bytes."""
    body, blobs, listing = [], [], False
    for line in text.split(b"\n"):
        listing = listing or line.startswith(b"{-#")
        if not listing:
            body.append(line)
        elif b'"0x' in line:
            name, blob = line.strip().rstrip(b",").split(b'"0x', 1)
            blobs.append((name, hashlib.sha256(blob[ALIGNMENT_DIGITS:]).digest()))
    return b"\n".join(body), sorted(blobs)


def rewrite(options, source, target):
    command = [options.tool, "rewrite", source, "--output", target]
    command += ["--strip-locations"] if options.strip_locations else []
    done = subprocess.run(command, capture_output=True, text=True, timeout=options.limit)
    return done.returncode, done.stderr.strip()


def difference(options, source, target, counts):
    """What the wheel finds different between the genuine and the rewritten file; a remark, empty when nothing is."""
    texts = []
    for path, origin in ((source, "genuine"), (target, "rewritten")):
        text, reason = wheel_text(path, options.limit, locations=not options.strip_locations)
        if text is None:
            raise WheelRefuses(origin, f"the wheel on the {origin} file: {reason}")
        texts.append(text)
    counts["bytes"] += len(texts[1])
    if normalised(texts[0]) != normalised(texts[1]):
        return "the printed programs differ"
    if options.strip_locations:
        text, reason = wheel_text(target, options.limit, locations=True)
        if text is None:
            return f"the wheel on the rewritten file, with locations: {reason}"
        left = set(re.findall(rb"^#loc\d* = (.*)$", text, re.MULTILINE)) - NO_LOCATION
        if left:
            return f"locations are left: {sorted(left)[:3]}"
    return ""


def check(options, path, scratch, counts):
    """One word of result and a remark."""
    name = os.path.basename(path)[: -len(".aimodel")]
    target = os.path.join(scratch, "rewritten.aimodel")
    try:
        status, message = rewrite(options, path, target)
    except subprocess.TimeoutExpired:
        return "FAILED", "our rewrite ran into the time limit"
    if status != 0:
        expected = name in REFUSED_BY_US and status == 1
        return ("refused" if expected else "FAILED"), message
    try:
        remark = difference(options, path, target, counts)
    except WheelRefuses as refusal:
        # What the wheel cannot load itself proves nothing; it must be one of the known ones.
        known = refusal.origin == "genuine" and name in REFUSED_BY_THE_WHEEL
        return ("wheel refuses" if known else "FAILED"), str(refusal)
    finally:
        shutil.rmtree(target, ignore_errors=True)
    return ("FAILED" if remark else "same"), remark


def main():
    root = os.path.dirname(os.path.dirname(os.path.dirname(os.path.abspath(__file__))))
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("folders", nargs="+")
    parser.add_argument("--tool", default=os.path.join(root, "build/release/bin/coreai-build"))
    parser.add_argument("--strip-locations", action="store_true", help="rewrite without locations, compare without them")
    parser.add_argument("--limit", type=float, default=120, help="seconds per load")
    parser.add_argument("--verbose", action="store_true")
    options = parser.parse_args()
    if not os.access(options.tool, os.X_OK):
        print(f"{options.tool} cannot be run: build it, or name it with --tool", file=sys.stderr)
        return 2
    try:
        import coreai.authoring  # noqa: F401  (once; every load forks from here)
    except ImportError as error:
        print(f"the wheel cannot be imported: {error}", file=sys.stderr)
        return 2
    paths = assets_below(options.folders)
    results = {"same": 0, "wheel refuses": 0, "refused": 0, "FAILED": 0}
    counts = {"bytes": 0}
    with tempfile.TemporaryDirectory() as scratch:
        for path in paths:
            result, remark = check(options, path, scratch, counts)
            results[result] += 1
            if options.verbose or result != "same":
                print(f"{result}: {path}{': ' + remark if remark else ''}", flush=True)
    print(f"{len(paths)} assets: {results['same']} the same program, {results['wheel refuses']} that the wheel cannot load, "
          f"{results['refused']} refused by us, {results['FAILED']} failed ({counts['bytes'] / 1e6:.1f} MB of text compared)")
    return 1 if results["FAILED"] or not paths else 0


if __name__ == "__main__":
    sys.exit(main())
