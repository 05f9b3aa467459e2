"""Tokenizers: train, load, save."""

from regard.lazy import attach

__getattr__, __dir__, __all__ = attach(
    __name__,
    {
        "ByteBPE": "regard.tokenization.algorithms",
        "CharacterLevel": "regard.tokenization.algorithms",
        "Encoding": "regard.tokenization.tokenizer",
        "SpecialTokenIds": "regard.tokenization.tokenizer",
        "SpecialTokens": "regard.tokenization.tokenizer",
        "Tokenizer": "regard.tokenization.tokenizer",
        "TokenizerError": "regard.tokenization.io",
        "Unigram": "regard.tokenization.algorithms",
        "WordLevel": "regard.tokenization.algorithms",
        "WordPiece": "regard.tokenization.algorithms",
        "load_tokenizer": "regard.tokenization.tokenizer_loader",
        "train_tokenizer": "regard.tokenization.tokenizer_trainer",
    },
)
