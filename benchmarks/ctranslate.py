"""CTranslate2's side of `generate.py`, in a process that imports nothing else.

    python ctranslate.py FOLDER marian float32 2        network, precision, threads

Beside torch it has been seen to crash in float32, and two libraries with threads of their own slow each other down.
Work comes and results go as lines of JSON.
"""

import json
import sys
import time

import ctranslate2


def work(engine, name, texts, beams, rows, new):
    written = []
    for at in range(0, len(texts), rows):
        part = [[str(token) for token in text] for text in texts[at : at + rows]]
        if name == "marian":
            found = engine.translate_batch(
                part, beam_size=beams, min_decoding_length=new, max_decoding_length=new, max_batch_size=rows
            )
            written += [list(map(int, result.hypotheses[0])) for result in found]
        else:
            found = engine.generate_batch(
                part, beam_size=beams, min_length=new, max_length=new, max_batch_size=rows,
                include_prompt_in_result=False,
            )  # fmt: skip
            written += [list(map(int, result.sequences[0])) for result in found]
    return written


def main():
    folder, name, precision, threads = sys.argv[1:]
    kind = ctranslate2.Translator if name == "marian" else ctranslate2.Generator
    engine = kind(folder, device="cpu", compute_type=precision, inter_threads=1, intra_threads=int(threads))
    for line in sys.stdin:
        asked = json.loads(line)
        start = time.perf_counter()
        written = work(engine, name, **asked)
        print(json.dumps([time.perf_counter() - start, written]), flush=True)


if __name__ == "__main__":
    main()
