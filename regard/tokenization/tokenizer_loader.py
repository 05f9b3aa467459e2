"""Load a tokenizer from a model folder, a tokenizer folder, or one file."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import Any

import tokenizers

from regard.checkpoint.model_folder import ModelFolder, find_model
from regard.files import read_json
from regard.tokenization import ctrl_tokenizer, marian_tokenizer, sentencepiece_families, vocab_files
from regard.tokenization.backend_check import backend_errors, check_tokenizer_json
from regard.tokenization.io import TokenizerError
from regard.tokenization.sentencepiece_model import ModelType, SentencePieceModel, read_sentencepiece_model
from regard.tokenization.special_tokens import TokenizerConfig, guess_special_tokens, resolve_special_tokens
from regard.tokenization.tokenizer import SpecialTokens, Tokenizer

TokenizerParts = tuple[tokenizers.Tokenizer, SpecialTokens]
"""The backend and its special tokens."""

SENTENCEPIECE_BUILDERS: dict[str, Callable[[SentencePieceModel, Path, TokenizerConfig], TokenizerParts]] = {
    "t5": sentencepiece_families.t5,
    "albert": sentencepiece_families.albert,
    "xlnet": sentencepiece_families.xlnet,
    "mbart": sentencepiece_families.mbart,
    "mbart50": sentencepiece_families.mbart50,
    "llama": sentencepiece_families.llama,
}
BPE_BUILDERS: dict[str, Callable[[Path, Path, TokenizerConfig], TokenizerParts]] = {
    "gpt": vocab_files.gpt,
    "gpt2": vocab_files.gpt2,
    "roberta": vocab_files.roberta,
    "clip": vocab_files.clip,
}
DEFAULT_SPECIAL_TOKENS = {
    "bert": vocab_files.BERT_TOKENS,
    "gpt": vocab_files.GPT_TOKENS,
    "gpt2": vocab_files.GPT2_TOKENS,
    "roberta": vocab_files.ROBERTA_TOKENS,
    "clip": vocab_files.CLIP_TOKENS,
    "t5": sentencepiece_families.T5_TOKENS,
    "albert": sentencepiece_families.ALBERT_TOKENS,
    "xlnet": sentencepiece_families.XLNET_TOKENS,
    "mbart": vocab_files.ROBERTA_TOKENS,
    "mbart50": vocab_files.ROBERTA_TOKENS,
    "llama": sentencepiece_families.LLAMA_TOKENS,
}
TOKENIZER_FAMILIES = (*DEFAULT_SPECIAL_TOKENS, "ctrl", "marian")

FAMILY_ALIASES = {
    "distilbert": "bert",
    "electra": "bert",
    "openai-gpt": "gpt",
    "openaigpt": "gpt",
    "gpt3": "gpt2",
    "bart": "roberta",
    "clip_text_model": "clip",
}
"""Models that tokenize as another family does, by `model_type` or by the name of their tokenizer class."""

SENTENCEPIECE_FILES = ("spiece.model", "sentencepiece.bpe.model", "tokenizer.model")
MAX_PLAUSIBLE_LENGTH = 10**6
"""A larger published `model_max_length` is a placeholder for "not set"."""


def load_tokenizer(path: str | Path, *, family: str | None = None) -> Tokenizer:
    """Load a tokenizer from a model folder, a tokenizer folder, or one file (tokenizer.json, spiece.model …).

    The family determines normalization and pre-tokenization. It is inferred from `config.json` and
    `tokenizer_config.json`, or from the vocabulary itself; where that is impossible, pass it:
    `load_tokenizer(path, family="t5")`. A `tokenizer.json` is complete, and takes precedence over all other files.
    """
    path = find_model(path)
    if not path.exists():
        raise TokenizerError(f"no such file or directory: {path}")
    if family is not None and FAMILY_ALIASES.get(family, family) not in TOKENIZER_FAMILIES:
        raise TokenizerError(
            f"unknown family {family!r}; known families: {', '.join(sorted({*TOKENIZER_FAMILIES, *FAMILY_ALIASES}))}"
        )
    folder, vocab_path = (path, _find_vocab_file(path)) if path.is_dir() else (path.parent, path)
    config = _read_config(ModelFolder(folder))
    if family is None:
        _check_supported(folder, vocab_path, config)
    family = FAMILY_ALIASES.get(family, family) if family else _family_from_config(config)
    tokenizer = _load_file(vocab_path, family, config)
    target_folder = folder / "target"
    if path.is_dir() and (target_folder / "tokenizer.json").is_file():
        return tokenizer.with_target(load_tokenizer(target_folder))
    return tokenizer


def _check_supported(folder: Path, vocab_path: Path, config: TokenizerConfig) -> None:
    """Reject RoFormer's tokenizer: it would load as BERT's, and tokenize differently from the original."""
    class_name = str(config.get("tokenizer_class") or "")
    if class_name.startswith("RoFormer") or (
        not class_name and vocab_path.suffix == ".txt" and config["model_type"] == "roformer"
    ):
        raise TokenizerError(
            f"{folder}: RoFormer's published tokenizers segment Chinese words with jieba, which is not supported. Pass "
            "token ids from its own tokenizer to the network, or tokenize as BERT does: "
            'regard.tokenization.load_tokenizer(folder, family="bert").save(other) writes a tokenizer that every '
            "command opens"
        )


def _find_vocab_file(folder: Path) -> Path:
    """Return the vocabulary file of a folder."""
    for name in ("tokenizer.json", "source.spm", "vocab.txt", "vocab.json", *SENTENCEPIECE_FILES):
        if (folder / name).is_file():
            return folder / name
    found = ", ".join(sorted(path.name for path in folder.iterdir())[:8]) or "nothing"
    raise TokenizerError(
        f"{folder} contains no tokenizer: expected tokenizer.json, vocab.txt, vocab.json with merges.txt, "
        f"source.spm with target.spm, or {', '.join(SENTENCEPIECE_FILES)}; found {found}"
    )


def _read_config(folder: ModelFolder) -> dict[str, Any]:
    """Merge the JSON files next to the vocabulary; tokenizer_config.json overrides special_tokens_map.json."""
    names = ("special_tokens_map.json", "tokenizer_config.json", "added_tokens.json", "config.json")
    older, newer, added, model = (folder.read_if_exists(name, TokenizerError) for name in names)
    return {**older, **newer, "added_tokens.json": added, "model_type": model.get("model_type")}


def _family_from_config(config: TokenizerConfig) -> str | None:
    """Infer the family from the tokenizer class, else from the model type; None for a generic class."""
    if "regard_family" in config:
        return str(config["regard_family"])
    class_name = str(config.get("tokenizer_class") or "").removesuffix("Fast").removesuffix("Tokenizer").lower()
    if class_name in ("pretrained", "tokenizersbackend"):
        return None
    for name in (class_name, str(config.get("model_type"))):
        if FAMILY_ALIASES.get(name, name) in TOKENIZER_FAMILIES:
            return FAMILY_ALIASES.get(name, name)
    return None


def _load_file(path: Path, family: str | None, config: TokenizerConfig) -> Tokenizer:
    if path.name.endswith("tokenizer.json"):
        return _load_tokenizer_json(path, family, config)
    if path.suffix == ".spm":
        return marian_tokenizer.load_marian_tokenizer(path.parent, config, _model_max_length(config))
    if path.suffix == ".txt" and path.name != "merges.txt":
        return _build_tokenizer(vocab_files.bert(path, config), "bert", config)
    if path.suffix in (".json", ".txt"):
        vocab_path = path if path.suffix == ".json" else path.with_name("vocab.json")
        merges_path = path.with_name("merges.txt")
        for needed in (vocab_path, merges_path):
            if not needed.is_file():
                raise TokenizerError(f"{path}: {needed.name} is missing from the same directory")
        family = family or _family_from_vocab(vocab_path)
        if family == "ctrl":
            return ctrl_tokenizer.load_ctrl_tokenizer(vocab_path, merges_path, config, _model_max_length(config))
        if family not in BPE_BUILDERS:
            raise _ambiguous_family_error(path, family, (*BPE_BUILDERS, "ctrl"))
        return _build_tokenizer(BPE_BUILDERS[family](vocab_path, merges_path, config), family, config)
    if path.suffix == ".model":
        model = read_sentencepiece_model(path)
        family = family or _family_from_sentencepiece(model, path)
        if family not in SENTENCEPIECE_BUILDERS:
            raise _ambiguous_family_error(path, family, tuple(SENTENCEPIECE_BUILDERS))
        return _build_tokenizer(SENTENCEPIECE_BUILDERS[family](model, path, config), family, config)
    raise TokenizerError(
        f"{path}: unrecognized file name; expected tokenizer.json, vocab.txt, vocab.json, a .model or a .spm file"
    )


def _load_tokenizer_json(path: Path, family: str | None, config: TokenizerConfig) -> Tokenizer:
    """Load a `tokenizer.json`, which is complete except for the roles of the special tokens."""
    check_tokenizer_json(path)
    try:
        with backend_errors("be loaded"):
            backend = tokenizers.Tokenizer.from_file(str(path))
    except Exception as error:  # the library raises nothing narrower
        read_json(path, TokenizerError)  # names the line of a JSON error
        raise TokenizerError(f"{path}: not a valid tokenizer.json ({error})") from None
    if family == "clip":
        backend.decoder = vocab_files.clip_decoder()
    truncation_length = backend.truncation["max_length"] if backend.truncation else None
    defaults = DEFAULT_SPECIAL_TOKENS[family] if family in DEFAULT_SPECIAL_TOKENS else guess_special_tokens(backend)
    parts = backend, resolve_special_tokens(config, defaults, backend)
    return _build_tokenizer(parts, family, config, truncation_length)


def _build_tokenizer(
    parts: TokenizerParts, family: str | None, config: TokenizerConfig, truncation_length: int | None = None
) -> Tokenizer:
    backend, special_tokens = parts
    family_codes = {
        "mbart": sentencepiece_families.MBART_LANGUAGES,
        "mbart50": sentencepiece_families.MBART50_LANGUAGES,
    }
    codes = family_codes.get(family or "", [])
    languages = {code: backend.token_to_id(code) for code in codes}
    return Tokenizer(
        backend,
        special_tokens,
        family=family,
        model_max_length=_model_max_length(config) or truncation_length,
        truncation_length=truncation_length,
        languages={code: token_id for code, token_id in languages.items() if token_id is not None},
        default_language=str(config.get("src_lang") or "en_XX") if codes else None,
    )


def _model_max_length(config: TokenizerConfig) -> int | None:
    value = config.get("model_max_length")
    return int(value) if isinstance(value, int | float) and 0 < value < MAX_PLAUSIBLE_LENGTH else None


def _family_from_vocab(path: Path) -> str | None:
    """Infer the family from the spelling of the tokens in a `vocab.json`."""
    vocab = vocab_files.read_vocab(path)
    if "<|startoftext|>" in vocab:
        return "clip"
    if "<s>" in vocab and "</s>" in vocab:
        return "roberta"
    if any(token.endswith("</w>") for token in vocab):
        return "gpt"
    if sum(token.endswith("@@") for token in vocab) > len(vocab) // 20:
        return "ctrl"
    return "gpt2" if "<|endoftext|>" in vocab else None


def _family_from_sentencepiece(model: SentencePieceModel, path: Path) -> str | None:
    """Infer the family from the special pieces of a SentencePiece model, or from a file name of one family only."""
    pieces = [piece.text for piece in model.pieces[:16]]
    if "[CLS]" in pieces:
        return "albert"
    if "<sep>" in pieces and "<cls>" in pieces:
        return "xlnet"
    if model.model_type is ModelType.BPE and model.byte_fallback:
        return "llama"
    if path.name == "sentencepiece.bpe.model":
        return "mbart"
    return "t5" if pieces[:3] == ["<pad>", "</s>", "<unk>"] else None


def _ambiguous_family_error(path: Path, family: str | None, possible: tuple[str, ...]) -> TokenizerError:
    if family:
        problem = f"family {family!r} does not use this kind of file"
    else:
        problem = "the family cannot be inferred from the file"
    return TokenizerError(f"{path}: {problem}. Pass family=, one of {', '.join(possible)}")
