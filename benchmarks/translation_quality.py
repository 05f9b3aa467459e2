"""Translation quality: BLEU (lowercased and cased) and chrF of runs of the same recipe with different seeds.

    REGARD_DATA=… python benchmarks/translation_quality.py runs/1/best runs/2/best runs/3/best             # on val
    REGARD_DATA=… python benchmarks/translation_quality.py runs/1/best runs/2/best runs/3/best --test      # only then

Multi30k, English to German, sacreBLEU on detokenized text. Choose recipes, beams and penalties on `val`; note every run
with --test and --save, whatever the result: it is logged on the benchmarks page.
"""

import argparse
import os
import statistics
import time
from pathlib import Path

import sacrebleu
import torch
from result_rows import ResultRows

import regard


def main():
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("model", nargs="+", type=Path, help="a model folder")
    parser.add_argument("--test", action="store_true", help="evaluate on test_2016_flickr instead of val")
    parser.add_argument("--beam", type=int, default=5)
    parser.add_argument("--length-penalty", type=float, default=1.0, help="score: log-probability / length^penalty")
    parser.add_argument("--precision", choices=("float32", "int8"), default="float32")
    parser.add_argument("--save", action="store_true", help="save the rows in benchmarks/results")
    args = parser.parse_args()
    data = Path(os.environ["REGARD_DATA"]) / "multi30k"
    name = "test_2016_flickr" if args.test else "val"
    source, target = ((data / f"{name}.{side}").read_text().splitlines() for side in ("en", "de"))
    metrics = {
        "BLEU, lowercased": sacrebleu.BLEU(lowercase=True),
        "BLEU": sacrebleu.BLEU(),
        "chrF": sacrebleu.CHRF(),
    }
    print(
        f"{name}, {len(source):,} sentences, beam {args.beam}, length penalty {args.length_penalty}, {args.precision}\n"
    )
    print(f"| model | parameters | {' | '.join(metrics)} | seconds |\n| --- {'| --- ' * (len(metrics) + 2)}|")
    scores = {metric: [] for metric in metrics}
    rows = ResultRows("translation_quality", threads=torch.get_num_threads(), packages=("torch", "sacrebleu"))
    for folder in args.model:
        model = regard.load(folder, precision=args.precision)
        num_parameters = sum(value.numel() for value in regard.load(folder).network.parameters())
        start = time.perf_counter()
        results = model.translate(source, beam=args.beam, length_penalty=args.length_penalty)
        translations = [result.text for result in results]
        seconds = time.perf_counter() - start
        for metric, scorer in metrics.items():
            scores[metric].append(scorer.corpus_score(translations, [target]).score)
        cells = " | ".join(f"{values[-1]:.2f}" for values in scores.values())
        print(f"| {folder} | {num_parameters:,} | {cells} | {seconds:.0f} |", flush=True)
        settings = f"beam {args.beam}, penalty {args.length_penalty}, {args.precision}"
        what = f"Multi30k en-de, {name}, {folder.parent.name}, {settings}"
        note = ", ".join(f"{metric} {values[-1]:.2f}" for metric, values in list(scores.items())[1:])
        lowercased = scores["BLEU, lowercased"][-1]
        rows.add(
            "test-set" if args.test else "quality",
            what,
            "BLEU, lowercased",
            ours=lowercased,
            better="higher",
            note=note,
        )
    if args.save:
        rows.save()
    if len(args.model) > 1:
        cells = " | ".join(f"{statistics.mean(v):.2f} ± {statistics.stdev(v):.2f}" for v in scores.values())
        print(f"| mean ± standard deviation | | {cells} | |")
    print("\n" + "\n".join(f"{metric}: {scorer.get_signature()}" for metric, scorer in metrics.items()))


if __name__ == "__main__":
    main()
