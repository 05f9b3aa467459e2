"""Vocabularies in the files `vocab.txt`, or `vocab.json` with `merges.txt`. One function for each family.

These files do not specify normalization and pre-tokenization (lowercasing, how a text is split into words): the
functions here add them.
"""

from __future__ import annotations

from pathlib import Path

from tokenizers import Regex, Tokenizer, decoders, models, normalizers, pre_tokenizers, processors

from regard.files import read_json, read_text
from regard.tokenization.io import TokenizerError
from regard.tokenization.special_tokens import TokenizerConfig, register_tokens, resolve_special_tokens
from regard.tokenization.tokenizer import SpecialTokens

BERT_TOKENS = SpecialTokens(pad="[PAD]", unk="[UNK]", sep="[SEP]", cls="[CLS]", mask="[MASK]")
GPT_TOKENS = SpecialTokens(unk="<unk>")
GPT2_TOKENS = SpecialTokens(unk="<|endoftext|>", bos="<|endoftext|>", eos="<|endoftext|>")
ROBERTA_TOKENS = SpecialTokens(pad="<pad>", unk="<unk>", bos="<s>", eos="</s>", sep="</s>", cls="<s>", mask="<mask>")
CLIP_TOKENS = SpecialTokens(pad="<|endoftext|>", unk="<|endoftext|>", bos="<|startoftext|>", eos="<|endoftext|>")

CLIP_PATTERN = r"<\|startoftext\|>|<\|endoftext\|>|'s|'t|'re|'ve|'m|'ll|'d|[\p{L}]+|[\p{N}]|[^\s\p{L}\p{N}]+"


def bert(vocab_path: Path, config: TokenizerConfig) -> tuple[Tokenizer, SpecialTokens]:
    """BERT, DistilBERT, ELECTRA: words split greedily into the longest known subwords; inner subwords start with ##."""
    read_text(vocab_path, TokenizerError)  # raises an exact error for a file that is not UTF-8
    backend = Tokenizer(
        models.WordPiece(models.WordPiece.read_file(str(vocab_path)), unk_token=_unk_token(config, BERT_TOKENS))
    )
    backend.normalizer = normalizers.BertNormalizer(
        clean_text=True,
        handle_chinese_chars=bool(config.get("tokenize_chinese_chars", True)),
        strip_accents=config.get("strip_accents"),
        lowercase=bool(config.get("do_lower_case", True)),
    )
    backend.pre_tokenizer = pre_tokenizers.BertPreTokenizer()
    backend.decoder = decoders.WordPiece(prefix="##")
    special_tokens = resolve_special_tokens(config, BERT_TOKENS, backend)
    if special_tokens.unk is None:
        raise TokenizerError(
            f"{vocab_path}: the unknown token {_unk_token(config, BERT_TOKENS)} is missing; every vocab.txt has one"
        )
    register_tokens(backend, config, special_tokens)
    cls = require_token(special_tokens.cls, "cls", "[CLS]", vocab_path)
    sep = require_token(special_tokens.sep, "sep", "[SEP]", vocab_path)
    backend.post_processor = build_template(backend, f"{cls}:0 $A:0 {sep}:0", f"{cls}:0 $A:0 {sep}:0 $B:1 {sep}:1")
    return backend, special_tokens


def gpt(vocab_path: Path, merges_path: Path, config: TokenizerConfig) -> tuple[Tokenizer, SpecialTokens]:
    """GPT: BPE of lowercased words, whose last token ends in `</w>`; no special tokens are added."""
    backend = Tokenizer(
        read_bpe(vocab_path, merges_path, unk_token=_unk_token(config, GPT_TOKENS), end_of_word_suffix="</w>")
    )
    backend.normalizer = normalizers.BertNormalizer(lowercase=True)
    backend.pre_tokenizer = pre_tokenizers.BertPreTokenizer()
    backend.decoder = decoders.BPEDecoder(suffix="</w>")
    return _with_bos_eos(backend, config, resolve_special_tokens(config, GPT_TOKENS, backend))


def gpt2(vocab_path: Path, merges_path: Path, config: TokenizerConfig) -> tuple[Tokenizer, SpecialTokens]:
    """GPT-2 and GPT-3: byte-level BPE, with bytes spelled as printable characters. Encoding is lossless."""
    backend = Tokenizer(read_bpe(vocab_path, merges_path))
    backend.pre_tokenizer = pre_tokenizers.ByteLevel(add_prefix_space=bool(config.get("add_prefix_space", False)))
    backend.decoder = decoders.ByteLevel()
    return _with_bos_eos(backend, config, resolve_special_tokens(config, GPT2_TOKENS, backend))


def roberta(vocab_path: Path, merges_path: Path, config: TokenizerConfig) -> tuple[Tokenizer, SpecialTokens]:
    """RoBERTa and BART: GPT-2's tokens between `<s>` and `</s>`; a pair has two `</s>` in the middle."""
    backend, _ = gpt2(vocab_path, merges_path, {key: config[key] for key in ("add_prefix_space",) if key in config})
    special_tokens = resolve_special_tokens(config, ROBERTA_TOKENS, backend)
    register_tokens(backend, config, special_tokens)
    cls = require_token(special_tokens.cls, "cls", "<s>", vocab_path)
    sep = require_token(special_tokens.sep, "sep", "</s>", vocab_path)
    vocab = backend.get_vocab()
    backend.post_processor = processors.RobertaProcessing(
        (sep, vocab[sep]),
        (cls, vocab[cls]),
        trim_offsets=bool(config.get("trim_offsets", True)),
        add_prefix_space=bool(config.get("add_prefix_space", False)),
    )
    return backend, special_tokens


def clip(vocab_path: Path, merges_path: Path, config: TokenizerConfig) -> tuple[Tokenizer, SpecialTokens]:
    """CLIP: byte-level BPE of lowercased words, whose last token ends in `</w>`."""
    backend = Tokenizer(
        read_bpe(vocab_path, merges_path, unk_token=_unk_token(config, CLIP_TOKENS), end_of_word_suffix="</w>")
    )
    backend.normalizer = normalizers.Sequence(
        [normalizers.NFC(), normalizers.Replace(Regex(r"\s+"), " "), normalizers.Lowercase()]
    )
    backend.pre_tokenizer = pre_tokenizers.Sequence(
        [
            pre_tokenizers.Split(Regex(CLIP_PATTERN), behavior="removed", invert=True),
            pre_tokenizers.ByteLevel(add_prefix_space=False),
        ]
    )
    backend.decoder = clip_decoder()
    special_tokens = resolve_special_tokens(config, CLIP_TOKENS, backend)
    register_tokens(backend, config, special_tokens)
    bos = require_token(special_tokens.bos, "bos", "<|startoftext|>", vocab_path)
    eos = require_token(special_tokens.eos, "eos", "<|endoftext|>", vocab_path)
    vocab = backend.get_vocab()
    backend.post_processor = processors.RobertaProcessing(
        (eos, vocab[eos]), (bos, vocab[bos]), trim_offsets=False, add_prefix_space=False
    )
    return backend, special_tokens


def clip_decoder() -> decoders.Decoder:
    """Build CLIP's decoder: bytes to text, and `</w>` to a space."""
    strip = decoders.Replace(Regex(r"^(</w>|[\s\x1c-\x1f])+|(</w>|[\s\x1c-\x1f])+$"), "")
    return decoders.Sequence([decoders.ByteLevel(), strip, decoders.Replace("</w>", " ")])


def read_bpe(
    vocab_path: Path, merges_path: Path, *, unk_token: str | None = None, end_of_word_suffix: str = ""
) -> models.BPE:
    """Read a BPE model from its vocabulary and merges files."""
    vocab, merges = read_vocab(vocab_path), read_merges(merges_path)
    for index, (left, right) in enumerate(merges):
        for token in (left, right, left + right):
            if token not in vocab:
                raise TokenizerError(
                    f"{merges_path}, merge {index + 1} ({left} {right}): {token!r} is not in {vocab_path.name}. "
                    f"Check that {merges_path.name} and {vocab_path.name} come from the same model"
                )
    return models.BPE(
        vocab=vocab,
        merges=merges,
        unk_token=unk_token,
        continuing_subword_prefix="",
        end_of_word_suffix=end_of_word_suffix,
        fuse_unk=False,
    )


def read_vocab(path: Path) -> dict[str, int]:
    """Read tokens and ids from a `vocab.json`."""
    vocab = read_json(path, TokenizerError)
    for token, token_id in vocab.items():
        if not isinstance(token_id, int) or isinstance(token_id, bool) or token_id < 0:
            raise TokenizerError(f"{path}: token {token!r} has the id {token_id!r}; expected a non-negative integer")
    if not vocab:
        raise TokenizerError(f"{path}: the vocabulary is empty")
    return vocab


def read_merges(path: Path) -> list[tuple[str, str]]:
    """Read the merges from a `merges.txt`, in their order."""
    merges = []
    for line_number, line in enumerate(read_text(path, TokenizerError).replace("\r\n", "\n").split("\n"), 1):
        if line.startswith("#version") or not line:
            continue
        left, space, right = line.partition(" ")
        if not space or not left or not right or " " in right:
            raise TokenizerError(
                f"{path}, line {line_number}: expected two tokens separated by one space, found {line!r}"
            )
        merges.append((left, right))
    return merges


def build_template(backend: Tokenizer, single: str, pair: str) -> processors.TemplateProcessing:
    """Build the post-processing template for single texts and for pairs.

    Each item is `name:segment`: `$A` and `$B` are the texts, all other names are special tokens.
    """
    tokens = {item.rpartition(":")[0] for item in f"{single} {pair}".split()} - {"$A", "$B"}
    special = [(token, backend.token_to_id(token)) for token in sorted(tokens)]
    return processors.TemplateProcessing(single=single, pair=pair, special_tokens=special)


def require_token(token: str | None, role: str, example: str, path: Path) -> str:
    """Return a special token that the family needs; raise an error if the vocabulary has none."""
    if token is None:
        raise TokenizerError(f"{path}: the vocabulary has no {role} token (usually {example})")
    return token


def _unk_token(config: TokenizerConfig, defaults: SpecialTokens) -> str:
    value = config.get("unk_token", defaults.unk)
    return str(value["content"] if isinstance(value, dict) else value)


def _with_bos_eos(
    backend: Tokenizer, config: TokenizerConfig, special_tokens: SpecialTokens
) -> tuple[Tokenizer, SpecialTokens]:
    register_tokens(backend, config, special_tokens)
    backend.post_processor = bos_eos_template(backend, config, special_tokens)
    return backend, special_tokens


def bos_eos_template(
    backend: Tokenizer, config: TokenizerConfig, special_tokens: SpecialTokens
) -> processors.TemplateProcessing:
    """Build the template that adds BOS and EOS if `add_bos_token` and `add_eos_token` are set (default: neither)."""
    bos = special_tokens.bos if config.get("add_bos_token") else None
    eos = special_tokens.eos if config.get("add_eos_token") else None

    def wrap(text: str, segment: int) -> str:
        return " ".join(f"{item}:{segment}" for item in (bos, text, eos) if item)

    return build_template(backend, wrap("$A", 0), f"{wrap('$A', 0)} {wrap('$B', 1)}")
