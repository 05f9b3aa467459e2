"""From the files of a recipe to batches: the tokenizer, the labels, the encoded corpora."""

from __future__ import annotations

import json
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

from regard.checkpoint.files import CONFIG, read_json, write_json
from regard.data.batches import Batches, ByLength, Packed
from regard.data.corpus import Corpus
from regard.data.encoders.documents import Documents
from regard.data.encoders.encoder_base import Encoder
from regard.data.encoders.labels import Labels
from regard.data.encoders.pairs import Pairs
from regard.data.encoders.questions import Questions
from regard.data.encoders.tags import Tags
from regard.data.encoding import encode
from regard.data.example import TASKS, Example, Labelled, Pair, Plain, Question, Tagged
from regard.data.formats import Conll, Format, Header, JsonLines, Quoting, Table, Text, Unit
from regard.data.label_ids import labels_of
from regard.data.length_policy import Cut, Long, Refuse, Windowed
from regard.data.reader import format_of
from regard.data.source import Source, stamps_from_json, stamps_to_json
from regard.tokenization import algorithms
from regard.tokenization import tokenizer_loader as loading
from regard.tokenization import tokenizer_trainer as learning
from regard.tokenization.tokenizer import Names, Tokenizer
from regard.training.recipe.objective_section import Teacher
from regard.training.recipe.schema import Data, Load, NewTokenizer, OldTokenizer, Recipe
from regard.training.run import word_perplexity

PIECE = 512
"""The longest piece of a document, where nothing says how long it may be."""


@dataclass(frozen=True)
class Prepared:
    """What is learnt from, ready for the loop."""

    train: Batches
    valid: Batches | None
    words: int | None
    """How many words the validation data has, where words are to be said; it makes perplexities comparable."""
    told: tuple[str, ...]
    """What a person should know of the data: how much there is, and what was cut."""


def source_of(recipe: Recipe, files: tuple[str, ...]) -> Source:
    """The examples in these files."""
    return Source(recipe.task, files, _form(recipe.data, TASKS[recipe.task], files))


def labels_in(recipe: Recipe) -> tuple[str, ...]:
    """The labels or tags of the training data; none where the task has none.

    Where the network to start from, or a teacher, has the same ones, they come in its order.
    """
    if recipe.task not in ("classify", "tag"):
        return ()
    found = labels_of(source_of(recipe, recipe.data.train).read())
    teacher = getattr(recipe.objective, "teacher", None)
    for model in (recipe.network, teacher):
        known = labels_of_folder(model.load) if isinstance(model, Load | Teacher) else ()
        if {*known} == {*found}:
            return known
    return found


def labels_of_folder(folder: str | Path) -> tuple[str, ...]:
    """The names of the labels that a model folder has, in the order of its scores; none if it does not name them."""
    ours, theirs = Path(folder) / "regard.json", Path(folder) / CONFIG
    if ours.is_file() and "labels" in (about := read_json(ours)):
        return tuple(about["labels"])
    names = read_json(theirs).get("id2label") if theirs.is_file() else None
    return tuple(name for _, name in sorted((int(number), str(name)) for number, name in (names or {}).items()))


def tokenizer_of(recipe: Recipe, folder: Path, *, begun: bool = False) -> Tokenizer:
    """The tokenizer: loaded, or learnt from the training data and left in the folder for when the run goes on.

    A network that has begun to learn keeps the tokenizer that it began with, even if there is more data by now.
    """
    match recipe.tokenizer:
        case OldTokenizer(load=place):
            return loading.load(place)
        case NewTokenizer() as design:
            note = folder / "learnt"
            settings = {"seed": recipe.seed, "task": recipe.task, **design.model_dump()}
            was = json.loads(note.read_text(encoding="utf-8")) if note.is_file() else {}
            if begun and was and was["settings"] != settings:
                raise ValueError(
                    f"the run began with the tokenizer {was['settings']}, and now it would be {settings}: give it as "
                    "it was, or choose another folder"
                )
            source = source_of(recipe, recipe.data.train)
            files = stamps_to_json(source.stamps(stamps_from_json(was.get("files", {}))))
            if was and (begun or (was["settings"], _contents(was["files"])) == (settings, _contents(files))):
                return loading.load(folder)
            note.unlink(missing_ok=True)
            learnt = _learn(recipe, design)
            learnt.save(folder)
            write_json(note, {"settings": settings, "files": files})  # last: without it the files may be half there
            return learnt


def _contents(files: Mapping[str, Any]) -> list[str]:
    return [stamp["content"] for stamp in files.values()]


def prepare(recipe: Recipe, tokenizer: Tokenizer, labels: tuple[str, ...], room: int | None, cache: Path) -> Prepared:
    """Encode the files, or find them encoded. `room` is the longest row that the network can take."""
    encoder = encoder_of(recipe, tokenizer, labels, room)
    train = encode(source_of(recipe, recipe.data.train), encoder, cache / "train")
    told = [f"training data: {train.report()}"]
    arrangement = _arrangement(recipe, room)
    valid: Batches | None = None
    if recipe.data.valid:
        measured = encode(source_of(recipe, recipe.data.valid), encoder, cache / "valid")
        told.append(f"validation data: {measured.report()}")
        valid = Batches(measured, arrangement, seed=0)
    told += _crowded(recipe, arrangement, room)
    return Prepared(_batches(train, arrangement, recipe.seed), valid, _words(recipe, tokenizer), tuple(told))


def _crowded(recipe: Recipe, arrangement: ByLength | Packed, room: int | None) -> list[str]:
    """What there is to say where most pieces would outgrow the network if they were split, and so never are."""
    splitting = getattr(recipe.objective, "splitting", 0)
    if not splitting or not isinstance(arrangement, Packed) or not room or arrangement.length * (1 + splitting) <= room:
        return []
    return [
        f"objective.splitting: pieces of {arrangement.length} tokens grow, and where they would need more than the "
        f"network's {room} positions they stay whole: give a smaller data.length to see most of them split"
    ]


def _words(recipe: Recipe, tokenizer: Tokenizer) -> int | None:
    if recipe.task != "generate" or not recipe.data.valid:
        return None
    documents = (example for example in source_of(recipe, recipe.data.valid).read() if isinstance(example, Plain))
    return word_perplexity.count(documents, tokenizer)


def _batches(corpus: Corpus, arrangement: ByLength | Packed, seed: int) -> Batches:
    batches = Batches(corpus, arrangement, seed=seed)
    if not batches.steps(0):
        raise ValueError(f"{corpus.report()}: there is nothing to learn from")
    return batches


def encoder_of(recipe: Recipe, tokenizer: Tokenizer, labels: tuple[str, ...], room: int | None) -> Encoder:
    """What turns examples of the task into rows of numbers."""
    long = _long(recipe, room)
    match recipe.task:
        case "translate" | "summarize":
            return Pairs(tokenizer=tokenizer, source=long, target=long)
        case "generate":
            return Documents(tokenizer=tokenizer)  # which are cut into pieces as batches need them
        case "fill":
            return Documents(tokenizer=tokenizer, long=long)
        case "classify":
            return Labels(tokenizer=tokenizer, labels=labels, long=long)
        case "tag":
            return Tags(tokenizer=tokenizer, tags=labels, long=long)
        case "answer":
            return Questions(tokenizer=tokenizer, long=long)


def _long(recipe: Recipe, room: int | None) -> Long | None:
    """What becomes of rows that are too long. Half a text has no translation and no label, but windows have tags."""
    data = recipe.data
    lengths = [length for length in (data.length, room) if length is not None]
    windowed = recipe.task in ("fill", "tag", "answer")
    if not lengths:
        lengths = [min(PIECE, recipe.training.tokens)] if windowed else [recipe.training.tokens]
    length = min(*lengths, recipe.training.tokens)
    match data.long or ("window" if windowed else "cut"):
        case "cut":
            return Cut(length)
        case "refuse":
            return Refuse(length)
        case _:
            whole = recipe.task == "fill"  # where windows need not overlap
            return Windowed(length, data.stride or (length if whole else max(1, length // 2)))


def _arrangement(recipe: Recipe, room: int | None) -> ByLength | Packed:
    tokens = recipe.training.tokens
    if recipe.task != "generate":
        return ByLength(tokens)
    length = recipe.data.length or min(PIECE, tokens)
    return Packed(tokens, min(length, room or length, tokens))


def _form(data: Data, kind: type[Example], files: tuple[str, ...]) -> Format:
    form = format_of(kind, [Path(file) for file in files]) if not data.separator else Table()
    match form:
        case Table():
            quoting = None if data.quoting is None else Quoting(data.quoting)
            return Table(columns=data.columns, separator=data.separator, quoting=quoting, header=Header(data.header))
        case JsonLines():
            return JsonLines(keys={name: str(key) for name, key in data.columns.items()}, join=data.join)
        case Conll():
            return Conll(word=_number(data, "word", 0), tag=_number(data, "tag", -1))
        case Text():
            return Text(unit=Unit(data.unit))
    return form


def _number(data: Data, name: str, usual: int) -> int:
    value = data.columns.get(name, usual)
    if not isinstance(value, int):
        raise ValueError(f"data.columns.{name} is {value!r}: columns of this format have no names, give a number")
    return value


def _learn(recipe: Recipe, design: NewTokenizer) -> Tokenizer:
    kind, names = vocabulary_of(recipe, design)

    def learn(side: int | None) -> Tokenizer:
        return learning.train(kind, _texts(recipe, side), special=names, seed=recipe.seed)

    if design.shared or TASKS[recipe.task] is not Pair:
        return learn(None)
    return learn(0).with_target(learn(1))


def vocabulary_of(recipe: Recipe, design: NewTokenizer) -> tuple[algorithms.Kind, Names]:
    """The kind of vocabulary that a recipe asks for, and the names of its special tokens."""
    kind = _kind(design)
    masks = recipe.task == "fill" and kind.names.mask is None
    return kind, replace(kind.names, mask="<mask>") if masks else kind.names


def _kind(design: NewTokenizer) -> algorithms.Kind:
    match design.kind:
        case "bpe":
            return algorithms.ByteBPE(size=design.size)
        case "wordpiece":
            return algorithms.WordPiece(size=design.size, lower=design.lower)
        case "unigram":
            return algorithms.Unigram(size=design.size)
        case "words":
            return algorithms.Words(size=design.size)
        case "characters":
            return algorithms.Characters(size=design.size)


def _texts(recipe: Recipe, side: int | None) -> Iterator[str]:
    """The texts of the training data; of pairs one side, or both."""
    for example in source_of(recipe, recipe.data.train).read():
        yield from _texts_of(example, side)


def _texts_of(example: Any, side: int | None) -> tuple[str, ...]:
    match example:
        case Pair(source=source, target=target):
            return (source, target) if side is None else ((source, target)[side],)
        case Plain(text=text):
            return (text,)
        case Labelled(text=text, pair=pair):
            return (text,) if pair is None else (text, pair)
        case Tagged(words=words):
            return (" ".join(words),)
        case Question(question=question, context=context):
            return (question, context)
    raise TypeError(f"no texts are known in {type(example).__name__}")
