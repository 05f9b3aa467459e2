"""Generation compared with transformers and CTranslate2, in one run: greedy and beam search, single and in batches.

    python benchmarks/generate.py              # Marian's base size and GPT-2 small, random weights
    python benchmarks/generate.py --quick      # fewer inputs, one round

All backends have the same weights and inputs, each in a separate process (the threads of two libraries in one process
slow each other down), and are timed alternately; the minimum over the rounds is reported. The generated tokens are
compared with those of transformers, and the number of different outputs is reported.

Real lengths: inputs with the lengths of real sentences (REGARD_DATA, or a similar distribution). Random weights never
generate EOS, so a logits processor on both sides forces it at the length that a marker token encodes: the second token
of the target, or the first of the prompt. transformers gets batches that are sorted by length, which is its best case.

Fixed lengths: 16 sources of 24 tokens with 32 new tokens each; prompts of 16 tokens with 48 new ones. CTranslate2 takes
part if it is installed; it has no custom logits processors, so it is compared with fixed lengths only.
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
from lengths import sentence_lengths
from result_rows import ResultRows

from regard.checkpoint.load import load
from regard.engine import Precision, compile
from regard.generation import BatchSize, BeamSearch, DecodingOptions, GreedySearch, Inputs, MinNewTokens, generate

EOS, DECODER_START, MARKER = 0, 31999, 1000
NETWORKS = ("marian", "gpt2")
NEW_TOKENS = {"marian": 32, "gpt2": 48}
THREADS = 2
BACKENDS = ("transformers", "regard eager", "regard float32", "regard int8", "CTranslate2 float32", "CTranslate2 int8")
PEERS = ("transformers", "CTranslate2 float32", "CTranslate2 int8")
REAL, FIXED = 0, 1  # modes
TITLES = {"marian": "Marian base", "gpt2": "GPT-2 small"}


def model_class_and_config(name):
    """The class and the config of a network in transformers.

    Only the processes that need transformers import it: Python's garbage collector traverses all objects of a process
    from time to time.
    """
    import transformers

    if name == "gpt2":
        config = transformers.GPT2Config(pad_token_id=EOS, eos_token_id=EOS, bos_token_id=EOS)
        return transformers.GPT2LMHeadModel, config
    return transformers.MarianMTModel, transformers.MarianConfig(
        vocab_size=32000, d_model=512, encoder_layers=6, decoder_layers=6, encoder_attention_heads=8,
        decoder_attention_heads=8, encoder_ffn_dim=2048, decoder_ffn_dim=2048, activation_function="swish",
        scale_embedding=True, max_position_embeddings=512, pad_token_id=DECODER_START, eos_token_id=EOS,
        decoder_start_token_id=DECODER_START, forced_eos_token_id=None, bad_words_ids=None,
    )  # fmt: skip


def make_inputs(name, count):
    """Inputs with the lengths of real sentences, with a marker token for the length of each target."""
    rng = random.Random(0)
    inputs = []
    for source, target in zip(sentence_lengths("en", count), sentence_lengths("de", count), strict=True):
        body = [rng.randrange(2000, 30000) for _ in range(source)]
        marker = MARKER + target
        inputs.append(Inputs([DECODER_START, marker], [*body, EOS]) if name == "marian" else Inputs([marker, *body]))
    return inputs


def make_fixed_inputs(name, count):
    """Inputs of one length."""
    rng = random.Random(0)
    if name == "marian":
        return [Inputs([DECODER_START], [*(rng.randrange(2000, 30000) for _ in range(23)), EOS]) for _ in range(count)]
    return [Inputs([rng.randrange(2000, 30000) for _ in range(16)]) for _ in range(count)]


def marker_index(name):
    return 1 if name == "marian" else 0


class EndAtLengthProcessor:
    """Logits processor of transformers that ends every sequence at its length."""

    def __init__(self, marker_indices, prompt_length):
        self.marker_indices, self.prompt_length = marker_indices, prompt_length

    def __call__(self, input_ids, scores):
        indices = self.marker_indices.repeat_interleave(len(input_ids) // len(self.marker_indices))
        marker = input_ids.gather(1, indices[:, None])[:, 0]
        remaining = marker - MARKER - (input_ids.shape[1] - self.prompt_length)
        return force_end(scores, remaining)


def end_at_length(name):
    """Logits processor of regard that ends every sequence at its length."""
    index = marker_index(name)

    def processor(logits, sequences):
        remaining = [sequence.tokens[index] - MARKER - sequence.num_new_tokens for sequence in sequences]
        return force_end(logits, torch.tensor(remaining))

    return processor


def force_end(scores, remaining):
    """Force EOS where one token remains, and forbid it before. In place, for both libraries."""
    last = remaining <= 1
    scores[:, EOS].masked_fill_(~last, -torch.inf)
    if bool(last.any()):
        scores[last] = -torch.inf
        scores[last, EOS] = 0
    return scores


def run_transformers(name, model, inputs, beam_size, batch_size):
    """Generate with transformers, in batches sorted by length."""
    outputs = [()] * len(inputs)
    order = sorted(range(len(inputs)), key=lambda n: len(inputs[n].source or inputs[n].prompt))
    for start in range(0, len(order), batch_size):
        indices = order[start : start + batch_size]
        sequences = [inputs[n].source or inputs[n].prompt for n in indices]
        longest = max(map(len, sequences))
        tokens = torch.full((len(sequences), longest), DECODER_START if name == "marian" else EOS)
        mask = torch.zeros_like(tokens)
        for row, ids in enumerate(sequences):  # Marian is padded on the right, GPT-2 on the left
            columns = slice(0, len(ids)) if name == "marian" else slice(longest - len(ids), longest)
            tokens[row, columns], mask[row, columns] = torch.tensor(ids), 1
        if name == "marian":
            extra = {"decoder_input_ids": torch.tensor([inputs[n].prompt for n in indices])}
            marker_indices = torch.ones(len(sequences), dtype=torch.long)
            prompt_length = 2
        else:
            extra = {}
            marker_indices = torch.tensor([longest - len(ids) for ids in sequences])
            prompt_length = longest
        with torch.inference_mode():
            generated = model.generate(
                tokens, attention_mask=mask, num_beams=beam_size, do_sample=False, max_new_tokens=200,
                logits_processor=[EndAtLengthProcessor(marker_indices, prompt_length)], **extra,
            )  # fmt: skip
        for n, row in zip(indices, generated.tolist(), strict=True):
            length = inputs[n].prompt[marker_index(name)] - MARKER
            outputs[n] = tuple(row[prompt_length : prompt_length + length])
    return outputs


def run_regard(name, network, inputs, beam_size, batch_size):
    options = DecodingOptions(
        search=BeamSearch(beam=beam_size) if beam_size > 1 else GreedySearch(),
        eos_token_ids=[EOS],
        logits_processors=[end_at_length(name)],
        max_new_tokens=200,
    )
    return _generate(network, inputs, beam_size, batch_size, options)


def _generate(network, inputs, beam_size, batch_size, options):
    limit = BatchSize(sequences=batch_size * beam_size)
    if batch_size == 1:
        return [next(generate(network, [item], options, batch_size=limit)).tokens for item in inputs]
    return [result.tokens for result in generate(network, inputs, options, batch_size=limit)]


def run_transformers_fixed(name, model, inputs, beam_size, batch_size):
    outputs = []
    new_tokens = NEW_TOKENS[name]
    for start in range(0, len(inputs), batch_size):
        tokens = torch.tensor([list(item.source or item.prompt) for item in inputs[start : start + batch_size]])
        with torch.inference_mode():
            generated = model.generate(
                tokens, attention_mask=torch.ones_like(tokens), num_beams=beam_size, do_sample=False,
                min_new_tokens=new_tokens, max_new_tokens=new_tokens,
            )  # fmt: skip
        outputs += [tuple(row[-new_tokens:]) for row in generated.tolist()]
    return outputs


def run_regard_fixed(name, network, inputs, beam_size, batch_size):
    options = DecodingOptions(
        search=BeamSearch(beam=beam_size) if beam_size > 1 else GreedySearch(),
        eos_token_ids=[EOS],
        logits_processors=[MinNewTokens(NEW_TOKENS[name], [EOS])],
        max_new_tokens=NEW_TOKENS[name],
    )
    return _generate(network, inputs, beam_size, batch_size, options)


def convert_to_ctranslate2(name, weights, folder, quantization):
    """Write the same weights as a CTranslate2 model, whose vocabulary is the token ids."""
    from ctranslate2.converters.transformers import GPT2Loader, MarianMTLoader

    model = model_class_and_config(name)[0].from_pretrained(weights)
    loader = MarianMTLoader() if name == "marian" else GPT2Loader()
    spec = loader.get_model_spec(model)
    vocab = [str(token_id) for token_id in range(model.config.vocab_size)]
    if name == "marian":
        vocab.pop()  # padding, also the decoder start token: its embedding is zero, and CTranslate2 leaves it out
        spec.register_source_vocabulary(vocab)
        spec.register_target_vocabulary(vocab)
        spec.config.eos_token = str(EOS)
        spec.config.add_source_eos = False
    else:
        spec.register_vocabulary(vocab)
        spec.config.bos_token = spec.config.eos_token = spec.config.unk_token = str(EOS)
    spec.validate()
    spec.optimize(quantization=quantization)
    folder.mkdir()
    spec.save(str(folder))


def time_call(function):
    start = time.perf_counter()
    result = function()
    return time.perf_counter() - start, result


def save_model(name, folder):
    model_class, config = model_class_and_config(name)
    torch.manual_seed(0)
    model_class(config).eval().save_pretrained(folder)


def open_backend(name, backend, folder):
    """The two functions of a backend, for real and for fixed lengths."""
    library, _, precision = backend.partition(" ")
    if library == "transformers":
        import transformers

        transformers.logging.set_verbosity_error()
        model = model_class_and_config(name)[0].from_pretrained(folder).eval()
        return lambda *args: run_transformers(name, model, *args), lambda *args: run_transformers_fixed(
            name, model, *args
        )
    network = load(Path(folder), dtype=torch.float32)[0].eval()
    if precision != "eager":
        network = compile(network, Precision(precision))
    return lambda *args: run_regard(name, network, *args), lambda *args: run_regard_fixed(name, network, *args)


def worker(pipe, name, backend, folder):
    """Serve the requests for one backend, in a separate process."""
    torch.set_num_threads(THREADS)
    functions = open_backend(name, backend, folder)
    pipe.send([function is not None for function in functions])
    while (request := pipe.recv()) is not None:
        mode, *args = request
        pipe.send(time_call(lambda mode=mode, args=args: functions[mode](*args)))


class BackendProcess:
    """transformers or regard, in a separate process."""

    def __init__(self, context, name, backend, folder):
        self.name = backend
        self.pipe, worker_pipe = context.Pipe()
        self.process = context.Process(target=worker, args=(worker_pipe, name, backend, folder), daemon=True)
        self.process.start()
        self.supports = self.pipe.recv()

    def __call__(self, *request):
        self.pipe.send(request)
        return self.pipe.recv()

    def end(self):
        self.pipe.send(None)
        self.process.join()


class CTranslate2Process:
    """CTranslate2, in a process without torch. Without custom logits processors, it supports fixed lengths only."""

    supports = (False, True)

    def __init__(self, context, name, backend, folder):
        self.name, self.new_tokens, precision = backend, NEW_TOKENS[name], backend.partition(" ")[2]
        converted = Path(folder) / precision
        process = context.Process(target=convert_to_ctranslate2, args=(name, folder, converted, precision))
        process.start()
        process.join()
        script = Path(__file__).with_name("ctranslate.py")
        command = [sys.executable, str(script), str(converted), name, precision, str(THREADS)]
        self.process = subprocess.Popen(command, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True)

    def __call__(self, _, inputs, beam_size, batch_size):
        tokens = [list(item.source or item.prompt) for item in inputs]
        request = {"inputs": tokens, "beam_size": beam_size, "batch_size": batch_size, "new_tokens": self.new_tokens}
        self.process.stdin.write(json.dumps(request) + "\n")
        self.process.stdin.flush()
        seconds, outputs = json.loads(self.process.stdout.readline())
        return seconds, [tuple(tokens) for tokens in outputs]

    def end(self):
        self.process.stdin.close()
        self.process.wait()


def compare(name, backends, inputs, beam_size, batch_size, rounds, mode, results):
    best, outputs = {}, {}
    for _ in range(rounds):
        for backend in backends:
            if not backend.supports[mode]:
                continue
            if backend.name not in best:
                backend(mode, inputs[:2], beam_size, batch_size)  # warm-up
            seconds, outputs[backend.name] = backend(mode, inputs, beam_size, batch_size)
            best[backend.name] = min(best.get(backend.name, float("inf")), seconds)
    expected = outputs["transformers"]
    tokens = sum(map(len, expected))
    search = f"beam {beam_size}" if beam_size > 1 else "greedy"
    lengths = ("real lengths", "fixed lengths")[mode]
    print(f"\n{name}, {lengths}, {search}, batch size {batch_size}, {len(inputs)} inputs, {tokens} tokens, "
          f"load {load_average()}\n")  # fmt: skip
    print("| | tokens/s | speedup over transformers | over CTranslate2 float32 | over CTranslate2 int8 "
          "| different outputs |")  # fmt: skip
    print("| --- | --- | --- | --- | --- | --- |")
    for backend, seconds in sorted(best.items(), key=lambda item: -item[1]):
        lengths_match = list(map(len, outputs[backend])) == list(map(len, expected))
        assert lengths_match, f"{backend}: wrong number of generated tokens"
        ratios = [f"{best[peer] / seconds:.2f}" if peer in best else "" for peer in PEERS]
        different = sum(output != reference for output, reference in zip(outputs[backend], expected, strict=True))
        print(f"| {backend} | {tokens / seconds:.0f} | " + " | ".join(ratios) + f" | {different} |")
        library, _, precision = backend.partition(" ")
        batch = "one at a time" if batch_size == 1 else f"batch of {batch_size}"
        what = f"{TITLES[name]}, {lengths}, {search}, {batch}, {precision}"
        for peer in ("transformers", f"CTranslate2 {precision}") if library == "regard" else ():
            if peer in best:
                speeds = {"ours": tokens / seconds, "peer": tokens / best[peer]}
                note = f"{different} of {len(inputs)} outputs differ from transformers" if different else ""
                results.add("decoding", what, "tokens/s", **speeds, peer_name=peer, better="higher", note=note)
    print(end="", flush=True)


def load_average():
    return f"{os.getloadavg()[0]:.1f}"


def main():
    parser = argparse.ArgumentParser(description=__doc__.split("\n", maxsplit=1)[0])
    parser.add_argument("--quick", action="store_true", help="fewer inputs, one round")
    parser.add_argument("--only", choices=NETWORKS, help="one network")
    parser.add_argument("--lengths", choices=("real", "fixed"), help="only real or only fixed lengths")
    parser.add_argument("--rounds", type=int, default=3)
    parser.add_argument("--save", action="store_true", help="save the rows in benchmarks/results")
    args = parser.parse_args()
    with_ctranslate2 = find_spec("ctranslate2") is not None
    versions = f"torch {torch.__version__}, transformers {version('transformers')}"
    versions += f", CTranslate2 {version('ctranslate2')}" if with_ctranslate2 else ", without CTranslate2"
    print(f"{versions}, {torch.backends.cpu.get_cpu_capability()}, {THREADS} threads, load {load_average()}")
    rounds = 1 if args.quick else args.rounds
    os.environ["OMP_NUM_THREADS"] = str(THREADS)  # for the backend processes, the same for CTranslate2 and torch
    context = multiprocessing.get_context("spawn")
    packages = ("torch", "transformers", *(("ctranslate2",) if with_ctranslate2 else ()))
    results = ResultRows("generate", threads=THREADS, packages=packages)
    for name in [args.only] if args.only else NETWORKS:
        with tempfile.TemporaryDirectory() as folder:
            save_model(name, folder)
            names = [backend for backend in BACKENDS if with_ctranslate2 or not backend.startswith("CTranslate2")]
            backends = [
                (CTranslate2Process if backend.startswith("CTranslate2") else BackendProcess)(
                    context, name, backend, folder
                )
                for backend in names
            ]
            large = 16 if name == "marian" else 8
            for mode, lengths in ((REAL, "real"), (FIXED, "fixed")):
                if args.lengths not in (None, lengths):
                    continue
                for beam_size, batch_size in ((1, large), (4, large), (1, 1)):
                    if mode == FIXED or args.quick:
                        count = 4 if batch_size == 1 else large
                    else:
                        count = 8 if batch_size == 1 else 4 * large
                    inputs = make_fixed_inputs(name, count) if mode == FIXED else make_inputs(name, count)
                    compare(name, backends, inputs, beam_size, batch_size, rounds, mode, results)
            for backend in backends:
                backend.end()
    if args.save and not args.quick:
        results.save()


if __name__ == "__main__":
    main()
