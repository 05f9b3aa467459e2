"""Families whose vocabulary is a SentencePiece model: T5, ALBERT, XLNet, mBART, Llama. One function for each.

The model file holds the pieces; the functions here add each family's normalization, pre-tokenization and
post-processing template.
"""

from __future__ import annotations

from pathlib import Path

from tokenizers import AddedToken, Regex, Tokenizer, decoders, models, normalizers, pre_tokenizers

from regard.tokenization.io import TokenizerError
from regard.tokenization.sentencepiece_model import ModelType, PieceType, SentencePieceModel
from regard.tokenization.special_tokens import TokenizerConfig, register_tokens, resolve_special_tokens
from regard.tokenization.tokenizer import SpecialTokens
from regard.tokenization.vocab_files import ROBERTA_TOKENS, bos_eos_template, build_template, require_token

T5_TOKENS = SpecialTokens(pad="<pad>", unk="<unk>", eos="</s>")
ALBERT_TOKENS = SpecialTokens(
    pad="<pad>",
    unk="<unk>",
    bos="[CLS]",
    eos="[SEP]",
    sep="[SEP]",
    cls="[CLS]",
    mask="[MASK]",
)
XLNET_TOKENS = SpecialTokens(
    pad="<pad>",
    unk="<unk>",
    bos="<s>",
    eos="</s>",
    sep="<sep>",
    cls="<cls>",
    mask="<mask>",
)
LLAMA_TOKENS = SpecialTokens(unk="<unk>", bos="<s>", eos="</s>")

_MBART25_CODES = (
    "ar_AR cs_CZ de_DE en_XX es_XX et_EE fi_FI fr_XX gu_IN hi_IN it_IT ja_XX kk_KZ ko_KR lt_LT lv_LV my_MM ne_NP "
    "nl_XX ro_RO ru_RU si_LK tr_TR vi_VN zh_CN"
)
MBART_LANGUAGES = _MBART25_CODES.split()
_MBART50_EXTRA_CODES = (
    "af_ZA az_AZ bn_IN fa_IR he_IL hr_HR id_ID ka_GE km_KH mk_MK ml_IN mn_MN mr_IN pl_PL ps_AF pt_XX sv_SE sw_KE "
    "ta_IN te_IN th_TH tl_XX uk_UA ur_PK xh_ZA gl_ES sl_SI"
)
MBART50_LANGUAGES = [*MBART_LANGUAGES, *_MBART50_EXTRA_CODES.split()]


def t5(model: SentencePieceModel, path: Path, config: TokenizerConfig) -> tuple[Tokenizer, SpecialTokens]:
    """T5: split at whitespace, `</s>` at the end, and 100 sentinel tokens in reverse order (`<extra_id_99>` first)."""
    _require_model_type(ModelType.UNIGRAM, model, path)
    sentinels = [f"<extra_id_{index}>" for index in reversed(range(int(config.get("extra_ids", 100))))]
    scores = [*model.scores, *((sentinel, 0.0) for sentinel in sentinels)]
    backend = Tokenizer(models.Unigram(scores, unk_id=2, byte_fallback=False))
    if model.precompiled_charsmap:
        backend.normalizer = normalizers.Precompiled(model.precompiled_charsmap)
    _set_metaspace(backend)
    special_tokens = resolve_special_tokens(config, T5_TOKENS, backend)
    _add_special_pieces(backend, model)
    backend.add_special_tokens(sentinels)
    register_tokens(backend, config, special_tokens)
    eos = require_token(special_tokens.eos, "eos", "</s>", path)
    backend.post_processor = build_template(backend, f"$A:0 {eos}:0", f"$A:0 {eos}:0 $B:0 {eos}:0")
    return backend, special_tokens


def albert(model: SentencePieceModel, path: Path, config: TokenizerConfig) -> tuple[Tokenizer, SpecialTokens]:
    """ALBERT: straight quotes, stripped accents, lowercase; `[CLS] … [SEP]`."""
    _require_model_type(ModelType.UNIGRAM, model, path)
    backend = Tokenizer(models.Unigram(model.scores, unk_id=1, byte_fallback=False))
    backend.normalizer = _build_normalizer(
        model, keep_accents=bool(config.get("keep_accents", False)), lowercase=bool(config.get("do_lower_case", True))
    )
    _set_metaspace(backend)
    special_tokens = resolve_special_tokens(config, ALBERT_TOKENS, backend)
    _add_special_pieces(backend, model)
    register_tokens(backend, config, special_tokens)
    cls, sep = (
        require_token(special_tokens.cls, "cls", "[CLS]", path),
        require_token(special_tokens.sep, "sep", "[SEP]", path),
    )
    backend.post_processor = build_template(backend, f"{cls}:0 $A:0 {sep}:0", f"{cls}:0 $A:0 {sep}:0 $B:1 {sep}:1")
    return backend, special_tokens


def xlnet(model: SentencePieceModel, path: Path, config: TokenizerConfig) -> tuple[Tokenizer, SpecialTokens]:
    """XLNet: straight quotes, stripped accents; the special tokens come at the end: `… <sep> <cls>`."""
    _require_model_type(ModelType.UNIGRAM, model, path)
    backend = Tokenizer(models.Unigram(model.scores, unk_id=model.unk_id, byte_fallback=False))
    backend.normalizer = _build_normalizer(
        model, keep_accents=False, lowercase=bool(config.get("do_lower_case", False))
    )
    _set_metaspace(backend)
    special_tokens = resolve_special_tokens(config, XLNET_TOKENS, backend)
    _add_special_pieces(backend, model)
    if special_tokens.mask is not None:  # the mask token includes the space before it
        backend.add_special_tokens([AddedToken(special_tokens.mask, lstrip=True, special=True, normalized=False)])
    register_tokens(backend, {"mask_token": {"content": special_tokens.mask, "lstrip": True}, **config}, special_tokens)
    sep, cls = (
        require_token(special_tokens.sep, "sep", "<sep>", path),
        require_token(special_tokens.cls, "cls", "<cls>", path),
    )
    backend.post_processor = build_template(backend, f"$A:0 {sep}:0 {cls}:2", f"$A:0 {sep}:0 $B:1 {sep}:1 {cls}:2")
    return backend, special_tokens


def mbart(model: SentencePieceModel, path: Path, config: TokenizerConfig) -> tuple[Tokenizer, SpecialTokens]:
    """mBART: fairseq's first four tokens, and one of 25 language codes after the text: `… </s> en_XX`."""
    backend, special_tokens = _build_fairseq_unigram(model, path, config, MBART_LANGUAGES)
    _set_metaspace(backend)
    eos, code = require_token(special_tokens.eos, "eos", "</s>", path), str(config.get("src_lang") or "en_XX")
    backend.post_processor = build_template(backend, f"$A:0 {eos}:0 {code}:0", f"$A:0 $B:0 {eos}:0 {code}:0")
    return backend, special_tokens


def mbart50(model: SentencePieceModel, path: Path, config: TokenizerConfig) -> tuple[Tokenizer, SpecialTokens]:
    """mBART-50: one of 52 language codes before the text: `en_XX … </s>`."""
    backend, special_tokens = _build_fairseq_unigram(model, path, config, MBART50_LANGUAGES)
    charsmap = [normalizers.Precompiled(model.precompiled_charsmap)] if model.precompiled_charsmap else []
    backend.normalizer = normalizers.Sequence([*charsmap, normalizers.Replace(Regex(" {2,}"), " ")])
    backend.pre_tokenizer = pre_tokenizers.Metaspace(replacement="▁", prepend_scheme="always", split=True)
    backend.decoder = decoders.Metaspace(replacement="▁", prepend_scheme="always", split=True)
    eos, code = require_token(special_tokens.eos, "eos", "</s>", path), str(config.get("src_lang") or "en_XX")
    backend.post_processor = build_template(backend, f"{code}:0 $A:0 {eos}:0", f"{code}:0 $A:0 $B:0 {eos}:0")
    return backend, special_tokens


def llama(model: SentencePieceModel, path: Path, config: TokenizerConfig) -> tuple[Tokenizer, SpecialTokens]:
    """Llama: byte-pair encoding of whole texts, including spaces; unknown characters fall back to bytes."""
    _require_model_type(ModelType.BPE, model, path)
    vocab = {piece.text: index for index, piece in enumerate(model.pieces)}
    backend = Tokenizer(models.BPE(vocab=vocab, merges=extract_merges(vocab), fuse_unk=True, byte_fallback=True))
    prefix_space = bool(config.get("add_prefix_space", True) is not False)
    scheme = ("always" if config.get("legacy") else "first") if prefix_space else "never"
    backend.pre_tokenizer = pre_tokenizers.Metaspace(replacement="▁", prepend_scheme=scheme, split=False)
    steps = [decoders.Replace("▁", " "), decoders.ByteFallback(), decoders.Fuse()]
    backend.decoder = decoders.Sequence([*steps, decoders.Strip(" ", 1, 0)] if prefix_space else steps)
    special_tokens = resolve_special_tokens(config, LLAMA_TOKENS, backend)
    _add_special_pieces(backend, model)
    register_tokens(backend, config, special_tokens)
    backend.post_processor = bos_eos_template(backend, config, special_tokens)
    return backend, special_tokens


def extract_merges(vocab: dict[str, int]) -> list[tuple[str, str]]:
    """Return the merges that a SentencePiece BPE vocabulary implies: pieces with lower ids are merged first.

    Of several merges that produce the same piece, those of shorter parts, then of parts with lower ids, come first.
    """
    merges: list[tuple[int, int, int, int, int, str, str]] = []
    for piece, piece_id in vocab.items():
        for split in range(1, len(piece)):
            left, right = piece[:split], piece[split:]
            if left in vocab and right in vocab:
                merges.append((piece_id, len(left), len(right), vocab[left], vocab[right], left, right))
    return [(left, right) for *_, left, right in sorted(merges)]


def _require_model_type(model_type: ModelType, model: SentencePieceModel, path: Path) -> None:
    if model.model_type is not model_type:
        expected, found = model_type.name.lower(), model.model_type.name.lower()
        raise TokenizerError(f"{path}: this family needs a {expected} model; this is a {found} model")


def _set_metaspace(backend: Tokenizer) -> None:
    """Split at whitespace, and start each word with ▁."""
    metaspace = pre_tokenizers.Metaspace(replacement="▁", prepend_scheme="always", split=True)
    backend.pre_tokenizer = pre_tokenizers.Sequence([pre_tokenizers.WhitespaceSplit(), metaspace])
    backend.decoder = decoders.Metaspace(replacement="▁", prepend_scheme="always", split=True)


def _build_normalizer(model: SentencePieceModel, *, keep_accents: bool, lowercase: bool) -> normalizers.Sequence:
    steps: list[normalizers.Normalizer] = [normalizers.Replace("``", '"'), normalizers.Replace("''", '"')]
    if not keep_accents:
        steps += [normalizers.NFKD(), normalizers.StripAccents()]
    if lowercase:
        steps.append(normalizers.Lowercase())
    if model.precompiled_charsmap:
        steps.append(normalizers.Precompiled(model.precompiled_charsmap))
    return normalizers.Sequence(steps)


def _build_fairseq_unigram(
    model: SentencePieceModel, path: Path, config: TokenizerConfig, languages: list[str]
) -> tuple[Tokenizer, SpecialTokens]:
    """Build a unigram model of fairseq's first four tokens, the pieces, the language codes and the mask token."""
    first = [(token, 0.0) for token in ("<s>", "<pad>", "</s>", "<unk>")]
    last = [(token, 0.0) for token in (*languages, "<mask>")]
    _require_model_type(ModelType.UNIGRAM, model, path)
    backend = Tokenizer(models.Unigram([*first, *model.scores[3:], *last], unk_id=3, byte_fallback=False))
    special_tokens = resolve_special_tokens(config, ROBERTA_TOKENS, backend)
    _add_special_pieces(backend, model)
    backend.add_special_tokens(languages)
    if special_tokens.mask is not None:
        backend.add_special_tokens([AddedToken(special_tokens.mask, lstrip=True, special=True, normalized=False)])
    register_tokens(backend, {"mask_token": {"content": special_tokens.mask, "lstrip": True}, **config}, special_tokens)
    return backend, special_tokens


def _add_special_pieces(backend: Tokenizer, model: SentencePieceModel) -> None:
    """Register control pieces as special tokens and user-defined pieces as added tokens, which always match."""
    for piece in model.pieces:
        if piece.type is PieceType.CONTROL:
            backend.add_special_tokens([AddedToken(piece.text, normalized=False, special=True)])
        elif piece.type is PieceType.USER_DEFINED:
            backend.add_tokens([AddedToken(piece.text, normalized=False, special=False)])
