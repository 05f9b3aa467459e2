"""`regard vectors`: train word vectors, and use them: nearest words, analogies, standard tests, a picture."""

from __future__ import annotations

import json
import sys
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from regard.cli.help_format import DocumentedCommand
from regard.cli.vector_choices import VectorFormatName, VectorKind, WordTokens
from regard.progress import write_note

if TYPE_CHECKING:
    from regard.vectors.word_vectors import WordVectors

vectors = typer.Typer(
    name="vectors",
    help="Train word vectors (word2vec, GloVe, fastText), and use them.",
    no_args_is_help=True,
    rich_markup_mode=None,
)

VectorsFile = Annotated[Path, typer.Argument(help="Word vectors: word2vec text or binary, GloVe text, fastText .bin.")]
AsJson = Annotated[bool, typer.Option("--json", help="Print one JSON object per line.")]


@vectors.command("train", cls=DocumentedCommand)
def train(
    files: Annotated[list[Path], typer.Argument(help="Text files, one sentence per line (also .gz, .bz2, .xz).")],
    output: Annotated[
        Path, typer.Option("-o", "--output", help="Output file: text, or binary if the name ends in .bin.")
    ],
    kind: Annotated[VectorKind, typer.Option(help="The method.")] = VectorKind.skipgram,
    dim: Annotated[int, typer.Option(min=1, help="Numbers in a vector.")] = 100,
    window: Annotated[int | None, typer.Option(min=1, help="Largest distance of words. [5; GloVe: 10]")] = None,
    negative: Annotated[int | None, typer.Option(min=0, help="Negative samples. [5; 0 with --hierarchical]")] = None,
    hierarchical: Annotated[bool, typer.Option("--hierarchical", help="Hierarchical softmax.")] = False,
    ngrams: Annotated[str | None, typer.Option(metavar="3-6", help="Character n-grams (fastText).")] = None,
    buckets: Annotated[int, typer.Option(min=1, help="Vectors of n-grams.")] = 2_000_000,
    min_count: Annotated[int, typer.Option(min=1, help="Drop rarer words.")] = 5,
    max_vocabulary: Annotated[int | None, typer.Option(min=1, help="Keep only the most frequent words.")] = None,
    sample: Annotated[float, typer.Option(min=0, help="Subsampling of frequent words; 0: none.")] = 1e-4,
    phrases: Annotated[int, typer.Option(min=0, help="Passes that join frequent pairs: new_york.")] = 0,
    phrase_threshold: Annotated[float, typer.Option(help="Score that a pair needs.")] = 100.0,
    lr: Annotated[float, typer.Option(help="Learning rate at the start.")] = 0.05,
    epochs: Annotated[int | None, typer.Option(min=1, help="Passes over the text. [5; GloVe: 15]")] = None,
    x_max: Annotated[float, typer.Option(help="GloVe: counts above this have full weight.")] = 100.0,
    tokens: Annotated[WordTokens, typer.Option(help="Division of lines; `words` drops punctuation.")] = (
        WordTokens.whitespace
    ),
    lowercase: Annotated[bool, typer.Option("--lowercase", help="Lowercase the text.")] = False,
    threads: Annotated[int, typer.Option(min=1, help="Threads. One is deterministic.")] = 1,
    seed: Annotated[int, typer.Option(help="Seed of all random numbers.")] = 1,
    format: Annotated[VectorFormatName | None, typer.Option(help="Layout. [by the name of the output]")] = None,
) -> None:
    """Train word vectors on text files of any size."""
    from regard.vectors.train_vectors import train_files
    from regard.vectors.vector_files import VectorFormat, save
    from regard.vectors.vector_options import GloveOptions, Kind, TextOptions, Tokens, Word2VecOptions

    text = TextOptions(
        tokens=Tokens(tokens.value),
        lowercase=lowercase,
        min_count=min_count,
        max_vocabulary=max_vocabulary,
        phrases=phrases,
        phrase_threshold=phrase_threshold,
    )
    common: dict[str, Any] = dict(dim=dim, lr=lr, threads=threads, seed=seed)
    common |= {name: value for name, value in (("window", window), ("epochs", epochs)) if value is not None}
    if kind is VectorKind.glove:
        if hierarchical or ngrams or negative is not None:
            raise typer.BadParameter("GloVe has no --negative, --hierarchical or --ngrams")
        options: GloveOptions | Word2VecOptions = GloveOptions(x_max=x_max, **common)
    else:
        options = Word2VecOptions(
            kind=Kind(kind.value),
            negative=(0 if hierarchical else 5) if negative is None else negative,
            hierarchical_softmax=hierarchical,
            ngrams=_parse_ngrams(ngrams, buckets),
            sample=sample,
            min_lr=min(lr, 1e-4),
            **common,
        )
    trained = train_files(files, text, options, write_note)
    save(trained, output, VectorFormat(format.value) if format else None)
    sys.stdout.write(f"{output}\n")


@vectors.command("neighbours", cls=DocumentedCommand)
def neighbours(
    file: VectorsFile,
    words: Annotated[list[str], typer.Argument(help="Words.")],
    count: Annotated[int, typer.Option("-n", "--count", min=1, help="Words to print for each.")] = 10,
    as_json: AsJson = False,
) -> None:
    """Print the nearest words of words, with their cosine similarities."""
    loaded = _load(file)
    for word in words:
        _print_words({"word": word}, loaded.neighbours(word, count), as_json)


@vectors.command("analogy", cls=DocumentedCommand)
def analogy(
    file: VectorsFile,
    first: Annotated[str, typer.Argument(help="man")],
    second: Annotated[str, typer.Argument(help="king")],
    third: Annotated[str, typer.Argument(help="woman")],
    count: Annotated[int, typer.Option("-n", "--count", min=1, help="Words to print.")] = 5,
    as_json: AsJson = False,
) -> None:
    """Complete an analogy: FIRST is to SECOND as THIRD is to … (king - man + woman)."""
    _print_words({"analogy": [first, second, third]}, _load(file).analogy(first, second, third, count), as_json)


@vectors.command("evaluate", cls=DocumentedCommand)
def evaluate(
    file: VectorsFile,
    tests: Annotated[list[Path], typer.Argument(help="questions-words.txt, or pairs with similarities (WordSim353).")],
    restrict: Annotated[int, typer.Option(min=0, help="Analogies: known words; 0: all.")] = 30_000,
    case: Annotated[bool, typer.Option("--case", help="Case counts.")] = False,
    as_json: AsJson = False,
) -> None:
    """Answer analogy questions, or compare similarities with those of people; the protocol is printed."""
    loaded = _load(file)
    for test in tests:
        if _has_sections(test):
            _print_analogies(loaded, test, restrict or None, not case, as_json)
        else:
            _print_similarity(loaded, test, not case, as_json)


@vectors.command("plot", cls=DocumentedCommand)
def plot(
    file: VectorsFile,
    words: Annotated[list[str] | None, typer.Argument(help="Words to draw. [the most frequent]")] = None,
    output: Annotated[Path, typer.Option("-o", "--output", help="Output file: .svg or .png.")] = Path("vectors.svg"),
    count: Annotated[int, typer.Option("-n", "--count", min=2, help="Without words: how many.")] = 50,
) -> None:
    """Draw words in the two directions of largest variance (PCA)."""
    if output.suffix not in (".svg", ".png"):
        raise typer.BadParameter(f"{output}: the file name must end in .svg or .png")
    from regard.vectors.space_plot import plot_words

    loaded = _load(file)
    plot_words(loaded, words or loaded.words[:count], output)
    sys.stdout.write(f"{output}\n")


def _load(file: Path) -> WordVectors:
    from regard.vectors.vector_files import load

    return load(file)


def _parse_ngrams(text: str | None, buckets: int) -> Any:
    if text is None:
        return None
    from regard.vectors.vector_options import CharacterNgrams

    shortest, dash, longest = text.partition("-")
    if not (shortest.isdecimal() and (longest.isdecimal() or not dash)):
        raise typer.BadParameter(f"--ngrams {text}: expected two numbers, as in 3-6")
    return CharacterNgrams(shortest=int(shortest), longest=int(longest or shortest), buckets=buckets)


def _print_words(query: dict[str, Any], found: list[Any], as_json: bool) -> None:
    if as_json:
        result = [{"word": item.word, "score": round(item.score, 6)} for item in found]
        sys.stdout.write(json.dumps({**query, "neighbours": result}, ensure_ascii=False) + "\n")
        return
    if "word" in query:
        sys.stdout.write(f"{query['word']}:\n")
    for item in found:
        sys.stdout.write(f"  {item.word}\t{item.score:.4f}\n")


def _has_sections(test: Path) -> bool:
    from regard.files import read_text

    return any(line.startswith(":") for line in read_text(test).splitlines())


def _print_analogies(loaded: WordVectors, test: Path, restrict: int | None, lowercase: bool, as_json: bool) -> None:
    from regard.vectors.word_evaluation import evaluate_analogies

    scores = evaluate_analogies(loaded, test, restrict=restrict, lowercase=lowercase)
    parts = [*scores.sections, scores.semantic, scores.syntactic, scores.total]
    if as_json:
        result = {part.name: {"correct": part.correct, "total": part.total, "skipped": part.skipped} for part in parts}
        sys.stdout.write(json.dumps({"test": test.name, "protocol": scores.protocol, "analogies": result}) + "\n")
        return
    sys.stdout.write(f"{test.name}: {scores.protocol}\n")
    for part in parts:
        sys.stdout.write(
            f"  {part.name:32}{part.accuracy:7.2%}  ({part.correct:,} of {part.total:,}; {part.skipped:,} skipped)\n"
        )


def _print_similarity(loaded: WordVectors, test: Path, lowercase: bool, as_json: bool) -> None:
    from regard.vectors.word_evaluation import evaluate_similarity

    scores = evaluate_similarity(loaded, test, lowercase=lowercase)
    if as_json:
        result = {"spearman": scores.spearman, "pearson": scores.pearson, "total": scores.total}
        result |= {"skipped": scores.skipped}
        sys.stdout.write(json.dumps({"test": test.name, "protocol": scores.protocol, **result}) + "\n")
        return
    sys.stdout.write(
        f"{test.name}: {scores.protocol}\n"
        f"  Spearman {scores.spearman:.4f}, Pearson {scores.pearson:.4f} "
        f"({scores.total:,} pairs; {scores.skipped:,} skipped)\n"
    )
