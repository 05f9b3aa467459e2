"""Writing against transformers and CTranslate2, side by side in one run: greedy and with beams, single and in batches.

    python benchmarks/generate.py              # Marian's base size and GPT-2's small one, random weights
    python benchmarks/generate.py --quick      # fewer texts, one round

All sides have the same weights and the same texts, each in a process of its own (two libraries with threads in one
process get in each other's way), and take turns; the best of the rounds counts. What was written is compared with what
transformers wrote: texts that differ are counted and printed.

Real lengths: texts of the lengths of real sentences (REGARD_DATA, or a like distribution). Random weights end no text
by themselves, so a rule on both sides ends each at the length that the second token of its target (the first of its
prompt) stands for. transformers gets batches that are sorted by length, which is its best case.

Fixed lengths: 16 sources of 24 tokens and 32 new tokens of each; prompts of 16 tokens and 48 new ones. CTranslate2
takes part where it is installed; it knows no rules, so this is the work that it can be given too.
"""

import argparse
import json
import multiprocessing
import os
import random
import subprocess
import sys
import tempfile
import time
from importlib.metadata import version
from importlib.util import find_spec
from pathlib import Path

import torch
from lengths import lengths

from regard.checkpoint.load import load
from regard.engine import Precision, prepare
from regard.generation import AtOnce, Beam, Given, Greedy, MinLength, Settings, generate

END, START, MARKER = 0, 31999, 1000
NETWORKS = ("marian", "gpt2")


def sizes(name):
    """The class and the config of a network in transformers, which no side imports that does not need it: all that a
    process holds is looked through by Python's collector now and then."""
    import transformers

    if name == "gpt2":
        config = transformers.GPT2Config(pad_token_id=END, eos_token_id=END, bos_token_id=END)
        return transformers.GPT2LMHeadModel, config
    return transformers.MarianMTModel, transformers.MarianConfig(
        vocab_size=32000, d_model=512, encoder_layers=6, decoder_layers=6, encoder_attention_heads=8,
        decoder_attention_heads=8, encoder_ffn_dim=2048, decoder_ffn_dim=2048, activation_function="swish",
        scale_embedding=True, max_position_embeddings=512, pad_token_id=START, eos_token_id=END,
        decoder_start_token_id=START, forced_eos_token_id=None, bad_words_ids=None,
    )  # fmt: skip


def texts(name, count):
    """Inputs with the lengths of real sentences, and how long each target is to become."""
    draw = random.Random(0)
    given = []
    for source, target in zip(lengths("en", count), lengths("de", count), strict=True):
        body = [draw.randrange(2000, 30000) for _ in range(source)]
        marker = MARKER + target
        given.append(Given([START, marker], [*body, END]) if name == "marian" else Given([marker, *body]))
    return given


def marker_at(name):
    return 1 if name == "marian" else 0


class TheirEnd:
    """End every row at its length."""

    def __init__(self, at, begin):
        self.at, self.begin = at, begin

    def __call__(self, input_ids, scores):
        marker = input_ids.gather(1, self.at.repeat_interleave(len(input_ids) // len(self.at))[:, None])[:, 0]
        left = marker - MARKER - (input_ids.shape[1] - self.begin)
        return ended(scores, left)


def our_end(name):
    at = marker_at(name)

    def rule(logits, rows):
        return ended(logits, torch.tensor([row.tokens[at] - MARKER - row.length for row in rows]))

    return rule


def ended(scores, left):
    """The end is certain where one token is left to write, and impossible before. Written in place, on both sides."""
    last = left <= 1
    scores[:, END].masked_fill_(~last, -torch.inf)
    if bool(last.any()):
        scores[last] = -torch.inf
        scores[last, END] = 0
    return scores


def theirs(name, model, given, beams, rows):
    """transformers, in batches of so many texts, sorted by length."""
    written = [()] * len(given)
    order = sorted(range(len(given)), key=lambda n: len(given[n].source or given[n].prompt))
    for at in range(0, len(order), rows):
        numbers = order[at : at + rows]
        inputs = [given[n].source or given[n].prompt for n in numbers]
        longest = max(map(len, inputs))
        tokens = torch.full((len(inputs), longest), START if name == "marian" else END)
        real = torch.zeros_like(tokens)
        for row, ids in enumerate(inputs):  # Marian is padded on the right, GPT-2 on the left
            place = slice(0, len(ids)) if name == "marian" else slice(longest - len(ids), longest)
            tokens[row, place], real[row, place] = torch.tensor(ids), 1
        named = {}
        first = torch.tensor([longest - len(ids) for ids in inputs])
        if name == "marian":
            named = {"decoder_input_ids": torch.tensor([given[n].prompt for n in numbers])}
            first = torch.ones(len(inputs), dtype=torch.long)
        begin = 2 if name == "marian" else longest
        with torch.inference_mode():
            output = model.generate(
                tokens, attention_mask=real, num_beams=beams, do_sample=False, max_new_tokens=200,
                logits_processor=[TheirEnd(first, begin)], **named,
            )  # fmt: skip
        for n, row in zip(numbers, output.tolist(), strict=True):
            written[n] = tuple(row[begin : begin + given[n].prompt[marker_at(name)] - MARKER])
    return written


def ours(name, network, given, beams, rows):
    settings = Settings(search=Beam(size=beams) if beams > 1 else Greedy(), end=[END], rules=[our_end(name)], limit=200)
    return _ours(network, given, beams, rows, settings)


def _ours(network, given, beams, rows, settings):
    if rows == 1:
        return [next(generate(network, [text], settings, at_once=AtOnce(rows=beams))).tokens for text in given]
    return [result.tokens for result in generate(network, given, settings, at_once=AtOnce(rows=rows * beams))]


def fixed(name, count):
    """Inputs of one length."""
    draw = random.Random(0)
    if name == "marian":
        return [Given([START], [*(draw.randrange(2000, 30000) for _ in range(23)), END]) for _ in range(count)]
    return [Given([draw.randrange(2000, 30000) for _ in range(16)]) for _ in range(count)]


NEW = {"marian": 32, "gpt2": 48}


def theirs_fixed(name, model, given, beams, rows):
    written = []
    for at in range(0, len(given), rows):
        part = given[at : at + rows]
        tokens = torch.tensor([list(text.source or text.prompt) for text in part])
        with torch.inference_mode():
            output = model.generate(
                tokens, attention_mask=torch.ones_like(tokens), num_beams=beams, do_sample=False,
                min_new_tokens=NEW[name], max_new_tokens=NEW[name],
            )  # fmt: skip
        written += [tuple(row[-NEW[name] :]) for row in output.tolist()]
    return written


def ours_fixed(name, network, given, beams, rows):
    search = Beam(size=beams) if beams > 1 else Greedy()
    settings = Settings(search=search, end=[END], rules=[MinLength(NEW[name], [END])], limit=NEW[name])
    return _ours(network, given, beams, rows, settings)


def convert(name, weights, folder, quantization):
    """The same weights as CTranslate2 keeps them. Its words are the numbers of the tokens."""
    from ctranslate2.converters.transformers import GPT2Loader, MarianMTLoader

    model = sizes(name)[0].from_pretrained(weights)
    loader = MarianMTLoader() if name == "marian" else GPT2Loader()
    spec = loader.get_model_spec(model)
    words = [str(number) for number in range(model.config.vocab_size)]
    if name == "marian":
        words.pop()  # padding, which also starts a target: it is a vector of zeros, and CTranslate2 leaves it out
        spec.register_source_vocabulary(words)
        spec.register_target_vocabulary(words)
        spec.config.eos_token = str(END)
        spec.config.add_source_eos = False
    else:
        spec.register_vocabulary(words)
        spec.config.bos_token = spec.config.eos_token = spec.config.unk_token = str(END)
    spec.validate()
    spec.optimize(quantization=quantization)
    folder.mkdir()
    spec.save(str(folder))


def timed(action):
    start = time.perf_counter()
    found = action()
    return time.perf_counter() - start, found


THREADS = 2
SIDES = ("transformers", "regard, plain", "regard fp32", "regard int8", "CTranslate2 float32", "CTranslate2 int8")


def make(name, folder):
    kind, config = sizes(name)
    torch.manual_seed(0)
    kind(config).eval().save_pretrained(folder)


def opened(name, side, folder):
    """What one side has to call, with real lengths and with fixed ones."""
    library, _, how = side.partition(" ")
    if library == "transformers":
        import transformers

        transformers.logging.set_verbosity_error()
        model = sizes(name)[0].from_pretrained(folder).eval()
        return lambda *given: theirs(name, model, *given), lambda *given: theirs_fixed(name, model, *given)
    network = load(Path(folder), dtype=torch.float32)[0].eval()
    if how != "plain":
        network = prepare(network, Precision(how))
    return lambda *given: ours(name, network, *given), lambda *given: ours_fixed(name, network, *given)


def work(pipe, name, side, folder):
    """A process that does the work of one side, when it is asked to."""
    torch.set_num_threads(THREADS)
    parts = opened(name, side, folder)
    pipe.send([part is not None for part in parts])
    while (asked := pipe.recv()) is not None:
        which, *given = asked
        pipe.send(timed(lambda which=which, given=given: parts[which](*given)))


class Side:
    """One side, in a process of its own."""

    def __init__(self, context, name, side, folder):
        self.name = side
        self.pipe, other = context.Pipe()
        self.process = context.Process(target=work, args=(other, name, side, folder), daemon=True)
        self.process.start()
        self.can = self.pipe.recv()

    def __call__(self, *asked):
        self.pipe.send(asked)
        return self.pipe.recv()

    def end(self):
        self.pipe.send(None)
        self.process.join()


class CTranslate2Side:
    """CTranslate2, in a process without torch; it knows no rules, so fixed lengths are what it can be given."""

    can = (False, True)

    def __init__(self, context, name, side, folder):
        self.name, self.new, how = side, NEW[name], side.partition(" ")[2]
        converted = Path(folder) / how
        process = context.Process(target=convert, args=(name, folder, converted, how))
        process.start()
        process.join()
        command = [
            sys.executable,
            str(Path(__file__).with_name("ctranslate.py")),
            str(converted),
            name,
            how,
            str(THREADS),
        ]
        self.process = subprocess.Popen(command, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True)

    def __call__(self, _, given, beams, rows):
        texts = [list(text.source or text.prompt) for text in given]
        asked = {"texts": texts, "beams": beams, "rows": rows, "new": self.new}
        self.process.stdin.write(json.dumps(asked) + "\n")
        self.process.stdin.flush()
        seconds, written = json.loads(self.process.stdout.readline())
        return seconds, [tuple(tokens) for tokens in written]

    def end(self):
        self.process.stdin.close()
        self.process.wait()


def compare(name, everyone, given, beams, rows, rounds, which):
    best, written = {}, {}
    for _ in range(rounds):
        for side in everyone:
            if not side.can[which]:
                continue
            if side.name not in best:
                side(which, given[:2], beams, rows)
            seconds, written[side.name] = side(which, given, beams, rows)
            best[side.name] = min(best.get(side.name, float("inf")), seconds)
    expected = written["transformers"]
    tokens = sum(map(len, expected))
    how = f"beam {beams}" if beams > 1 else "greedy"
    kind = ("real lengths", "fixed lengths")[which]
    print(f"\n{name}, {kind}, {how}, {rows} at once, {len(given)} texts, {tokens} tokens, load {load_now()}\n")
    print("| | tokens/s | to transformers | to CTranslate2 fp32 | to its int8 | texts that differ |")
    print("| --- | --- | --- | --- | --- | --- |")
    for side, seconds in sorted(best.items(), key=lambda item: -item[1]):
        assert [len(one) for one in written[side]] == [len(other) for other in expected], f"{side}: not the same work"
        ratios = [f"{best[peer] / seconds:.2f}" if peer in best else "" for peer in PEERS]
        different = sum(one != other for one, other in zip(written[side], expected, strict=True))
        print(f"| {side} | {tokens / seconds:.0f} | " + " | ".join(ratios) + f" | {different} |")
    print(end="", flush=True)


def load_now():
    return f"{os.getloadavg()[0]:.1f}"


PEERS = ("transformers", "CTranslate2 float32", "CTranslate2 int8")


def main():
    parser = argparse.ArgumentParser(description=__doc__.split("\n", maxsplit=1)[0])
    parser.add_argument("--quick", action="store_true", help="fewer texts, one round")
    parser.add_argument("--only", choices=NETWORKS, help="one network")
    parser.add_argument("--lengths", choices=("real", "fixed"), help="one kind of lengths")
    parser.add_argument("--rounds", type=int, default=3)
    options = parser.parse_args()
    there = find_spec("ctranslate2") is not None
    versions = f"torch {torch.__version__}, transformers {version('transformers')}"
    versions += f", CTranslate2 {version('ctranslate2')}" if there else ", without CTranslate2"
    print(f"{versions}, {torch.backends.cpu.get_cpu_capability()}, {THREADS} threads, load {load_now()}")
    rounds = 1 if options.quick else options.rounds
    os.environ["OMP_NUM_THREADS"] = str(THREADS)  # of the processes to come: CTranslate2 and torch must not disagree
    context = multiprocessing.get_context("spawn")
    for name in [options.only] if options.only else NETWORKS:
        with tempfile.TemporaryDirectory() as folder:
            make(name, folder)
            sides = [side for side in SIDES if there or not side.startswith("CTranslate2")]
            everyone = [
                (CTranslate2Side if side.startswith("CTranslate2") else Side)(context, name, side, folder)
                for side in sides
            ]
            many = 16 if name == "marian" else 8
            for which, lengths_of in enumerate(("real", "fixed")):
                if options.lengths not in (None, lengths_of):
                    continue
                for beams, rows in ((1, many), (4, many), (1, 1)):
                    count = (4 if rows == 1 else many) if which or options.quick else (8 if rows == 1 else 4 * many)
                    given = fixed(name, count) if which else texts(name, count)
                    compare(name, everyone, given, beams, rows, rounds, which)
            for side in everyone:
                side.end()


if __name__ == "__main__":
    main()
