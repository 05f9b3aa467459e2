"""Vocabularies from texts, on the trainers of the tokenizers library, with results that do not depend on chance."""

from __future__ import annotations

from collections import Counter

from tokenizers import Tokenizer, models, pre_tokenizers, trainers

from regard.tokenization import unigram_trainer
from regard.tokenization.algorithms import ByteBPE, Characters, Kind, Unigram, WordPiece, Words


def learnt(kind: Kind, texts: list[str], special: list[str], unknown: str | None) -> Tokenizer:
    """A tokenizer of this kind, trained on these texts. The special tokens come first."""
    core = kind.empty(unknown)
    match kind:
        case ByteBPE():
            letters = sorted(pre_tokenizers.ByteLevel.alphabet())
            trainer = trainers.BpeTrainer(
                vocab_size=kind.size, special_tokens=special, initial_alphabet=letters, show_progress=False
            )
            core.train_from_iterator(texts, trainer)
        case WordPiece():
            core.model = _word_pieces(kind, texts, special, unknown)
        case Unigram():
            pieces = unigram_trainer.learn(texts, kind.size - len(special))
            scores = [*((token, 0.0) for token in special), *(pair for pair in pieces if pair[0] not in special)]
            core.model = models.Unigram(scores, unk_id=special.index(str(unknown)), byte_fallback=False)
        case Words():
            words = trainers.WordLevelTrainer(
                vocab_size=kind.size, min_frequency=kind.minimum, special_tokens=special, show_progress=False
            )
            core.train_from_iterator(texts, words)
        case Characters():
            core.model = _characters(kind, texts, special, unknown)
    core.add_special_tokens(special)
    return core


def _word_pieces(kind: WordPiece, texts: list[str], special: list[str], unknown: str | None) -> models.WordPiece:
    """WordPiece, begun in a fixed order.

    The trainer numbers pieces such as `##x` in the order of a hash table, which differs from run to run, and breaks
    ties by these numbers. Told of all of them before, it has nothing left to leave to chance: a first, empty training
    finds them.
    """
    letters = _letters(kind.empty(unknown), texts, (kind.size - len(special)) // 2)
    found = _trained(kind, texts, special, letters, 0, unknown)
    inside = sorted(token for token in found if token.startswith("##") and len(token) == 3)
    ids = _trained(kind, texts, [*special, *letters, *inside], letters, kind.size, unknown)
    return models.WordPiece(ids, unk_token=str(unknown))


def _trained(
    kind: WordPiece, texts: list[str], first: list[str], letters: list[str], size: int, unknown: str | None
) -> dict[str, int]:
    core = kind.empty(unknown)
    trainer = trainers.WordPieceTrainer(
        vocab_size=size,
        special_tokens=first,
        initial_alphabet=letters,
        limit_alphabet=len(letters),
        show_progress=False,
    )
    core.train_from_iterator(texts, trainer)
    return core.get_vocab()


def _letters(core: Tokenizer, texts: list[str], most: int) -> list[str]:
    """The most frequent characters of words, after normalisation, in the order of Unicode."""
    counts: Counter[str] = Counter()
    for text in texts:
        counts.update(core.normalizer.normalize_str(text))
    ranked = sorted((letter for letter in counts if not letter.isspace()), key=lambda c: (-counts[c], c))
    return sorted(ranked[: max(1, most)])


def _characters(kind: Characters, texts: list[str], special: list[str], unknown: str | None) -> models.BPE:
    """The most frequent characters; of equally frequent ones, those that come first in Unicode."""
    counts: Counter[str] = Counter({"\n": len(texts) - 1})
    for text in texts:
        counts.update(text)
    ranked = sorted((letter for letter in counts if counts[letter] >= kind.minimum), key=lambda c: (-counts[c], c))
    tokens = dict.fromkeys([*special, *ranked[: kind.size - len(special)]])
    return models.BPE({token: number for number, token in enumerate(tokens)}, [], unk_token=unknown)
