"""Sentence vectors against transformers and ONNX Runtime, side by side in one run.

    python benchmarks/encode.py                          # MiniLM's size, random weights, random tokens
    REGARD_DATA=… python benchmarks/encode.py --minilm FOLDER     # its real weights, real captions

64 sentences of 6 to 40 tokens become vectors: an encoder of 6 layers, 384, 12 heads, 1536 and a vocabulary of 30,522,
the mean over real tokens, divided by its length. From lists of tokens to vectors; making the tokens is nobody's work
here. All sides have the same weights and sentences, each in a process of its own, and take turns; the best of the
rounds counts. Every side gets the sentences sorted by length, in groups of 8, 16, 32 and all 64, and is told with the
size that is best for it. Cosines are to what transformers gives in float32.

ONNX Runtime gets what its documentation advises for BERT: the exported network with its attention, norms and
activations fused (onnxruntime.transformers.optimizer), all optimisations of graphs, and for int8 quantize_dynamic for
every output channel, with seven bits on machines without VNNI, where eight would overflow. Where it is not installed
(pip install onnx onnxruntime) the others are compared without it.
"""

import argparse
import json
import multiprocessing
import os
import platform
import random
import tempfile
import time
from importlib.metadata import version
from importlib.util import find_spec
from pathlib import Path

COUNT, SHORTEST, LONGEST = 64, 6, 40
GROUPS = (8, 16, 32, 64)
FIRST, LAST, PADDING, VOCABULARY = 101, 102, 0, 30522
ONNX = ("ONNX Runtime fp32", "ONNX Runtime int8")
SIDES = ("transformers", *ONNX, "regard, plain", "regard fp32", "regard int8")
GOALS = {"transformers": 4.0, "ONNX Runtime int8": 1.5}
COSINE = 0.995


def drawn():
    """Sentences of random tokens, all lengths alike."""
    draw = random.Random(0)
    lengths = [draw.randint(SHORTEST, LONGEST) for _ in range(COUNT)]
    return [[FIRST, *(draw.randrange(2000, VOCABULARY) for _ in range(length - 2)), LAST] for length in lengths]


def captions(file, folder):
    """Captions with the same lengths, as the model's own tokenizer reads them."""
    from tokenizers import Tokenizer

    tokenizer = Tokenizer.from_file(str(folder / "tokenizer.json"))
    tokenizer.no_padding(), tokenizer.no_truncation()
    lines = file.read_text(encoding="utf-8").splitlines()
    lines = random.Random(0).sample(lines, min(8000, len(lines)))
    known = [encoded.ids for encoded in tokenizer.encode_batch(lines) if SHORTEST <= len(encoded.ids) <= LONGEST]
    found = []
    for length in map(len, drawn()):  # one of the length that was drawn, or the nearest
        found.append(known.pop(min(range(len(known)), key=lambda n: abs(len(known[n]) - length))))
    return found


def make(folder, minilm, with_onnx):
    """Write the network for all sides: as transformers has it, and as ONNX Runtime does."""
    import torch
    import transformers

    transformers.utils.logging.disable_progress_bar()
    transformers.logging.set_verbosity_error()
    torch.manual_seed(0)
    if minilm:
        model = transformers.BertModel.from_pretrained(minilm, add_pooling_layer=False)
    else:
        config = transformers.BertConfig(
            hidden_size=384, num_hidden_layers=6, num_attention_heads=12, intermediate_size=1536, vocab_size=VOCABULARY
        )
        model = transformers.BertModel(config, add_pooling_layer=False)
    model.eval().save_pretrained(folder)
    if with_onnx:
        model.set_attn_implementation("eager")  # which is what ONNX Runtime knows how to fuse
        export(model, folder)


def export(model, folder):
    """The network, pooling included, as files of ONNX."""
    import logging
    import warnings

    import torch
    from onnx import TensorProto
    from onnxruntime.quantization import QuantType, quantize_dynamic
    from onnxruntime.transformers.optimizer import optimize_model

    class Whole(torch.nn.Module):
        def __init__(self):
            super().__init__()
            self.model = model

        def forward(self, input_ids, attention_mask):
            return pooled(self.model(input_ids, attention_mask).last_hidden_state, attention_mask)

    logging.disable(logging.WARNING)
    warnings.simplefilter("ignore")  # of what tracing cannot see; the vectors are compared below
    tokens = torch.randint(1000, VOCABULARY, (3, 9))
    real = (torch.arange(9) < torch.tensor([9, 5, 7])[:, None]).long()
    axes = {0: "rows", 1: "places"}
    torch.onnx.export(
        Whole().eval(), (tokens, real), folder / "plain.onnx", input_names=["tokens", "real"], dynamo=False,
        output_names=["vectors"], dynamic_axes={"tokens": axes, "real": axes, "vectors": {0: "rows"}}, opset_version=17,
    )  # fmt: skip
    heads, width = model.config.num_attention_heads, model.config.hidden_size
    fused = optimize_model(
        str(folder / "plain.onnx"), model_type="bert", num_heads=heads, hidden_size=width, opt_level=0
    )
    fused.save_model_to_file(str(folder / "fp32.onnx"))
    (folder / "fused.json").write_text(json.dumps(fused.get_fused_operator_statistics()))
    quantize_dynamic(
        folder / "fp32.onnx", folder / "int8.onnx", per_channel=True, weight_type=QuantType.QInt8,
        reduce_range=not torch.cpu._is_vnni_supported(), extra_options={"DefaultTensorType": TensorProto.FLOAT},
    )  # fmt: skip


def pooled(hidden, real):
    """The mean over real tokens, of length 1."""
    from torch.nn import functional

    real = real[:, :, None].to(hidden.dtype)
    return functional.normalize((hidden * real).sum(dim=1) / real.sum(dim=1), dim=-1)


def padded(sentences):
    import numpy

    tokens = numpy.full((len(sentences), max(map(len, sentences))), PADDING, dtype=numpy.int64)
    real = numpy.zeros_like(tokens)
    for row, sentence in enumerate(sentences):
        tokens[row, : len(sentence)], real[row, : len(sentence)] = sentence, 1
    return tokens, real


def theirs(folder, _, threads):
    import torch
    import transformers

    transformers.utils.logging.disable_progress_bar()
    torch.set_num_threads(threads)
    model = transformers.BertModel.from_pretrained(folder, add_pooling_layer=False, attn_implementation="sdpa").eval()

    def encode(sentences):
        tokens, real = map(torch.from_numpy, padded(sentences))
        with torch.inference_mode():
            return pooled(model(tokens, real).last_hidden_state, real).numpy()

    return encode


def onnx(folder, how, threads):
    import onnxruntime

    options = onnxruntime.SessionOptions()
    options.intra_op_num_threads, options.inter_op_num_threads = threads, 1
    options.graph_optimization_level = onnxruntime.GraphOptimizationLevel.ORT_ENABLE_ALL
    session = onnxruntime.InferenceSession(folder / f"{how}.onnx", options, providers=["CPUExecutionProvider"])

    def encode(sentences):
        tokens, real = padded(sentences)
        return session.run(None, {"tokens": tokens, "real": real})[0]

    return encode


def ours(folder, how, threads):
    import torch

    from regard.checkpoint.load import load
    from regard.engine import Precision, prepare
    from regard.transformer.batch_layout import Rows
    from regard.transformer.config import Pooling
    from regard.transformer.pooling import pool

    torch.set_num_threads(threads)
    network = load(folder, dtype=torch.float32)[0].eval()
    if how != "plain":
        network = prepare(network, Precision(how))

    @torch.inference_mode()
    def encode(sentences):
        rows = Rows.of([len(sentence) for sentence in sentences])
        tokens = torch.tensor([token for sentence in sentences for token in sentence])
        mean = pool(Pooling.MEAN, network(tokens, rows=rows).hidden, rows)
        return torch.nn.functional.normalize(mean, dim=-1).numpy()

    return encode


def in_groups(encode, sentences, size):
    """The vectors of all sentences, in their order, worked out in groups of like lengths."""
    import numpy

    order = sorted(range(len(sentences)), key=lambda n: len(sentences[n]))
    vectors = [encode([sentences[n] for n in order[at : at + size]]) for at in range(0, len(order), size)]
    return numpy.concatenate(vectors)[numpy.argsort(order)]


def work(pipe, side, folder, threads):
    """A process that does the work of one side, when it is asked to."""
    how = side.split()[-1]
    kind = theirs if side == "transformers" else onnx if side in ONNX else ours
    encode = kind(folder, how, threads)
    pipe.send("ready")
    while (asked := pipe.recv()) is not None:
        start = time.perf_counter()
        vectors = in_groups(encode, *asked)
        pipe.send((time.perf_counter() - start, vectors))


class Side:
    def __init__(self, context, name, folder, threads):
        self.name = name
        self.pipe, other = context.Pipe()
        self.process = context.Process(target=work, args=(other, name, folder, threads), daemon=True)
        self.process.start()
        other.close()  # so that a side that fails is noticed
        self.pipe.recv()

    def __call__(self, *asked):
        time.sleep(0.05)  # until the threads of the side before have stopped waiting for more work
        self.pipe.send(asked)
        return self.pipe.recv()

    def end(self):
        self.pipe.send(None)
        self.process.join()


def compare(everyone, sentences, rounds):
    """The times of every side for every size of groups, and its vectors with the size that is best for it."""
    times, vectors = {}, {}
    for round_ in range(rounds + 1):
        for side in everyone:
            for size in GROUPS:
                seconds, vectors[side.name, size] = side(sentences, size)
                if round_:  # the one before the first warms up
                    times.setdefault((side.name, size), []).append(seconds)
    best = {side.name: min(GROUPS, key=lambda size, name=side.name: min(times[name, size])) for side in everyone}
    return {name: (size, sorted(times[name, size]), vectors[name, size]) for name, size in best.items()}


def show(found, tokens):
    expected = found["transformers"][2]
    best = {name: times[0] for name, (_, times, _) in found.items()}
    print("| | sentences/s | tokens/s | groups of | noise | to transformers | to ONNX int8 | cosine, mean | least |")
    print("| --- | --- | --- | --- | --- | --- | --- | --- | --- |")
    cosines = {}
    for name, (size, times, vectors) in sorted(found.items(), key=lambda item: -item[1][1][0]):
        cosine = (vectors * expected).sum(axis=1)  # both are of length 1
        cosines[name] = cosine
        assert "int8" in name or cosine.min() > 0.9999, f"{name}: not the same vectors, cosine {cosine.min():.5f}"
        ratios = [f"{best[peer] / times[0]:.2f}×" if peer in best else "" for peer in GOALS]
        noise = f"±{(times[1] / times[0] - 1) * 100:.0f}%" if len(times) > 1 else ""
        numbers = f"{COUNT / times[0]:,.0f} | {tokens / times[0]:,.0f} | {size} | {noise} | {' | '.join(ratios)}"
        print(f"| {name} | {numbers} | {cosine.mean():.4f} | {cosine.min():.4f} |")
    print()
    for peer, goal in GOALS.items():
        if peer in best:
            ratio = best[peer] / best["regard int8"]
            print(f"regard int8 to {peer}: {ratio:.2f}×, {'reached' if ratio >= goal else 'missed'} (goal {goal}×)")
    for which, cosine in (("mean", cosines["regard int8"].mean()), ("least", cosines["regard int8"].min())):
        print(
            f"regard int8, {which} cosine: {cosine:.4f}, {'reached' if cosine >= COSINE else 'missed'} (goal {COSINE})"
        )


def main():
    parser = argparse.ArgumentParser(description=__doc__.split("\n", maxsplit=1)[0])
    folder = os.environ.get("REGARD_MINILM")
    parser.add_argument("--minilm", type=Path, default=folder and Path(folder), help="its folder, for real weights")
    parser.add_argument("--rounds", type=int, default=10)
    parser.add_argument("--threads", type=int, default=2)
    options = parser.parse_args()
    with_onnx = all(find_spec(name) for name in ("onnx", "onnxruntime"))
    os.environ["OMP_NUM_THREADS"] = str(options.threads)  # of the sides
    data = Path(os.environ.get("REGARD_DATA", "")) / "multi30k" / "train.en"
    real = bool(options.minilm) and data.is_file()
    sentences = captions(data, options.minilm) if real else drawn()
    names = ["torch", "transformers", *(("onnxruntime",) if with_onnx else ())]
    said = ", ".join(f"{name} {version(name)}" for name in names)
    print(f"{said}, Python {platform.python_version()}, {options.threads} threads, load {os.getloadavg()[0]:.1f}")
    context = multiprocessing.get_context("spawn")
    with tempfile.TemporaryDirectory() as place:
        maker = context.Process(target=make, args=(Path(place), options.minilm, with_onnx))
        maker.start(), maker.join()
        assert maker.exitcode == 0, "the network could not be written"
        if with_onnx:
            fused = json.loads((Path(place) / "fused.json").read_text())
            print("ONNX Runtime, fused:", ", ".join(f"{n} {name}" for name, n in fused.items() if n))
        sides = [side for side in SIDES if with_onnx or side not in ONNX]
        everyone = [Side(context, side, Path(place), options.threads) for side in sides]
        found = compare(everyone, sentences, options.rounds)
        for side in everyone:
            side.end()
    lengths = [len(sentence) for sentence in sentences]
    weights = "MiniLM's weights" if options.minilm else "random weights"
    kind = "captions" if real else "rows of random tokens"
    print(f"{weights}, {COUNT} {kind} of {min(lengths)} to {max(lengths)} tokens, {sum(lengths)} in all, ", end="")
    print(f"best of {options.rounds}, load {os.getloadavg()[0]:.1f}\n")
    show(found, sum(lengths))


if __name__ == "__main__":
    main()
