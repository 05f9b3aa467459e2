"""Writing against transformers, side by side in one run: greedy and with beams, one text at a time and sixteen.

    python benchmarks/generate.py              # Marian's base size and GPT-2's small one, random weights
    python benchmarks/generate.py --quick      # fewer texts, one round

Both sides have the same weights and the same texts, of the lengths of real sentences (REGARD_DATA, or a like
distribution). Random weights end no text by themselves, so a rule on both sides ends each at the length that the second
token of its target (the first of its prompt) stands for. What was written is compared before anything counts: texts
that differ are counted and printed. transformers gets batches that are sorted by length, which is its best case.
"""

import argparse
import os
import platform
import random
import tempfile
import time
from pathlib import Path

import torch
import transformers
from core import lengths

from regard.checkpoint.load import load
from regard.generation import AtOnce, Beam, Given, Greedy, Settings, generate

END, START, MARKER = 0, 58100, 1000
MARIAN = transformers.MarianConfig(
    vocab_size=58101, d_model=512, encoder_layers=6, decoder_layers=6, encoder_attention_heads=8,
    decoder_attention_heads=8, encoder_ffn_dim=2048, decoder_ffn_dim=2048, activation_function="swish",
    scale_embedding=True, max_position_embeddings=512, pad_token_id=START, eos_token_id=END,
    decoder_start_token_id=START, forced_eos_token_id=None, bad_words_ids=None,
)  # fmt: skip
GPT2 = transformers.GPT2Config(pad_token_id=END, eos_token_id=END, bos_token_id=END)
SIZES = {"marian": (transformers.MarianMTModel, MARIAN), "gpt2": (transformers.GPT2LMHeadModel, GPT2)}


def texts(name, count):
    """Inputs with the lengths of real sentences, and how long each target is to become."""
    draw = random.Random(0)
    given = []
    for source, target in zip(lengths("en", count), lengths("de", count), strict=True):
        body = [draw.randrange(2000, 50000) for _ in range(source)]
        marker = MARKER + target
        given.append(Given([START, marker], [*body, END]) if name == "marian" else Given([marker, *body]))
    return given


def marker_at(name):
    return 1 if name == "marian" else 0


class TheirEnd(transformers.LogitsProcessor):
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
    """The end is certain where one token is left to write, and impossible before."""
    scores = scores.clone()
    last = left <= 1
    scores[~last, END] = -torch.inf
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
                logits_processor=transformers.LogitsProcessorList([TheirEnd(first, begin)]), **named,
            )  # fmt: skip
        for n, row in zip(numbers, output.tolist(), strict=True):
            written[n] = tuple(row[begin : begin + given[n].prompt[marker_at(name)] - MARKER])
    return written


def ours(name, network, given, beams, rows):
    settings = Settings(search=Beam(size=beams) if beams > 1 else Greedy(), end=[END], rules=[our_end(name)], limit=200)
    if rows == 1:
        return [next(generate(network, [text], settings, at_once=AtOnce(rows=beams))).tokens for text in given]
    return [result.tokens for result in generate(network, given, settings, at_once=AtOnce(rows=rows * beams))]


def timed(action):
    start = time.perf_counter()
    found = action()
    return time.perf_counter() - start, found


def compare(name, count, beams, rows, rounds):
    kind, config = SIZES[name]
    torch.manual_seed(0)
    model = kind(config).eval()
    with tempfile.TemporaryDirectory() as folder:
        model.save_pretrained(folder)
        network, _ = load(Path(folder))
    given = texts(name, count)
    few = given[:2]
    theirs(name, model, few, beams, rows), ours(name, network, few, beams, rows)
    best, spread = [float("inf")] * 2, [[], []]
    for _ in range(rounds):
        for side, run, what in ((0, theirs, model), (1, ours, network)):
            seconds, found = timed(lambda run=run, what=what: run(name, what, given, beams, rows))
            spread[side].append(seconds)
            best[side] = min(best[side], seconds)
            if side == 0:
                expected = found
        different = sum(one != other for one, other in zip(found, expected, strict=True))
        assert [len(one) for one in found] == [len(other) for other in expected], "not the same work"
    tokens = sum(map(len, expected))
    how = f"beam {beams}" if beams > 1 else "greedy"
    print(
        f"{name:7} {how:7} {rows:3} at once  {len(given):3} texts {tokens:5} tokens   theirs {best[0]:7.2f} s"
        f" ({tokens / best[0]:6.0f}/s)  ours {best[1]:7.2f} s ({tokens / best[1]:6.0f}/s)"
        f"  ratio {best[0] / best[1]:5.2f}   different {different}",
        flush=True,
    )


def main():
    parser = argparse.ArgumentParser(description=__doc__.split("\n", maxsplit=1)[0])
    parser.add_argument("--quick", action="store_true", help="fewer texts, one round")
    parser.add_argument("--only", choices=list(SIZES), help="one network")
    parser.add_argument("--threads", type=int, default=2)
    parser.add_argument("--rounds", type=int, default=3)
    options = parser.parse_args()
    torch.set_num_threads(options.threads)
    print(f"torch {torch.__version__}, transformers {transformers.__version__}, {platform.processor()},"
          f" {options.threads} threads, load {os.getloadavg()[0]:.1f}")  # fmt: skip
    transformers.logging.set_verbosity_error()
    rounds = 1 if options.quick else options.rounds
    for name in [options.only] if options.only else SIZES:
        for beams in (1, 4):
            for rows in (1, 16):
                count = (2 if rows == 1 else 16) if options.quick else (8 if rows == 1 else 64)
                compare(name, count, beams, rows, rounds)


if __name__ == "__main__":
    main()
