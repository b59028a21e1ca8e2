#!/usr/bin/env python3
"""Cases of the JSON-Schema-Test-Suite, one schema a line with the texts that it accepts or not, and the documents that
they refer to, one a line with its URI.

usage: make_schema_cases.py SUITE_FOLDER METASCHEMA_FOLDER DRAFT OUTPUT_FOLDER [CASES...]
(SUITE_FOLDER/tests/DRAFT/*.json: the required cases, or those files of them that are named; METASCHEMA_FOLDER: as
jsonschema_specifications/schemas has them)
"""
import json
import pathlib
import sys


def write_lines(path, lines):
    path.write_text("".join(json.dumps(line, ensure_ascii=False) + "\n" for line in lines))


def cases(folder, wanted):
    for path in sorted(folder.glob("*.json")):
        if wanted and path.stem not in wanted:
            continue
        for group in json.loads(path.read_text()):
            tests = [{"valid": t["valid"], "text": json.dumps(t["data"], ensure_ascii=False)} for t in group["tests"]]
            yield {"name": f"{path.stem}: {group['description']}", "schema": group["schema"], "tests": tests}


def documents(suite, metaschemas, draft):
    remotes = suite / "remotes"
    for path in sorted((remotes / draft).rglob("*.json")) + sorted(remotes.glob("*.json")):
        yield {"uri": f"http://localhost:1234/{path.relative_to(remotes)}", "document": json.loads(path.read_text())}
    for path in sorted((metaschemas / draft.replace("-", "")).rglob("*")):
        if path.is_file():
            document = json.loads(path.read_text())
            yield {"uri": document.get("$id", document.get("id")), "document": document}


def main():
    suite, metaschemas, draft, output = sys.argv[1:5]
    suite, output = pathlib.Path(suite), pathlib.Path(output)
    write_lines(output / f"{draft}.jsonl", cases(suite / "tests" / draft, sys.argv[5:]))
    write_lines(output / f"{draft}.documents.jsonl", documents(suite, pathlib.Path(metaschemas), draft))


if __name__ == "__main__":
    main()
