"""Speed beside other programs: training, decoding and encoding with 0, 1 and 2 competing processes, against peers.

    python benchmarks/busy.py                          # training against torch
    python benchmarks/busy.py --translator FOLDER --encoder FOLDER      # and a Marian folder, a BERT folder

A competing process is an endless loop of Python. The retention is the speed beside k of them divided by the speed
alone; that of regard is to be at least the peer's less 0.05. All run with the same number of threads, each in a process
of its own with a clean environment: torch and CTranslate2 wait in their own way. Peers alternate, best of several.

Peers: training: the same recipe in plain torch modules with the same optimizer, without the settings of regard (the
waiting policy is that of torch). Decoding: CTranslate2 with the same folder and beam. Encoding: transformers.
"""

import argparse
import json
import os
import subprocess
import sys
import time
from pathlib import Path

COLORS = ("red", "blue", "green", "white", "black", "brown", "yellow", "grey")
SENTENCES = [
    f"A man in a {color} shirt walks past {number} dogs on the street." for color in COLORS for number in range(2, 10)
]
SECONDS = 4.0
COMPETITOR = "while True: pass"
WAITING = ("OMP_WAIT_POLICY", "GOMP_SPINCOUNT", "KMP_BLOCKTIME")


def rate(run_once, seconds=SECONDS):
    """Units of work per second: `run_once` returns how many it did."""
    run_once()
    start, done = time.perf_counter(), 0
    while (elapsed := time.perf_counter() - start) < seconds:
        done += run_once()
    return done / elapsed


def training_step(fused):
    """A function that trains for one step and returns the number of its tokens."""
    import torch

    import regard
    from regard.training.modules.fused_modules import fuse_modules, lm_head_loss
    from regard.transformer.batch_layout import BatchLayout
    from regard.transformer.network import build

    network = build(regard.transformer_2017(vocabulary=4000, layers=(3, 3), model_dim=256, heads=4)).train()
    if fused:
        fuse_modules(network)
    optimizer = torch.optim.AdamW(network.parameters(), lr=1e-4, fused=True)
    lengths = [8 + row % 16 for row in range(96)]
    tokens, layout = torch.randint(4000, (sum(lengths),)), BatchLayout.of(lengths)

    def step():
        optimizer.zero_grad()
        if fused:
            hidden = network.without_head()(tokens, tokens, layout=layout, target_layout=layout).hidden
            loss = lm_head_loss(network.head, hidden, tokens)
        else:
            logits = network(tokens, tokens, layout=layout, target_layout=layout).logits
            loss = torch.nn.functional.cross_entropy(logits, tokens, reduction="sum")
        (loss / len(tokens)).backward()
        optimizer.step()
        return len(tokens)

    return step


def make_worker(name, folder):
    """Return the function that a worker repeats. regard is imported first, as its own commands do; for peers never."""
    match name:
        case "training regard":
            import regard

            return training_step(fused=True)
        case "training torch":
            import torch

            return training_step(fused=False)
        case "decoding regard":
            import regard

            model = regard.load(folder, precision="float32")
            return lambda: len(model.translate(SENTENCES, beam=4))
        case "decoding ctranslate2":
            import ctranslate2
            import transformers

            tokenizer = transformers.AutoTokenizer.from_pretrained(folder)
            converted = Path(folder).with_name(Path(folder).name + "-ctranslate2")
            if not converted.exists():
                ctranslate2.converters.TransformersConverter(folder).convert(str(converted))
            translator = ctranslate2.Translator(str(converted), intra_threads=int(os.environ["OMP_NUM_THREADS"]))
            source = [tokenizer.convert_ids_to_tokens(tokenizer.encode(text)) for text in SENTENCES]
            return lambda: len(translator.translate_batch(source, beam_size=4))
        case "encoding regard":
            import regard

            model = regard.load(folder, precision="float32")
            return lambda: len(model.embed(SENTENCES))
        case "encoding transformers":
            import torch
            import transformers

            tokenizer = transformers.AutoTokenizer.from_pretrained(folder)
            network = transformers.AutoModel.from_pretrained(folder).eval()

            @torch.inference_mode()
            def encode():
                batch = tokenizer(SENTENCES, return_tensors="pt", padding=True, truncation=True, max_length=128)
                return len(network(**batch).last_hidden_state)

            return encode
    raise ValueError(name)


def measure(name, folder, competitors, threads):
    """The speed of a worker beside a number of competing processes."""
    plain = {key: value for key, value in os.environ.items() if key not in WAITING}
    environment = {**plain, "OMP_NUM_THREADS": str(threads), "TOKENIZERS_PARALLELISM": "false"}
    busy = [subprocess.Popen([sys.executable, "-c", COMPETITOR]) for _ in range(competitors)]
    try:
        command = [sys.executable, __file__, "--worker", name, "--folder", str(folder)]
        done = subprocess.run(command, env=environment, capture_output=True, text=True, check=True)
    finally:
        for process in busy:
            process.kill()
            process.wait()
    return json.loads(done.stdout.splitlines()[-1])


def main():
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--translator", type=Path, help="Marian folder in the Hugging Face layout")
    parser.add_argument("--encoder", type=Path, help="BERT folder in the Hugging Face layout")
    parser.add_argument("--threads", type=int, default=2)
    parser.add_argument("--repeats", type=int, default=3)
    parser.add_argument("--worker", help=argparse.SUPPRESS)
    parser.add_argument("--folder", help=argparse.SUPPRESS)
    args = parser.parse_args()
    if args.worker:
        print(rate(make_worker(args.worker, args.folder)))
        return
    kinds = [("training", "torch", "", "tokens")]
    kinds += [("decoding", "ctranslate2", args.translator, "texts")] if args.translator else []
    kinds += [("encoding", "transformers", args.encoder, "texts")] if args.encoder else []
    print(f"load {os.getloadavg()[0]:.1f}, {args.threads} threads, best of {args.repeats}")
    print("| work | program | alone | beside 1 | beside 2 | retention 1 | retention 2 |")
    print("|---|---|---:|---:|---:|---:|---:|")
    for work, peer, folder, unit in kinds:
        best = {}
        for _ in range(args.repeats):
            for competitors in (0, 1, 2):
                for program in ("regard", peer):
                    speed = measure(f"{work} {program}", folder, competitors, args.threads)
                    best[program, competitors] = max(speed, best.get((program, competitors), 0.0))
        for program in ("regard", peer):
            quiet, one, two = (best[program, competitors] for competitors in (0, 1, 2))
            speeds = " | ".join(f"{speed:,.0f}" for speed in (quiet, one, two))
            print(f"| {work}, {unit}/s | {program} | {speeds} | {one / quiet:.2f} | {two / quiet:.2f} |")


if __name__ == "__main__":
    main()
