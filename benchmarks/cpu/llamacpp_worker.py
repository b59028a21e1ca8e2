#!/usr/bin/env python3
"""One measurement of llama.cpp through the C API of llama-cpp-python: greedy tokens and rates as one JSON object.

  llamacpp_worker.py MODEL.gguf THREADS COUNT PROMPT_ID...
"""
import ctypes
import json
import sys
import time

import llama_cpp


def main():
    path, threads, count, prompt = sys.argv[1], int(sys.argv[2]), int(sys.argv[3]), [int(i) for i in sys.argv[4:]]
    quiet = llama_cpp.llama_log_callback(lambda level, text, data: None)
    llama_cpp.llama_log_set(quiet, None)
    llama_cpp.llama_backend_init()
    begin = time.perf_counter()
    model = llama_cpp.llama_model_load_from_file(path.encode(), llama_cpp.llama_model_default_params())
    settings = llama_cpp.llama_context_default_params()
    settings.n_ctx = len(prompt) + count
    settings.n_batch = max(len(prompt), 32)
    settings.n_threads = settings.n_threads_batch = threads
    context = llama_cpp.llama_init_from_model(model, settings)
    if not context:
        raise SystemExit(f"llama.cpp cannot load {path}")
    load = time.perf_counter() - begin
    greedy = llama_cpp.llama_sampler_init_greedy()

    def step(ids):
        batch = (llama_cpp.llama_token * len(ids))(*ids)
        if llama_cpp.llama_decode(context, llama_cpp.llama_batch_get_one(batch, len(ids))) != 0:
            raise SystemExit("llama_decode failed")
        return llama_cpp.llama_sampler_sample(greedy, context, -1)

    # As a user meets it: the first pass touches every weight page once, so one throw-away pass comes before it.
    step(prompt[:1])
    llama_cpp.llama_memory_clear(llama_cpp.llama_get_memory(context), False)
    begin = time.perf_counter()
    ids = [step(prompt)]
    prefill = time.perf_counter() - begin
    begin = time.perf_counter()
    while len(ids) < count:
        ids.append(step([ids[-1]]))
    decode = time.perf_counter() - begin
    print(json.dumps({"token_ids": ids, "load_ms": load * 1000,
                      "prefill_tokens_per_second": len(prompt) / prefill,
                      "decode_tokens_per_second": (count - 1) / decode if count > 1 else 0}))


if __name__ == "__main__":
    main()
