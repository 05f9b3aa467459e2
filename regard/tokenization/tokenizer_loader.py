"""Open a tokenizer: a model's folder, a tokenizer's folder, or one file."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import Any

import tokenizers

from regard.tokenization import ctrl_tokenizer, marian_tokenizer, sentencepiece_families, vocab_files
from regard.tokenization.io import TokenizerError, read_json, read_json_if_there
from regard.tokenization.sentencepiece_model import Kind, SentencePiece, read
from regard.tokenization.special_tokens import Theirs, guessed, named
from regard.tokenization.tokenizer import Names, Tokenizer

Built = tuple[tokenizers.Tokenizer, Names]

FROM_PIECES: dict[str, Callable[[SentencePiece, Path, Theirs], Built]] = {
    "t5": sentencepiece_families.t5,
    "albert": sentencepiece_families.albert,
    "xlnet": sentencepiece_families.xlnet,
    "mbart": sentencepiece_families.mbart,
    "mbart50": sentencepiece_families.mbart50,
    "llama": sentencepiece_families.llama,
}
FROM_MERGES: dict[str, Callable[[Path, Path, Theirs], Built]] = {
    "gpt": vocab_files.gpt,
    "gpt2": vocab_files.gpt2,
    "roberta": vocab_files.roberta,
    "clip": vocab_files.clip,
}
USUAL = {
    "bert": vocab_files.BERT,
    "gpt": vocab_files.GPT,
    "gpt2": vocab_files.GPT2,
    "roberta": vocab_files.ROBERTA,
    "clip": vocab_files.CLIP,
    "t5": sentencepiece_families.T5,
    "albert": sentencepiece_families.ALBERT,
    "xlnet": sentencepiece_families.XLNET,
    "mbart": vocab_files.ROBERTA,
    "mbart50": vocab_files.ROBERTA,
    "llama": sentencepiece_families.LLAMA,
}
FAMILIES = (*USUAL, "ctrl", "marian")

ALIKE = {
    "distilbert": "bert",
    "electra": "bert",
    "openai-gpt": "gpt",
    "openaigpt": "gpt",
    "gpt3": "gpt2",
    "bart": "roberta",
    "clip_text_model": "clip",
}
"""Models that cut text as another family does, by `model_type` or the name of their class."""

PIECES = ("spiece.model", "sentencepiece.bpe.model", "tokenizer.model")
LONGEST = 10**6
"""Above this, a published maximum length only says that nobody set one."""


def load(place: str | Path, *, family: str | None = None) -> Tokenizer:
    """Open a tokenizer: a model's folder, a tokenizer's folder, or one file (tokenizer.json, spiece.model …).

    The family says what is done to a text before it is cut. It is known from `config.json` and
    `tokenizer_config.json`, or from the vocabulary itself; where it cannot be told, say it: `load(place, family="t5")`.
    A `tokenizer.json` says everything, and goes before all other files.
    """
    place = Path(place)
    if not place.exists():
        raise TokenizerError(f"there is no file or folder {place}")
    if family is not None and ALIKE.get(family, family) not in FAMILIES:
        raise TokenizerError(f"family {family!r} is not known; known are {', '.join(sorted({*FAMILIES, *ALIKE}))}")
    folder, vocabulary = (place, _vocabulary(place)) if place.is_dir() else (place.parent, place)
    theirs = _settings(folder)
    if family is None:
        _refuse(folder, vocabulary, theirs)
    family = ALIKE.get(family, family) if family else _family(theirs)
    tokenizer = _open(vocabulary, family, theirs)
    other = folder / "target"
    return tokenizer.with_target(load(other)) if place.is_dir() and (other / "tokenizer.json").is_file() else tokenizer


def _refuse(folder: Path, vocabulary: Path, theirs: Theirs) -> None:
    """Stop at a tokenizer that would open as one of another family, and cut texts otherwise than its own."""
    named = str(theirs.get("tokenizer_class") or "")
    if named.startswith("RoFormer") or (
        not named and vocabulary.suffix == ".txt" and theirs["model_type"] == "roformer"
    ):
        raise TokenizerError(
            f"{folder}: RoFormer's published tokenizers find Chinese words by a dictionary (jieba), which is not known "
            "here. Give the network ids that its own tokenizer made; or have texts cut like BERT's: "
            'regard.tokenization.tokenizer_loader(folder, family="bert").save(other) makes a tokenizer of it that any command opens'
        )


def _vocabulary(folder: Path) -> Path:
    """The file of a folder that holds the vocabulary."""
    for name in ("tokenizer.json", "source.spm", "vocab.txt", "vocab.json", *PIECES):
        if (folder / name).is_file():
            return folder / name
    there = ", ".join(sorted(path.name for path in folder.iterdir())[:8]) or "nothing"
    raise TokenizerError(
        f"{folder} has no tokenizer: expected tokenizer.json, vocab.txt, vocab.json with merges.txt, source.spm with "
        f"target.spm, or {', '.join(PIECES)}; found {there}"
    )


def _settings(folder: Path) -> dict[str, Any]:
    """What the files beside the vocabulary say; the newer file goes before the older one."""
    added = read_json_if_there(folder / "added_tokens.json")
    older, newer = (read_json_if_there(folder / f"{n}.json") for n in ("special_tokens_map", "tokenizer_config"))
    kind = read_json_if_there(folder / "config.json").get("model_type")
    return {**older, **newer, "added_tokens.json": added, "model_type": kind}


def _family(theirs: Theirs) -> str | None:
    """The family by the tokenizer's class, or by the model's kind; a class of no family says nothing."""
    if "regard_family" in theirs:
        return str(theirs["regard_family"])
    name = str(theirs.get("tokenizer_class") or "").removesuffix("Fast").removesuffix("Tokenizer").lower()
    if name in ("pretrained", "tokenizersbackend"):
        return None
    for kind in (name, str(theirs.get("model_type"))):
        if ALIKE.get(kind, kind) in FAMILIES:
            return ALIKE.get(kind, kind)
    return None


def _open(path: Path, family: str | None, theirs: Theirs) -> Tokenizer:
    if path.name.endswith("tokenizer.json"):
        return _whole(path, family, theirs)
    if path.suffix == ".spm":
        return marian_tokenizer.load(path.parent, theirs, _longest(theirs))
    if path.suffix == ".txt" and path.name != "merges.txt":
        return _joined(vocab_files.bert(path, theirs), "bert", theirs)
    if path.suffix in (".json", ".txt"):
        vocabulary, merges = path.with_name("vocab.json"), path.with_name("merges.txt")
        vocabulary = path if path.suffix == ".json" else vocabulary
        for needed in (vocabulary, merges):
            if not needed.is_file():
                raise TokenizerError(f"{path}: {needed.name} should lie beside it, and does not")
        family = family or _family_of_merges(vocabulary)
        if family == "ctrl":
            return ctrl_tokenizer.load(vocabulary, merges, theirs, _longest(theirs))
        if family not in FROM_MERGES:
            raise _unclear(path, family, (*FROM_MERGES, "ctrl"))
        return _joined(FROM_MERGES[family](vocabulary, merges, theirs), family, theirs)
    if path.suffix == ".model":
        model = read(path)
        family = family or _family_of_pieces(model, path)
        if family not in FROM_PIECES:
            raise _unclear(path, family, tuple(FROM_PIECES))
        return _joined(FROM_PIECES[family](model, path, theirs), family, theirs)
    raise TokenizerError(
        f"{path}: not known by its name. Expected tokenizer.json, vocab.txt, vocab.json, a .model or a .spm file"
    )


def _whole(path: Path, family: str | None, theirs: Theirs) -> Tokenizer:
    """A `tokenizer.json`: it says everything but what the special tokens are for."""
    try:
        core = tokenizers.Tokenizer.from_file(str(path))
    except Exception as error:  # the library raises nothing narrower
        read_json(path)  # says what is wrong with a file that is no JSON
        raise TokenizerError(f"{path}: this is no tokenizer ({error})") from None
    if family == "clip":
        core.decoder = vocab_files.clip_decoder()
    cut = core.truncation["max_length"] if core.truncation else None
    usual = USUAL[family] if family in USUAL else guessed(core)
    return _joined((core, named(theirs, usual, core)), family, theirs, cut)


def _joined(built: Built, family: str | None, theirs: Theirs, cut: int | None = None) -> Tokenizer:
    core, names = built
    codes = {"mbart": sentencepiece_families.MBART_LANGUAGES, "mbart50": sentencepiece_families.MBART50_LANGUAGES}.get(
        family or "", []
    )
    languages = {code: core.token_to_id(code) for code in codes}
    return Tokenizer(
        core,
        names,
        family=family,
        longest=_longest(theirs) or cut,
        truncation=cut,
        languages={code: number for code, number in languages.items() if number is not None},
        default_language=str(theirs.get("src_lang") or "en_XX") if codes else None,
    )


def _longest(theirs: Theirs) -> int | None:
    value = theirs.get("model_max_length")
    return int(value) if isinstance(value, int | float) and 0 < value < LONGEST else None


def _family_of_merges(vocabulary: Path) -> str | None:
    """The family by how the vocabulary writes its tokens."""
    ids = vocab_files.read_vocabulary(vocabulary)
    if "<|startoftext|>" in ids:
        return "clip"
    if "<s>" in ids and "</s>" in ids:
        return "roberta"
    if any(token.endswith("</w>") for token in ids):
        return "gpt"
    if sum(token.endswith("@@") for token in ids) > len(ids) // 20:
        return "ctrl"
    return "gpt2" if "<|endoftext|>" in ids else None


def _family_of_pieces(model: SentencePiece, path: Path) -> str | None:
    """The family by the special pieces of a SentencePiece model, or by the name that only one family uses."""
    texts = [piece.text for piece in model.pieces[:16]]
    if "[CLS]" in texts:
        return "albert"
    if "<sep>" in texts and "<cls>" in texts:
        return "xlnet"
    if model.kind is Kind.BPE and model.byte_fallback:
        return "llama"
    if path.name == "sentencepiece.bpe.model":
        return "mbart"
    return "t5" if texts[:3] == ["<pad>", "</s>", "<unk>"] else None


def _unclear(path: Path, family: str | None, possible: tuple[str, ...]) -> TokenizerError:
    found = f"family {family!r} does not come with such a file" if family else "its family cannot be told from the file"
    return TokenizerError(f"{path}: {found}. Say which it is: family=, one of {', '.join(possible)}")
