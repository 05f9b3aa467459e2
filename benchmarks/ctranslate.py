"""CTranslate2 worker of `generate.py`, in a process that imports nothing else.

    python ctranslate.py FOLDER marian float32 2        # folder, network, precision, threads

In one process with torch, CTranslate2 has crashed in float32, and the threads of two libraries slow each other down.
Requests and results are lines of JSON.
"""

import json
import sys
import time

import ctranslate2


def run_batch(engine, name, inputs, beam_size, batch_size, new_tokens):
    outputs = []
    for start in range(0, len(inputs), batch_size):
        batch = [[str(token) for token in tokens] for tokens in inputs[start : start + batch_size]]
        if name == "marian":
            results = engine.translate_batch(
                batch, beam_size=beam_size, min_decoding_length=new_tokens, max_decoding_length=new_tokens,
                max_batch_size=batch_size,
            )  # fmt: skip
            outputs += [list(map(int, result.hypotheses[0])) for result in results]
        else:
            results = engine.generate_batch(
                batch, beam_size=beam_size, min_length=new_tokens, max_length=new_tokens, max_batch_size=batch_size,
                include_prompt_in_result=False,
            )  # fmt: skip
            outputs += [list(map(int, result.sequences[0])) for result in results]
    return outputs


def main():
    folder, name, precision, threads = sys.argv[1:]
    engine_class = ctranslate2.Translator if name == "marian" else ctranslate2.Generator
    engine = engine_class(folder, device="cpu", compute_type=precision, inter_threads=1, intra_threads=int(threads))
    for line in sys.stdin:
        request = json.loads(line)
        start = time.perf_counter()
        outputs = run_batch(engine, name, **request)
        print(json.dumps([time.perf_counter() - start, outputs]), flush=True)


if __name__ == "__main__":
    main()
