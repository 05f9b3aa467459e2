"""A whole file, from process start to exit, against CTranslate2 and transformers, side by side in one run.

    REGARD_DATA=… python benchmarks/translate_file.py MODEL      # Multi30k's test_2016_flickr, English to German
    python benchmarks/translate_file.py MODEL --file texts.en --reference texts.de --greedy

MODEL is a folder that `regard train` made in the layout of Marian or of mBART (families "transformer", "marian" and
"mbart"). Every side is a process of its own that reads the tokenizer and the model, translates the file and writes the
lines: for us it is the command `regard translate`, for the others the short scripts below. Sides take turns, the best
of the rounds counts. The others are tried with 16, 32 and 64 sentences at once, sorted by length, and go on with
what is quickest for them. CTranslate2 runs without torch, which it does not need, and twice: with the products of
matrices that it chooses itself (oneDNN's on AMD's CPUs) and with Intel's (CT2_USE_MKL=1), with which its int8 has been
seen to translate much better on a CPU without VNNI; ratios are to the quicker. Converting a model, which is done once,
is not counted.

Then one sentence: the time from the start of the process to its translation, and that of `import torch`. Memory is the
most that a process ever held, and above that of one that only imports the same libraries.
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

AT_ONCE = (16, 32, 64)
LIMIT = 256
SENTENCE = "A man rides a horse."
REGARD = [sys.executable, "-c", "from regard.cli.main import main; main()"]
WITHOUT_TORCH = "import sys; sys.modules['torch'] = sys.modules['transformers'] = None; "
LIBRARIES = {
    "regard": "import torch, tokenizers, regard.model, regard.tasks.translate, regard.cli.translate",
    "CTranslate2": WITHOUT_TORCH + "import ctranslate2, tokenizers",
    "transformers": "import torch; from transformers import AutoTokenizer, MarianMTModel",
}
FLOAT32 = ("CTranslate2 float32", "CTranslate2 float32, MKL")
INT8 = ("CTranslate2 int8", "CTranslate2 int8, MKL")
PEERS = ("transformers", *FLOAT32, *INT8)
SIDES = (*PEERS, "regard fp32", "regard int8", "regard int8, its folder")


def transformers_side(folder, file, beams, at_once):
    """Translate the lines of a file as transformers' documentation has it."""
    import torch
    import transformers

    torch.set_num_threads(int(os.environ["OMP_NUM_THREADS"]))
    transformers.utils.logging.disable_progress_bar()
    transformers.logging.set_verbosity_error()
    tokenizer = transformers.AutoTokenizer.from_pretrained(folder)
    model = transformers.AutoModelForSeq2SeqLM.from_pretrained(folder).eval()
    texts = Path(file).read_text(encoding="utf-8").splitlines()
    written = [""] * len(texts)
    order = sorted(range(len(texts)), key=lambda n: len(texts[n]))
    for at in range(0, len(order), at_once):
        numbers = order[at : at + at_once]
        given = tokenizer([texts[n] for n in numbers], padding=True, return_tensors="pt")
        with torch.inference_mode():
            output = model.generate(
                given["input_ids"], attention_mask=given["attention_mask"], num_beams=beams, do_sample=False,
                max_new_tokens=LIMIT,
            )  # fmt: skip
        for n, text in zip(numbers, tokenizer.batch_decode(output, skip_special_tokens=True), strict=True):
            written[n] = text
    print("\n".join(written), flush=True)


def ctranslate_side(folder, file, beams, at_once):
    """Translate the lines of a file as CTranslate2's documentation has it. It sorts by length itself."""
    sys.modules["torch"] = sys.modules["transformers"] = None
    import ctranslate2
    from tokenizers import Tokenizer

    engine = ctranslate2.Translator(
        str(folder), device="cpu", compute_type="default", intra_threads=int(os.environ["OMP_NUM_THREADS"])
    )
    tokenizer = Tokenizer.from_file(str(Path(folder) / "tokenizer.json"))
    texts = Path(file).read_text(encoding="utf-8").splitlines()
    found = engine.translate_batch(
        [encoded.tokens for encoded in tokenizer.encode_batch(texts)], beam_size=beams, max_batch_size=at_once,
        max_decoding_length=LIMIT,
    )  # fmt: skip
    written = [[tokenizer.token_to_id(token) for token in one.hypotheses[0]] for one in found]
    print("\n".join(tokenizer.decode_batch(written)), flush=True)


def convert(folder, target, quantization):
    """The same model as CTranslate2 keeps it.

    Its own way of reading Marian expects the published models: padding as the last token, whose vector is cut off,
    and a target that begins with a vector of zeros. Ours have padding first and a start token with a vector that is
    learnt, so the loader of BART, on which it builds, is told what Marian has not and mBART has.
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
    spec.config.unk_token = tokenizer.unk_token or tokenizer.pad_token  # bytes leave nothing unknown
    spec.config.add_source_eos = False  # our tokenizer has done it
    loader.set_vocabulary(spec, loader.get_vocabulary(model, tokenizer))
    spec.validate()
    spec.optimize(quantization=quantization)
    Path(target).mkdir()
    spec.save(str(target))
    shutil.copyfile(Path(folder) / "tokenizer.json", Path(target) / "tokenizer.json")


CHILDREN = {"transformers": transformers_side, "ctranslate": ctranslate_side, "convert": convert}


def child(*given):
    return [sys.executable, __file__, "--child", json.dumps([str(part) for part in given])]


class Ran:
    """A process from its start to its exit: how long it took, when its first line came, what it held, what it wrote."""

    def __init__(self, command, settings=None):
        with tempfile.TemporaryFile() as errors:
            began = time.perf_counter()
            process = subprocess.Popen(
                [str(part) for part in command],
                stdout=subprocess.PIPE,
                stderr=errors,
                env={**os.environ, **(settings or {})},
            )
            first = process.stdout.readline()
            self.first = time.perf_counter() - began
            written = first + process.stdout.read()
            _, status, used = os.wait4(process.pid, 0)
            self.seconds = time.perf_counter() - began
            process.returncode = os.waitstatus_to_exitcode(status)
            process.stdout.close()
            if process.returncode:
                errors.seek(0)
                sys.exit(f"{' '.join(process.args)} failed:\n{errors.read().decode()[-3000:]}")
        self.memory = used.ru_maxrss / 1024
        self.lines = written.decode().splitlines()


class Sides:
    """How every side is run."""

    def __init__(self, model, place, file, beams):
        self.model, self.place, self.beams = model, place, beams
        for quantization in ("float32", "int8"):
            Ran(child("convert", model, place / quantization, quantization))
        self.rounding = place / "regard"
        told = subprocess.run(
            [*REGARD, "convert", model, self.rounding, "--precision", "int8", "--measure", file],
            check=True, capture_output=True, text=True,
        )  # fmt: skip
        self.loss = told.stderr.splitlines()[-1]

    def __call__(self, side, file, at_once):
        library, _, how = side.partition(" ")
        if library == "transformers":
            return Ran(child("transformers", self.model, file, self.beams, at_once))
        if library == "CTranslate2":
            settings = {"CT2_USE_MKL": "1"} if how.endswith("MKL") else {}
            return Ran(child("ctranslate", self.place / how.split(",")[0], file, self.beams, at_once), settings)
        own = how.endswith("folder")
        model, named = (self.rounding, []) if own else (self.model, ["--precision", how])
        return Ran([*REGARD, "translate", model, file, "--beam", self.beams, *named])


def measured(sides, file, rounds):
    """The best run of every side with the file, and how many sentences at once were best for it."""
    best, at_once = {}, {}
    for number in range(rounds):
        for name in SIDES:
            sizes = (at_once.get(name, 0),) if number or name not in PEERS else AT_ONCE
            for size in sizes:
                ran = sides(name, file, size)
                print(f"round {number + 1}, {name}{f', {size} at once' * bool(size)}: {ran.seconds:.2f} s", flush=True)
                if name not in best or ran.seconds < best[name].seconds:
                    best[name], at_once[name] = ran, size
    return best, at_once


def first_sentence(sides, place, rounds):
    """The best time to the first translation of every side, and that of `import torch`."""
    file = place / "sentence.txt"
    file.write_text(SENTENCE + "\n")
    best = {}
    for _ in range(rounds):
        seconds = {"import torch": Ran([sys.executable, "-c", "import torch"]).seconds}
        seconds |= {name: sides(name, file, 1).first for name in SIDES}
        best = {name: min(now, best.get(name, now)) for name, now in seconds.items()}
    return best


def show(best, at_once, libraries, reference):
    from sacrebleu.metrics import BLEU  # here, so that what this process holds is not counted as its children's

    expected = best["transformers"].lines
    peers = [min(best[name].seconds for name in names) for names in (("transformers",), FLOAT32, INT8)]
    print("\n| | s | to transformers | to CTranslate2 float32 | to its int8 | at once | peak MB | above libraries MB "
          "| BLEU | lowercased | lines unlike transformers' |")  # fmt: skip
    print("| --- | --- | --- | --- | --- | --- | --- | --- | --- | --- | --- |")
    scores = {}
    for name, ran in sorted(best.items(), key=lambda item: -item[1].seconds):
        assert len(ran.lines) == len(expected), f"{name}: {len(ran.lines)} lines, not {len(expected)}"
        scores[name] = [BLEU(lowercase=lower).corpus_score(ran.lines, [reference]).score for lower in (False, True)]
        ratios = " | ".join(f"{peer / ran.seconds:.2f}×" for peer in peers)
        memory = f"{ran.memory:,.0f} | {ran.memory - libraries[name.split()[0]]:,.0f}"
        unlike = sum(one != other for one, other in zip(ran.lines, expected, strict=True))
        numbers = f"{ran.seconds:.2f} | {ratios} | {at_once[name] or ''} | {memory}"
        print(f"| {name} | {numbers} | {scores[name][0]:.2f} | {scores[name][1]:.2f} | {unlike} |")
    print()
    for name in ("regard int8", "regard int8, its folder"):
        away = scores[name][0] - scores["regard fp32"][0]
        print(f"{name}: BLEU {away:+.2f} to fp32, {'reached' if away >= -0.2 else 'missed'} (goal: at most 0.2 lower)")
        above, *others = (best[side].memory - libraries[side.split()[0]] for side in (name, *INT8))
        peer = min(others)
        print(f"{name}: {above:,.0f} MB above the libraries, {'reached' if above <= peer else 'missed'} "
              f"(goal: CTranslate2's, {peer:,.0f})")  # fmt: skip


def show_first(times):
    print("\n| from the start of the process | s | to `import torch` |\n| --- | --- | --- |")
    for name, seconds in times.items():
        print(f"| {name} | {seconds:.2f} | {seconds / times['import torch']:.2f}× |")
    print("(goal: at most 1.3×)")


def compare(options, place):
    said = ", ".join(f"{name} {version(name)}" for name in ("torch", "transformers", "ctranslate2", "sacrebleu"))
    print(f"{said}, Python {platform.python_version()}, {options.threads} threads, load {os.getloadavg()[0]:.1f}")
    reference = options.reference.read_text(encoding="utf-8").splitlines()
    size = (options.model / "model.safetensors").stat().st_size / 2**20
    how = "greedy" if options.greedy else "beam 4"
    print(f"{options.model.name} ({size:.0f} MB), {options.file.name}: {len(reference)} lines, {how}", flush=True)
    sides = Sides(options.model, place, options.file, 1 if options.greedy else 4)
    print(sides.loss)
    libraries = {name: Ran([sys.executable, "-c", code]).memory for name, code in LIBRARIES.items()}
    times = first_sentence(sides, place, max(3, options.rounds))
    best, at_once = measured(sides, options.file, options.rounds)
    print(f"load {os.getloadavg()[0]:.1f}; libraries alone, MB:", end=" ")
    print(", ".join(f"{name} {held:,.0f}" for name, held in libraries.items()))
    show(best, at_once, libraries, reference)
    show_first(times)


def main():
    parser = argparse.ArgumentParser(description=__doc__.split("\n", maxsplit=1)[0])
    parser.add_argument("model", nargs="?", type=Path)
    data = Path(os.environ.get("REGARD_DATA", ".")) / "multi30k"
    parser.add_argument("--file", type=Path, default=data / "test_2016_flickr.en")
    parser.add_argument("--reference", type=Path, default=data / "test_2016_flickr.de")
    parser.add_argument("--greedy", action="store_true", help="instead of a beam of 4")
    parser.add_argument("--rounds", type=int, default=3)
    parser.add_argument("--threads", type=int, default=2)
    parser.add_argument("--child", help=argparse.SUPPRESS)
    options = parser.parse_args()
    if options.child:
        which, *given = json.loads(options.child)
        CHILDREN[which](*(int(part) if part.isdigit() else part for part in given))
        return
    if options.model is None:
        parser.error("which MODEL?")
    os.environ["OMP_NUM_THREADS"] = str(options.threads)  # before any of them starts
    with tempfile.TemporaryDirectory() as folder:
        compare(options, Path(folder))


if __name__ == "__main__":
    main()
