"""Train vocabularies with the trainers of the tokenizers library, with deterministic results."""

from __future__ import annotations

from collections import Counter

from tokenizers import Tokenizer, models, pre_tokenizers, trainers

from regard.tokenization import unigram_trainer
from regard.tokenization.algorithms import Algorithm, ByteBPE, CharacterLevel, Unigram, WordLevel, WordPiece


def train_backend(
    algorithm: Algorithm, texts: list[str], special_tokens: list[str], unk_token: str | None
) -> Tokenizer:
    """Train a backend of this algorithm on texts. The special tokens have the first ids."""
    backend = algorithm.build_untrained(unk_token)
    match algorithm:
        case ByteBPE():
            bpe_trainer = trainers.BpeTrainer(
                vocab_size=algorithm.size,
                special_tokens=special_tokens,
                initial_alphabet=sorted(pre_tokenizers.ByteLevel.alphabet()),
                show_progress=False,
            )
            backend.train_from_iterator(texts, bpe_trainer)
        case WordPiece():
            backend.model = _train_wordpiece(algorithm, texts, special_tokens, unk_token)
        case Unigram():
            pieces = unigram_trainer.train_unigram(texts, algorithm.size - len(special_tokens))
            scores = [
                *((token, 0.0) for token in special_tokens),
                *(pair for pair in pieces if pair[0] not in special_tokens),
            ]
            backend.model = models.Unigram(scores, unk_id=special_tokens.index(str(unk_token)), byte_fallback=False)
        case WordLevel():
            word_trainer = trainers.WordLevelTrainer(
                vocab_size=algorithm.size,
                min_frequency=algorithm.min_frequency,
                special_tokens=special_tokens,
                show_progress=False,
            )
            backend.train_from_iterator(texts, word_trainer)
        case CharacterLevel():
            backend.model = _train_character_level(algorithm, texts, special_tokens, unk_token)
    backend.add_special_tokens(special_tokens)
    return backend


def _train_wordpiece(
    algorithm: WordPiece, texts: list[str], special_tokens: list[str], unk_token: str | None
) -> models.WordPiece:
    """Train WordPiece with initial tokens in a fixed order.

    The trainer assigns ids to tokens such as `##x` in the order of a hash table, which differs from run to run, and
    breaks ties by these ids. Passing all of them as initial tokens makes it deterministic; a first training with an
    empty vocabulary finds them.
    """
    alphabet = _alphabet(algorithm.build_untrained(unk_token), texts, (algorithm.size - len(special_tokens)) // 2)
    initial = _run_wordpiece_trainer(algorithm, texts, special_tokens, alphabet, 0, unk_token)
    continuation = sorted(token for token in initial if token.startswith("##") and len(token) == 3)
    first_tokens = [*special_tokens, *alphabet, *continuation]
    vocab = _run_wordpiece_trainer(algorithm, texts, first_tokens, alphabet, algorithm.size, unk_token)
    return models.WordPiece(vocab, unk_token=str(unk_token))


def _run_wordpiece_trainer(
    algorithm: WordPiece,
    texts: list[str],
    first_tokens: list[str],
    alphabet: list[str],
    vocab_size: int,
    unk_token: str | None,
) -> dict[str, int]:
    backend = algorithm.build_untrained(unk_token)
    trainer = trainers.WordPieceTrainer(
        vocab_size=vocab_size,
        special_tokens=first_tokens,
        initial_alphabet=alphabet,
        limit_alphabet=len(alphabet),
        show_progress=False,
    )
    backend.train_from_iterator(texts, trainer)
    return backend.get_vocab()


def _alphabet(backend: Tokenizer, texts: list[str], limit: int) -> list[str]:
    """Return the most frequent characters of the normalized texts, without whitespace, in Unicode order."""
    counts: Counter[str] = Counter()
    for text in texts:
        counts.update(backend.normalizer.normalize_str(text))
    ranked = sorted((character for character in counts if not character.isspace()), key=lambda c: (-counts[c], c))
    return sorted(ranked[: max(1, limit)])


def _train_character_level(
    algorithm: CharacterLevel, texts: list[str], special_tokens: list[str], unk_token: str | None
) -> models.BPE:
    """Build a vocabulary of the most frequent characters, in Unicode order where frequencies are equal."""
    counts: Counter[str] = Counter({"\n": len(texts) - 1})
    for text in texts:
        counts.update(text)
    frequent = (character for character in counts if counts[character] >= algorithm.min_frequency)
    ranked = sorted(frequent, key=lambda c: (-counts[c], c))
    tokens = dict.fromkeys([*special_tokens, *ranked[: algorithm.size - len(special_tokens)]])
    return models.BPE({token: index for index, token in enumerate(tokens)}, [], unk_token=unk_token)
