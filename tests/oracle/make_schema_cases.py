#!/usr/bin/env python3
"""Cases of the JSON-Schema-Test-Suite, one schema a line with the texts that it accepts or not.

usage: make_schema_cases.py SUITE_FOLDER OUTPUT.jsonl    (SUITE_FOLDER/tests/draft2020-12/*.json: the required cases)
"""
import json
import pathlib
import sys


def main():
    suite, output = map(pathlib.Path, sys.argv[1:3])
    lines = []
    for path in sorted((suite / "tests" / "draft2020-12").glob("*.json")):
        for group in json.loads(path.read_text()):
            tests = [{"valid": t["valid"], "text": json.dumps(t["data"], ensure_ascii=False)} for t in group["tests"]]
            lines.append({"name": f"{path.stem}: {group['description']}", "schema": group["schema"], "tests": tests})
    output.write_text("".join(json.dumps(line, ensure_ascii=False) + "\n" for line in lines))


if __name__ == "__main__":
    main()
