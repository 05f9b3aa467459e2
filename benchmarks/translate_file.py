"""Translating a whole file, from process start to exit, compared with CTranslate2 and transformers, in one run.

    REGARD_DATA=… python benchmarks/translate_file.py MODEL      # Multi30k's test_2016_flickr, English to German
    python benchmarks/translate_file.py MODEL --file texts.en --reference texts.de --greedy

MODEL is a folder written by `regard train` in the format of Marian or of mBART (families "transformer", "marian" and
"mbart"). Every backend is a separate process that loads the tokenizer and the model, translates the file and prints the
lines: for regard it is the command `regard translate`, for the others the short functions below. Backends are timed
alternately, and the minimum over the rounds is reported. The others are tried with batch sizes of 16, 32 and 64, sorted
by length, and continue with their fastest. CTranslate2 runs without torch, which it does not need, and twice: with the
GEMM backend it chooses itself (oneDNN on AMD CPUs) and with Intel's (CT2_USE_MKL=1), with which its int8 translated
much better on a CPU without VNNI; speedups are over the faster one. Converting a model, which is done once, is not
included.

Then one sentence: the time from the start of the process to its translation, and that of `import torch`. Memory is the
peak RSS of a process, and the difference to a process that only imports the same libraries.
"""

import argparse
import json
import os
import platform
import shutil
import subprocess
import sys
import tempfile
import time
from importlib.metadata import version
from pathlib import Path

from result_rows import ResultRows

BATCH_SIZES = (16, 32, 64)
MAX_NEW_TOKENS = 256
SENTENCE = "A man rides a horse."
REGARD = [sys.executable, "-c", "from regard.cli.main import main; main()"]
WITHOUT_TORCH = "import sys; sys.modules['torch'] = sys.modules['transformers'] = None; "
LIBRARIES = {
    "regard": "import torch, tokenizers, regard.model, regard.tasks.translate, regard.cli.task_command",
    "CTranslate2": WITHOUT_TORCH + "import ctranslate2, tokenizers",
    "transformers": "import torch; from transformers import AutoTokenizer, MarianMTModel",
}
FLOAT32 = ("CTranslate2 float32", "CTranslate2 float32, MKL")
INT8 = ("CTranslate2 int8", "CTranslate2 int8, MKL")
PEERS = ("transformers", *FLOAT32, *INT8)
BACKENDS = (*PEERS, "regard float32", "regard int8", "regard int8, converted")


def transformers_worker(folder, file, beam_size, batch_size):
    """Translate the lines of a file as documented by transformers."""
    import torch
    import transformers

    torch.set_num_threads(int(os.environ["OMP_NUM_THREADS"]))
    transformers.utils.logging.disable_progress_bar()
    transformers.logging.set_verbosity_error()
    tokenizer = transformers.AutoTokenizer.from_pretrained(folder)
    model = transformers.AutoModelForSeq2SeqLM.from_pretrained(folder).eval()
    texts = Path(file).read_text(encoding="utf-8").splitlines()
    outputs = [""] * len(texts)
    order = sorted(range(len(texts)), key=lambda n: len(texts[n]))
    for start in range(0, len(order), batch_size):
        indices = order[start : start + batch_size]
        inputs = tokenizer([texts[n] for n in indices], padding=True, return_tensors="pt")
        with torch.inference_mode():
            generated = model.generate(
                inputs["input_ids"], attention_mask=inputs["attention_mask"], num_beams=beam_size, do_sample=False,
                max_new_tokens=MAX_NEW_TOKENS,
            )  # fmt: skip
        for n, text in zip(indices, tokenizer.batch_decode(generated, skip_special_tokens=True), strict=True):
            outputs[n] = text
    print("\n".join(outputs), flush=True)


def ctranslate2_worker(folder, file, beam_size, batch_size):
    """Translate the lines of a file as documented by CTranslate2, which sorts by length itself."""
    sys.modules["torch"] = sys.modules["transformers"] = None
    import ctranslate2
    from tokenizers import Tokenizer

    engine = ctranslate2.Translator(
        str(folder), device="cpu", compute_type="default", intra_threads=int(os.environ["OMP_NUM_THREADS"])
    )
    tokenizer = Tokenizer.from_file(str(Path(folder) / "tokenizer.json"))
    texts = Path(file).read_text(encoding="utf-8").splitlines()
    results = engine.translate_batch(
        [encoding.tokens for encoding in tokenizer.encode_batch(texts)], beam_size=beam_size, max_batch_size=batch_size,
        max_decoding_length=MAX_NEW_TOKENS,
    )  # fmt: skip
    outputs = [[tokenizer.token_to_id(token) for token in result.hypotheses[0]] for result in results]
    print("\n".join(tokenizer.decode_batch(outputs)), flush=True)


def convert_to_ctranslate2(folder, target, quantization):
    """Write the same model in CTranslate2's format.

    CTranslate2's loader for Marian expects the published models: padding as the last token, whose embedding is removed,
    and a zero embedding for the decoder start token. Models of regard have padding first and a trained embedding of the
    start token. So its base class, the loader of BART, is used, with the options in which Marian and mBART differ.
    """
    import transformers
    from ctranslate2.converters.transformers import BartLoader

    transformers.utils.logging.disable_progress_bar()
    transformers.logging.set_verbosity_error()
    model = transformers.AutoModelForSeq2SeqLM.from_pretrained(folder)
    tokenizer = transformers.AutoTokenizer.from_pretrained(folder)
    model.config.normalize_before = model.config.normalize_embedding = model.config.model_type == "mbart"
    model.config.decoder_start_token_id = model.generation_config.decoder_start_token_id
    loader = BartLoader()
    spec = loader.get_model_spec(model)
    loader.set_config(spec.config, model, tokenizer)
    spec.config.unk_token = tokenizer.unk_token or tokenizer.pad_token  # byte-level BPE has no unknown token
    spec.config.add_source_eos = False  # the tokenizer adds it
    loader.set_vocabulary(spec, loader.get_vocabulary(model, tokenizer))
    spec.validate()
    spec.optimize(quantization=quantization)
    Path(target).mkdir()
    spec.save(str(target))
    shutil.copyfile(Path(folder) / "tokenizer.json", Path(target) / "tokenizer.json")


WORKERS = {
    "transformers": transformers_worker,
    "ctranslate2": ctranslate2_worker,
    "convert": convert_to_ctranslate2,
}


def worker_command(*arguments):
    return [sys.executable, __file__, "--worker", json.dumps([str(argument) for argument in arguments])]


class ProcessRun:
    """A process from start to exit: its seconds, the seconds until its first line, its peak RSS and its output."""

    def __init__(self, command, environment=None):
        with tempfile.TemporaryFile() as errors:
            start = time.perf_counter()
            process = subprocess.Popen(
                [str(part) for part in command],
                stdout=subprocess.PIPE,
                stderr=errors,
                env={**os.environ, **(environment or {})},
            )
            first_line = process.stdout.readline()
            self.first_line_seconds = time.perf_counter() - start
            output = first_line + process.stdout.read()
            _, status, usage = os.wait4(process.pid, 0)
            self.seconds = time.perf_counter() - start
            process.returncode = os.waitstatus_to_exitcode(status)
            process.stdout.close()
            if process.returncode:
                errors.seek(0)
                sys.exit(f"{' '.join(process.args)} failed:\n{errors.read().decode()[-3000:]}")
        self.memory = usage.ru_maxrss / 1024
        self.lines = output.decode().splitlines()


class Backends:
    """Runs any of the backends."""

    def __init__(self, model, work_dir, file, beam_size):
        self.model, self.work_dir, self.beam_size = model, work_dir, beam_size
        for quantization in ("float32", "int8"):
            ProcessRun(worker_command("convert", model, work_dir / quantization, quantization))
        self.int8_folder = work_dir / "regard"
        result = subprocess.run(
            [*REGARD, "convert", model, self.int8_folder, "--precision", "int8", "--calibration", file],
            check=True, capture_output=True, text=True,
        )  # fmt: skip
        self.quantization_report = result.stderr.splitlines()[-1]

    def __call__(self, backend, file, batch_size):
        library, _, variant = backend.partition(" ")
        if library == "transformers":
            return ProcessRun(worker_command("transformers", self.model, file, self.beam_size, batch_size))
        if library == "CTranslate2":
            environment = {"CT2_USE_MKL": "1"} if variant.endswith("MKL") else {}
            folder = self.work_dir / variant.split(",")[0]
            return ProcessRun(worker_command("ctranslate2", folder, file, self.beam_size, batch_size), environment)
        converted = variant.endswith("converted")
        model, options = (self.int8_folder, []) if converted else (self.model, ["--precision", variant])
        return ProcessRun([*REGARD, "translate", model, file, "--beam", self.beam_size, *options])


def measure_all(backends, file, rounds):
    """The best run of every backend on the file, and its best batch size."""
    best, batch_sizes = {}, {}
    for round_ in range(rounds):
        for name in BACKENDS:
            candidates = (batch_sizes.get(name, 0),) if round_ or name not in PEERS else BATCH_SIZES
            for size in candidates:
                run = backends(name, file, size)
                print(
                    f"round {round_ + 1}, {name}{f', batch size {size}' * bool(size)}: {run.seconds:.2f} s", flush=True
                )
                if name not in best or run.seconds < best[name].seconds:
                    best[name], batch_sizes[name] = run, size
    return best, batch_sizes


def time_to_first_translation(backends, work_dir, rounds):
    """The best time to the first translation of every backend, and that of `import torch`."""
    file = work_dir / "sentence.txt"
    file.write_text(SENTENCE + "\n")
    best = {}
    for _ in range(rounds):
        times = {"import torch": ProcessRun([sys.executable, "-c", "import torch"]).seconds}
        times |= {name: backends(name, file, 1).first_line_seconds for name in BACKENDS}
        best = {name: min(seconds, best.get(name, seconds)) for name, seconds in times.items()}
    return best


def print_results(best, batch_sizes, libraries, reference):
    from sacrebleu.metrics import BLEU  # here, so that its memory is not counted in that of the child processes

    expected = best["transformers"].lines
    peers = [min(best[name].seconds for name in names) for names in (("transformers",), FLOAT32, INT8)]
    print("\n| | s | speedup over transformers | over CTranslate2 float32 | over CTranslate2 int8 | batch size "
          "| peak MB | above libraries MB | BLEU | lowercased | different lines |")  # fmt: skip
    print("| --- | --- | --- | --- | --- | --- | --- | --- | --- | --- | --- |")
    scores = {}
    for name, run in sorted(best.items(), key=lambda item: -item[1].seconds):
        assert len(run.lines) == len(expected), f"{name}: {len(run.lines)} lines, expected {len(expected)}"
        scores[name] = [BLEU(lowercase=lower).corpus_score(run.lines, [reference]).score for lower in (False, True)]
        ratios = " | ".join(f"{peer / run.seconds:.2f}×" for peer in peers)
        memory = f"{run.memory:,.0f} | {run.memory - libraries[name.split()[0]]:,.0f}"
        different = sum(line != other for line, other in zip(run.lines, expected, strict=True))
        numbers = f"{run.seconds:.2f} | {ratios} | {batch_sizes[name] or ''} | {memory}"
        print(f"| {name} | {numbers} | {scores[name][0]:.2f} | {scores[name][1]:.2f} | {different} |")
    print()
    for name in ("regard int8", "regard int8, converted"):
        difference = scores[name][0] - scores["regard float32"][0]
        verdict = "reached" if difference >= -0.2 else "missed"
        print(f"{name}: BLEU {difference:+.2f} to float32, {verdict} (goal: at most 0.2 lower)")
        above, *others = (best[backend].memory - libraries[backend.split()[0]] for backend in (name, *INT8))
        peer = min(others)
        print(f"{name}: {above:,.0f} MB above the libraries, {'reached' if above <= peer else 'missed'} "
              f"(goal: CTranslate2's, {peer:,.0f})")  # fmt: skip
    return scores


def save_rows(best, libraries, scores, times, lines, args):
    """Save time, memory and BLEU of each precision beside those of each peer, and the time to the first sentence."""
    rows = ResultRows("translate_file", threads=args.threads, packages=("torch", "transformers", "ctranslate2"))
    ctranslate2 = [min(names, key=lambda name: best[name].seconds) for names in (FLOAT32, INT8)]
    names = {"transformers": "transformers", **dict(zip(ctranslate2, (FLOAT32[0], INT8[0]), strict=True))}
    search = "greedy" if args.greedy else "beam 4"
    for name in BACKENDS[len(PEERS) :]:
        precision = name.removeprefix("regard ")
        what, run = f"{lines:,} lines, {search}, {precision}", best[name]
        memory = run.memory - libraries["regard"]
        for peer, title in names.items():
            rows.add("file", what, "s", ours=run.seconds, peer=best[peer].seconds, peer_name=title)
            theirs = best[peer].memory - libraries[peer.split()[0]]
            rows.add("file", f"{what}, memory above the libraries", "MB", ours=memory, peer=theirs, peer_name=title)
            bleu = {"ours": scores[name][0], "peer": scores[peer][0]}
            rows.add("file", f"{what}, BLEU", "BLEU", **bleu, peer_name=title, better="higher")
        for peer in ("import torch", *names):
            what = f"`regard translate`, from the start of the process to the first sentence, {precision}"
            title = "`import torch` alone" if peer == "import torch" else names[peer]
            rows.add("startup", what, "s", ours=times[name], peer=times[peer], peer_name=title)
    rows.save()


def print_latency(times):
    print("\n| from the start of the process | s | relative to `import torch` |\n| --- | --- | --- |")
    for name, seconds in times.items():
        print(f"| {name} | {seconds:.2f} | {seconds / times['import torch']:.2f}× |")
    print("(goal: at most 1.3×)")


def compare(args, work_dir):
    versions = ", ".join(f"{name} {version(name)}" for name in ("torch", "transformers", "ctranslate2", "sacrebleu"))
    print(f"{versions}, Python {platform.python_version()}, {args.threads} threads, load {os.getloadavg()[0]:.1f}")
    reference = args.reference.read_text(encoding="utf-8").splitlines()
    size = (args.model / "model.safetensors").stat().st_size / 2**20
    search = "greedy" if args.greedy else "beam 4"
    print(f"{args.model.name} ({size:.0f} MB), {args.file.name}: {len(reference)} lines, {search}", flush=True)
    backends = Backends(args.model, work_dir, args.file, 1 if args.greedy else 4)
    print(backends.quantization_report)
    libraries = {name: ProcessRun([sys.executable, "-c", code]).memory for name, code in LIBRARIES.items()}
    times = time_to_first_translation(backends, work_dir, max(3, args.rounds))
    best, batch_sizes = measure_all(backends, args.file, args.rounds)
    print(f"load {os.getloadavg()[0]:.1f}; only the libraries, MB:", end=" ")
    print(", ".join(f"{name} {memory:,.0f}" for name, memory in libraries.items()))
    scores = print_results(best, batch_sizes, libraries, reference)
    print_latency(times)
    if args.save:
        save_rows(best, libraries, scores, times, len(reference), args)


def main():
    parser = argparse.ArgumentParser(description=__doc__.split("\n", maxsplit=1)[0])
    parser.add_argument("model", nargs="?", type=Path, help="a model folder")
    data = Path(os.environ.get("REGARD_DATA", ".")) / "multi30k"
    parser.add_argument("--file", type=Path, default=data / "test_2016_flickr.en")
    parser.add_argument("--reference", type=Path, default=data / "test_2016_flickr.de")
    parser.add_argument("--greedy", action="store_true", help="greedy search instead of beam size 4")
    parser.add_argument("--rounds", type=int, default=3)
    parser.add_argument("--threads", type=int, default=2)
    parser.add_argument("--save", action="store_true", help="save the rows in benchmarks/results")
    parser.add_argument("--worker", help=argparse.SUPPRESS)
    args = parser.parse_args()
    if args.worker:
        name, *arguments = json.loads(args.worker)
        WORKERS[name](*(int(argument) if argument.isdigit() else argument for argument in arguments))
        return
    if args.model is None:
        parser.error("MODEL is required")
    os.environ["OMP_NUM_THREADS"] = str(args.threads)  # for the backend processes
    with tempfile.TemporaryDirectory() as folder:
        compare(args, Path(folder))


if __name__ == "__main__":
    main()
