"""How good translators are: BLEU without and with case, and chrF, of runs of the same recipe with different seeds.

    REGARD_DATA=… python benchmarks/translation_quality.py runs/1/best runs/2/best runs/3/best             # on val
    REGARD_DATA=… python benchmarks/translation_quality.py runs/1/best runs/2/best runs/3/best --test      # only then

Multi30k, English to German, sacreBLEU on the text as it is written. Recipes, beams and penalties are chosen on `val`;
each run with --test is to be noted in docs/results.md, whatever comes out.
"""

import argparse
import os
import statistics
import time
from pathlib import Path

import sacrebleu

import regard


def main():
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("model", nargs="+", type=Path, help="a model's folder")
    parser.add_argument("--test", action="store_true", help="measure on test_2016_flickr, not on val")
    parser.add_argument("--beam", type=int, default=5)
    parser.add_argument("--penalty", type=float, default=1.0, help="scores are divided by length to this power")
    parser.add_argument("--precision", choices=("fp32", "int8"), default="fp32")
    asked = parser.parse_args()
    place = Path(os.environ["REGARD_DATA"]) / "multi30k"
    name = "test_2016_flickr" if asked.test else "val"
    source, target = ((place / f"{name}.{side}").read_text().splitlines() for side in ("en", "de"))
    measures = {
        "BLEU, lowercased": sacrebleu.BLEU(lowercase=True),
        "BLEU": sacrebleu.BLEU(),
        "chrF": sacrebleu.CHRF(),
    }
    print(f"{name}, {len(source):,} sentences, beam {asked.beam}, length penalty {asked.penalty}, {asked.precision}\n")
    print(f"| model | parameters | {' | '.join(measures)} | seconds |\n| --- {'| --- ' * (len(measures) + 2)}|")
    found = {measure: [] for measure in measures}
    for folder in asked.model:
        model = regard.load(folder, precision=asked.precision)
        count = sum(value.numel() for value in regard.load(folder).network.parameters())
        start = time.perf_counter()
        said = [one.text for one in model.translate(source, beam=asked.beam, length_penalty=asked.penalty)]
        seconds = time.perf_counter() - start
        for measure, score in measures.items():
            found[measure].append(score.corpus_score(said, [target]).score)
        scores = " | ".join(f"{scores[-1]:.2f}" for scores in found.values())
        print(f"| {folder} | {count:,} | {scores} | {seconds:.0f} |", flush=True)
    if len(asked.model) > 1:
        spread = " | ".join(
            f"{statistics.mean(scores):.2f} ± {statistics.stdev(scores):.2f}" for scores in found.values()
        )
        print(f"| mean ± deviation | | {spread} | |")
    print("\n" + "\n".join(f"{measure}: {score.get_signature()}" for measure, score in measures.items()))


if __name__ == "__main__":
    main()
