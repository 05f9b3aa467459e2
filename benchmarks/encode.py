"""Sentence embeddings compared with transformers and ONNX Runtime, in one run.

    python benchmarks/encode.py                                   # MiniLM's size, random weights, random tokens
    REGARD_DATA=… python benchmarks/encode.py --minilm FOLDER     # its real weights, real captions

64 sentences of 6 to 40 tokens are embedded: an encoder of 6 layers, 384, 12 heads, 1536 and a vocabulary of 30,522,
then the mean over real tokens, L2-normalized. The time is from lists of token ids to vectors; tokenization is not
included. All backends have the same weights and sentences, each in a separate process, and are timed alternately; the
minimum over the rounds is reported. Every backend gets the sentences sorted by length in batches of 8, 16, 32 and all
64, and is reported with its best batch size. Cosines are with the vectors of transformers in float32.

ONNX Runtime is used as its documentation recommends for BERT: the exported network with fused attention, norms and
activations (onnxruntime.transformers.optimizer), all graph optimizations, and for int8 quantize_dynamic per channel,
with seven bits on machines without VNNI, where eight would overflow. If it is not installed (pip install onnx
onnxruntime), the other backends are compared without it.
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

from result_rows import ResultRows

NUM_SENTENCES, MIN_LENGTH, MAX_LENGTH = 64, 6, 40
BATCH_SIZES = (8, 16, 32, 64)
CLS, SEP, PAD, VOCAB_SIZE = 101, 102, 0, 30522
ONNX = ("ONNX Runtime float32", "ONNX Runtime int8")
BACKENDS = ("transformers", *ONNX, "regard eager", "regard float32", "regard int8")
GOALS = {"transformers": 4.0, "ONNX Runtime int8": 1.5}
MIN_COSINE = 0.995


def random_sentences():
    """Sentences of random tokens, with uniformly distributed lengths."""
    rng = random.Random(0)
    lengths = [rng.randint(MIN_LENGTH, MAX_LENGTH) for _ in range(NUM_SENTENCES)]
    return [[CLS, *(rng.randrange(2000, VOCAB_SIZE) for _ in range(length - 2)), SEP] for length in lengths]


def caption_tokens(file, folder):
    """Captions with the same distribution of lengths, encoded with the model's tokenizer."""
    from tokenizers import Tokenizer

    tokenizer = Tokenizer.from_file(str(folder / "tokenizer.json"))
    tokenizer.no_padding(), tokenizer.no_truncation()
    lines = file.read_text(encoding="utf-8").splitlines()
    lines = random.Random(0).sample(lines, min(8000, len(lines)))
    encodings = tokenizer.encode_batch(lines)
    candidates = [encoding.ids for encoding in encodings if MIN_LENGTH <= len(encoding.ids) <= MAX_LENGTH]
    sentences = []
    for length in map(len, random_sentences()):  # a caption of this length, or of the nearest
        nearest = min(range(len(candidates)), key=lambda n: abs(len(candidates[n]) - length))
        sentences.append(candidates.pop(nearest))
    return sentences


def write_models(folder, minilm, with_onnx):
    """Write the network for all backends, in the formats of transformers and of ONNX Runtime."""
    import torch
    import transformers

    transformers.utils.logging.disable_progress_bar()
    transformers.logging.set_verbosity_error()
    torch.manual_seed(0)
    if minilm:
        model = transformers.BertModel.from_pretrained(minilm, add_pooling_layer=False)
    else:
        config = transformers.BertConfig(
            hidden_size=384, num_hidden_layers=6, num_attention_heads=12, intermediate_size=1536, vocab_size=VOCAB_SIZE
        )
        model = transformers.BertModel(config, add_pooling_layer=False)
    model.eval().save_pretrained(folder)
    if with_onnx:
        model.set_attn_implementation("eager")  # the only one that ONNX Runtime can fuse
        export_onnx(model, folder)


def export_onnx(model, folder):
    """Write the network with pooling as ONNX files."""
    import logging
    import warnings

    import torch
    from onnx import TensorProto
    from onnxruntime.quantization import QuantType, quantize_dynamic
    from onnxruntime.transformers.optimizer import optimize_model

    class PooledModel(torch.nn.Module):
        def __init__(self):
            super().__init__()
            self.model = model

        def forward(self, input_ids, attention_mask):
            return mean_pool(self.model(input_ids, attention_mask).last_hidden_state, attention_mask)

    logging.disable(logging.WARNING)
    warnings.simplefilter("ignore")  # tracing warnings; the vectors are compared below
    tokens = torch.randint(1000, VOCAB_SIZE, (3, 9))
    mask = (torch.arange(9) < torch.tensor([9, 5, 7])[:, None]).long()
    axes = {0: "batch", 1: "length"}
    torch.onnx.export(
        PooledModel().eval(), (tokens, mask), folder / "plain.onnx", input_names=["tokens", "mask"], dynamo=False,
        output_names=["vectors"], dynamic_axes={"tokens": axes, "mask": axes, "vectors": {0: "batch"}},
        opset_version=17,
    )  # fmt: skip
    heads, width = model.config.num_attention_heads, model.config.hidden_size
    fused = optimize_model(
        str(folder / "plain.onnx"), model_type="bert", num_heads=heads, hidden_size=width, opt_level=0
    )
    fused.save_model_to_file(str(folder / "float32.onnx"))
    (folder / "fused.json").write_text(json.dumps(fused.get_fused_operator_statistics()))
    quantize_dynamic(
        folder / "float32.onnx", folder / "int8.onnx", per_channel=True, weight_type=QuantType.QInt8,
        reduce_range=not torch.cpu._is_vnni_supported(), extra_options={"DefaultTensorType": TensorProto.FLOAT},
    )  # fmt: skip


def mean_pool(hidden, mask):
    """The mean over real tokens, L2-normalized."""
    from torch.nn import functional

    mask = mask[:, :, None].to(hidden.dtype)
    return functional.normalize((hidden * mask).sum(dim=1) / mask.sum(dim=1), dim=-1)


def pad_batch(sentences):
    import numpy

    tokens = numpy.full((len(sentences), max(map(len, sentences))), PAD, dtype=numpy.int64)
    mask = numpy.zeros_like(tokens)
    for row, sentence in enumerate(sentences):
        tokens[row, : len(sentence)], mask[row, : len(sentence)] = sentence, 1
    return tokens, mask


def transformers_encoder(folder, _, threads):
    import torch
    import transformers

    transformers.utils.logging.disable_progress_bar()
    torch.set_num_threads(threads)
    model = transformers.BertModel.from_pretrained(folder, add_pooling_layer=False, attn_implementation="sdpa").eval()

    def encode(sentences):
        tokens, mask = map(torch.from_numpy, pad_batch(sentences))
        with torch.inference_mode():
            return mean_pool(model(tokens, mask).last_hidden_state, mask).numpy()

    return encode


def onnx_encoder(folder, precision, threads):
    import onnxruntime

    options = onnxruntime.SessionOptions()
    options.intra_op_num_threads, options.inter_op_num_threads = threads, 1
    options.graph_optimization_level = onnxruntime.GraphOptimizationLevel.ORT_ENABLE_ALL
    session = onnxruntime.InferenceSession(folder / f"{precision}.onnx", options, providers=["CPUExecutionProvider"])

    def encode(sentences):
        tokens, mask = pad_batch(sentences)
        return session.run(None, {"tokens": tokens, "mask": mask})[0]

    return encode


def regard_encoder(folder, precision, threads):
    import torch

    from regard.checkpoint.load import load
    from regard.engine import Precision, compile
    from regard.transformer.batch_layout import BatchLayout
    from regard.transformer.config import Pooling
    from regard.transformer.pooling import pool

    torch.set_num_threads(threads)
    network = load(folder, dtype=torch.float32)[0].eval()
    if precision != "eager":
        network = compile(network, Precision(precision))

    @torch.inference_mode()
    def encode(sentences):
        layout = BatchLayout.of([len(sentence) for sentence in sentences])
        tokens = torch.tensor([token for sentence in sentences for token in sentence])
        mean = pool(Pooling.MEAN, network(tokens, layout=layout).hidden, layout)
        return torch.nn.functional.normalize(mean, dim=-1).numpy()

    return encode


def encode_in_batches(encode, sentences, batch_size):
    """Embed all sentences in batches of similar lengths; return the vectors in the order of the sentences."""
    import numpy

    order = sorted(range(len(sentences)), key=lambda n: len(sentences[n]))
    starts = range(0, len(order), batch_size)
    vectors = [encode([sentences[n] for n in order[start : start + batch_size]]) for start in starts]
    return numpy.concatenate(vectors)[numpy.argsort(order)]


def worker(pipe, backend, folder, threads):
    """Serve the requests for one backend, in a separate process."""
    precision = backend.split()[-1]
    if backend == "transformers":
        make_encoder = transformers_encoder
    else:
        make_encoder = onnx_encoder if backend in ONNX else regard_encoder
    encode = make_encoder(folder, precision, threads)
    pipe.send("ready")
    while (request := pipe.recv()) is not None:
        start = time.perf_counter()
        vectors = encode_in_batches(encode, *request)
        pipe.send((time.perf_counter() - start, vectors))


class BackendProcess:
    def __init__(self, context, name, folder, threads):
        self.name = name
        self.pipe, worker_pipe = context.Pipe()
        self.process = context.Process(target=worker, args=(worker_pipe, name, folder, threads), daemon=True)
        self.process.start()
        worker_pipe.close()  # so that a crash of the worker raises EOFError here
        self.pipe.recv()

    def __call__(self, *request):
        time.sleep(0.05)  # until the threads of the previous backend have stopped spinning
        self.pipe.send(request)
        return self.pipe.recv()

    def end(self):
        self.pipe.send(None)
        self.process.join()


def compare(backends, sentences, rounds):
    """Best batch size of every backend, with its times and vectors."""
    times, vectors = {}, {}
    for round_ in range(rounds + 1):
        for backend in backends:
            for size in BATCH_SIZES:
                seconds, vectors[backend.name, size] = backend(sentences, size)
                if round_:  # round 0 is the warm-up
                    times.setdefault((backend.name, size), []).append(seconds)
    names = [backend.name for backend in backends]
    best = {name: min(BATCH_SIZES, key=lambda size, name=name: min(times[name, size])) for name in names}
    return {name: (size, sorted(times[name, size]), vectors[name, size]) for name, size in best.items()}


def save_rows(best, cosines, threads, packages, kind):
    """Save a row for each precision and peer."""
    rows = ResultRows("encode", threads=threads, packages=packages)
    for name, seconds in best.items():
        library, _, precision = name.partition(" ")
        for peer in ("transformers", f"ONNX Runtime {precision}") if library == "regard" else ():
            if peer in best:
                speeds = {"ours": NUM_SENTENCES / seconds, "peer": NUM_SENTENCES / best[peer]}
                what = f"{NUM_SENTENCES} {kind}, {precision}"
                rows.add("encoding", what, "sentences/s", **speeds, peer_name=peer, better="higher")
    for statistic, reduce in (("mean", "mean"), ("minimum", "min")):
        ours, *theirs = (
            float(getattr(cosines[name], reduce)()) for name in ("regard int8", ONNX[1]) if name in cosines
        )
        what = f"cosine of int8 to float32 vectors, {statistic}"
        peer = {"peer": theirs[0], "peer_name": ONNX[1]} if theirs else {}
        rows.add("encoding", what, "", ours=ours, **peer, better="higher")
    rows.save()


def print_results(results, tokens):
    expected = results["transformers"][2]
    best = {name: times[0] for name, (_, times, _) in results.items()}
    print("| | sentences/s | tokens/s | batch size | noise | speedup over transformers | over ONNX int8 "
          "| mean cosine | min cosine |")  # fmt: skip
    print("| --- | --- | --- | --- | --- | --- | --- | --- | --- |")
    cosines = {}
    for name, (size, times, vectors) in sorted(results.items(), key=lambda item: -item[1][1][0]):
        cosine = (vectors * expected).sum(axis=1)  # all vectors are normalized
        cosines[name] = cosine
        assert "int8" in name or cosine.min() > 0.9999, f"{name}: vectors differ, cosine {cosine.min():.5f}"
        ratios = [f"{best[peer] / times[0]:.2f}×" if peer in best else "" for peer in GOALS]
        noise = f"±{(times[1] / times[0] - 1) * 100:.0f}%" if len(times) > 1 else ""
        speeds = f"{NUM_SENTENCES / times[0]:,.0f} | {tokens / times[0]:,.0f}"
        cosine_cells = f"{cosine.mean():.4f} | {cosine.min():.4f}"
        print(f"| {name} | {speeds} | {size} | {noise} | {' | '.join(ratios)} | {cosine_cells} |")
    print()
    for peer, goal in GOALS.items():
        if peer in best:
            ratio = best[peer] / best["regard int8"]
            print(f"regard int8 to {peer}: {ratio:.2f}×, {'reached' if ratio >= goal else 'missed'} (goal {goal}×)")
    for statistic, cosine in (("mean", cosines["regard int8"].mean()), ("min", cosines["regard int8"].min())):
        verdict = "reached" if cosine >= MIN_COSINE else "missed"
        print(f"regard int8, {statistic} cosine: {cosine:.4f}, {verdict} (goal {MIN_COSINE})")
    return best, cosines


def main():
    parser = argparse.ArgumentParser(description=__doc__.split("\n", maxsplit=1)[0])
    folder = os.environ.get("REGARD_MINILM")
    parser.add_argument("--minilm", type=Path, default=folder and Path(folder), help="folder of the real weights")
    parser.add_argument("--rounds", type=int, default=10)
    parser.add_argument("--threads", type=int, default=2)
    parser.add_argument("--save", action="store_true", help="save the rows in benchmarks/results")
    args = parser.parse_args()
    with_onnx = all(find_spec(name) for name in ("onnx", "onnxruntime"))
    os.environ["OMP_NUM_THREADS"] = str(args.threads)  # for the backend processes
    data = Path(os.environ.get("REGARD_DATA", "")) / "multi30k" / "train.en"
    real = bool(args.minilm) and data.is_file()
    sentences = caption_tokens(data, args.minilm) if real else random_sentences()
    libraries = ["torch", "transformers", *(("onnxruntime",) if with_onnx else ())]
    versions = ", ".join(f"{name} {version(name)}" for name in libraries)
    print(f"{versions}, Python {platform.python_version()}, {args.threads} threads, load {os.getloadavg()[0]:.1f}")
    context = multiprocessing.get_context("spawn")
    with tempfile.TemporaryDirectory() as work_dir:
        writer = context.Process(target=write_models, args=(Path(work_dir), args.minilm, with_onnx))
        writer.start(), writer.join()
        assert writer.exitcode == 0, "the network could not be written"
        if with_onnx:
            fused = json.loads((Path(work_dir) / "fused.json").read_text())
            print("ONNX Runtime, fused:", ", ".join(f"{n} {name}" for name, n in fused.items() if n))
        names = [name for name in BACKENDS if with_onnx or name not in ONNX]
        backends = [BackendProcess(context, name, Path(work_dir), args.threads) for name in names]
        results = compare(backends, sentences, args.rounds)
        for backend in backends:
            backend.end()
    lengths = [len(sentence) for sentence in sentences]
    weights = "MiniLM's weights" if args.minilm else "random weights"
    kind = "captions" if real else "sequences of random tokens"
    print(
        f"{weights}, {NUM_SENTENCES} {kind} of {min(lengths)} to {max(lengths)} tokens, {sum(lengths)} in all, ", end=""
    )
    print(f"best of {args.rounds}, load {os.getloadavg()[0]:.1f}\n")
    best, cosines = print_results(results, sum(lengths))
    if args.save:
        save_rows(best, cosines, args.threads, libraries, "captions" if real else "sequences of random tokens")


if __name__ == "__main__":
    main()
