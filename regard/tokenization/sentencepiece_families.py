"""Families whose vocabulary is a SentencePiece model: T5, ALBERT, XLNet, mBART, Llama. One function for each.

Most models cut text by themselves; what the family does to a text before, and adds around it, is written down here.
"""

from __future__ import annotations

from pathlib import Path

from tokenizers import AddedToken, Regex, Tokenizer, decoders, models, normalizers, pre_tokenizers

from regard.tokenization.io import TokenizerError
from regard.tokenization.sentencepiece_model import Kind, PieceKind, SentencePiece
from regard.tokenization.special_tokens import Theirs, add, named
from regard.tokenization.tokenizer import Names
from regard.tokenization.vocab_files import ROBERTA, begin_and_end, required, template

T5 = Names(padding="<pad>", unknown="<unk>", end="</s>")
ALBERT = Names(
    padding="<pad>",
    unknown="<unk>",
    begin="[CLS]",
    end="[SEP]",
    separator="[SEP]",
    classify="[CLS]",
    mask="[MASK]",
)
XLNET = Names(
    padding="<pad>",
    unknown="<unk>",
    begin="<s>",
    end="</s>",
    separator="<sep>",
    classify="<cls>",
    mask="<mask>",
)
LLAMA = Names(unknown="<unk>", begin="<s>", end="</s>")

_FIRST = (
    "ar_AR cs_CZ de_DE en_XX es_XX et_EE fi_FI fr_XX gu_IN hi_IN it_IT ja_XX kk_KZ ko_KR lt_LT lv_LV my_MM ne_NP "
    "nl_XX ro_RO ru_RU si_LK tr_TR vi_VN zh_CN"
)
MBART_LANGUAGES = _FIRST.split()
_MORE = (
    "af_ZA az_AZ bn_IN fa_IR he_IL hr_HR id_ID ka_GE km_KH mk_MK ml_IN mn_MN mr_IN pl_PL ps_AF pt_XX sv_SE sw_KE "
    "ta_IN te_IN th_TH tl_XX uk_UA ur_PK xh_ZA gl_ES sl_SI"
)
MBART50_LANGUAGES = [*MBART_LANGUAGES, *_MORE.split()]


def t5(model: SentencePiece, path: Path, theirs: Theirs) -> tuple[Tokenizer, Names]:
    """T5: words by spaces, `</s>` at the end, and a hundred tokens that stand for gaps, the last of them first."""
    _expect(Kind.UNIGRAM, model, path)
    gaps = [f"<extra_id_{number}>" for number in reversed(range(int(theirs.get("extra_ids", 100))))]
    core = Tokenizer(models.Unigram([*model.scores, *((gap, 0.0) for gap in gaps)], unk_id=2, byte_fallback=False))
    if model.characters:
        core.normalizer = normalizers.Precompiled(model.characters)
    _by_words(core)
    names = named(theirs, T5, core)
    _add_pieces(core, model)
    core.add_special_tokens(gaps)
    add(core, theirs, names)
    end = required(names.end, "</s>", path)
    core.post_processor = template(core, f"$A:0 {end}:0", f"$A:0 {end}:0 $B:0 {end}:0")
    return core, names


def albert(model: SentencePiece, path: Path, theirs: Theirs) -> tuple[Tokenizer, Names]:
    """ALBERT: quotes made straight, accents taken off, lower-cased; `[CLS] … [SEP]`."""
    _expect(Kind.UNIGRAM, model, path)
    core = Tokenizer(models.Unigram(model.scores, unk_id=1, byte_fallback=False))
    core.normalizer = _plain(
        model, accents=bool(theirs.get("keep_accents", False)), lower=bool(theirs.get("do_lower_case", True))
    )
    _by_words(core)
    names = named(theirs, ALBERT, core)
    _add_pieces(core, model)
    add(core, theirs, names)
    first, last = required(names.classify, "[CLS]", path), required(names.separator, "[SEP]", path)
    core.post_processor = template(core, f"{first}:0 $A:0 {last}:0", f"{first}:0 $A:0 {last}:0 $B:1 {last}:1")
    return core, names


def xlnet(model: SentencePiece, path: Path, theirs: Theirs) -> tuple[Tokenizer, Names]:
    """XLNet: quotes made straight, accents taken off; what BERT puts first stands last: `… <sep> <cls>`."""
    _expect(Kind.UNIGRAM, model, path)
    core = Tokenizer(models.Unigram(model.scores, unk_id=model.unknown, byte_fallback=False))
    core.normalizer = _plain(model, accents=False, lower=bool(theirs.get("do_lower_case", False)))
    _by_words(core)
    names = named(theirs, XLNET, core)
    _add_pieces(core, model)
    if names.mask is not None:  # the mask takes the space before it with it
        core.add_special_tokens([AddedToken(names.mask, lstrip=True, special=True, normalized=False)])
    add(core, {"mask_token": {"content": names.mask, "lstrip": True}, **theirs}, names)
    last, whole = required(names.separator, "<sep>", path), required(names.classify, "<cls>", path)
    core.post_processor = template(core, f"$A:0 {last}:0 {whole}:2", f"$A:0 {last}:0 $B:1 {last}:1 {whole}:2")
    return core, names


def mbart(model: SentencePiece, path: Path, theirs: Theirs) -> tuple[Tokenizer, Names]:
    """mBART: fairseq's first four tokens, and a code for each of 25 languages after the text: `… </s> en_XX`."""
    core, names = _fairseq(model, path, theirs, MBART_LANGUAGES)
    _by_words(core)
    end, code = required(names.end, "</s>", path), str(theirs.get("src_lang") or "en_XX")
    core.post_processor = template(core, f"$A:0 {end}:0 {code}:0", f"$A:0 $B:0 {end}:0 {code}:0")
    return core, names


def mbart50(model: SentencePiece, path: Path, theirs: Theirs) -> tuple[Tokenizer, Names]:
    """mBART-50: 52 languages, whose code stands before the text: `en_XX … </s>`."""
    core, names = _fairseq(model, path, theirs, MBART50_LANGUAGES)
    spaces = [normalizers.Replace(Regex(" {2,}"), " ")]
    core.normalizer = normalizers.Sequence(
        [*([normalizers.Precompiled(model.characters)] if model.characters else []), *spaces]
    )
    core.pre_tokenizer = pre_tokenizers.Metaspace(replacement="▁", prepend_scheme="always", split=True)
    core.decoder = decoders.Metaspace(replacement="▁", prepend_scheme="always", split=True)
    end, code = required(names.end, "</s>", path), str(theirs.get("src_lang") or "en_XX")
    core.post_processor = template(core, f"{code}:0 $A:0 {end}:0", f"{code}:0 $A:0 $B:0 {end}:0")
    return core, names


def llama(model: SentencePiece, path: Path, theirs: Theirs) -> tuple[Tokenizer, Names]:
    """Llama: byte-pair encoding of whole texts, spaces included; what is unknown is written as bytes."""
    _expect(Kind.BPE, model, path)
    ids = {piece.text: number for number, piece in enumerate(model.pieces)}
    core = Tokenizer(models.BPE(vocab=ids, merges=merges_of(ids), fuse_unk=True, byte_fallback=True))
    space = bool(theirs.get("add_prefix_space", True) is not False)
    first = ("always" if theirs.get("legacy") else "first") if space else "never"
    core.pre_tokenizer = pre_tokenizers.Metaspace(replacement="▁", prepend_scheme=first, split=False)
    steps = [decoders.Replace("▁", " "), decoders.ByteFallback(), decoders.Fuse()]
    core.decoder = decoders.Sequence([*steps, decoders.Strip(" ", 1, 0)] if space else steps)
    names = named(theirs, LLAMA, core)
    _add_pieces(core, model)
    add(core, theirs, names)
    core.post_processor = begin_and_end(core, theirs, names)
    return core, names


def merges_of(ids: dict[str, int]) -> list[tuple[str, str]]:
    """The order of joining that a SentencePiece byte-pair vocabulary implies: earlier pieces are joined first.

    Where a piece can be joined from several pairs, the one of shorter and earlier parts comes first.
    """
    merges: list[tuple[int, int, int, int, int, str, str]] = []
    for piece, number in ids.items():
        for cut in range(1, len(piece)):
            left, right = piece[:cut], piece[cut:]
            if left in ids and right in ids:
                merges.append((number, len(left), len(right), ids[left], ids[right], left, right))
    return [(left, right) for *_, left, right in sorted(merges)]


def _expect(kind: Kind, model: SentencePiece, path: Path) -> None:
    if model.kind is not kind:
        raise TokenizerError(
            f"{path}: this family has {kind.name.lower()} models, and this is {model.kind.name.lower()}"
        )


def _by_words(core: Tokenizer) -> None:
    """Words end at any white space; each begins with ▁."""
    space = pre_tokenizers.Metaspace(replacement="▁", prepend_scheme="always", split=True)
    core.pre_tokenizer = pre_tokenizers.Sequence([pre_tokenizers.WhitespaceSplit(), space])
    core.decoder = decoders.Metaspace(replacement="▁", prepend_scheme="always", split=True)


def _plain(model: SentencePiece, *, accents: bool, lower: bool) -> normalizers.Sequence:
    steps: list[normalizers.Normalizer] = [normalizers.Replace("``", '"'), normalizers.Replace("''", '"')]
    if not accents:
        steps += [normalizers.NFKD(), normalizers.StripAccents()]
    if lower:
        steps.append(normalizers.Lowercase())
    if model.characters:
        steps.append(normalizers.Precompiled(model.characters))
    return normalizers.Sequence(steps)


def _fairseq(model: SentencePiece, path: Path, theirs: Theirs, languages: list[str]) -> tuple[Tokenizer, Names]:
    """The pieces behind fairseq's first four tokens, with the languages and the mask after them."""
    first = [(token, 0.0) for token in ("<s>", "<pad>", "</s>", "<unk>")]
    last = [(token, 0.0) for token in (*languages, "<mask>")]
    _expect(Kind.UNIGRAM, model, path)
    core = Tokenizer(models.Unigram([*first, *model.scores[3:], *last], unk_id=3, byte_fallback=False))
    names = named(theirs, ROBERTA, core)
    _add_pieces(core, model)
    core.add_special_tokens(languages)
    if names.mask is not None:
        core.add_special_tokens([AddedToken(names.mask, lstrip=True, special=True, normalized=False)])
    add(core, {"mask_token": {"content": names.mask, "lstrip": True}, **theirs}, names)
    return core, names


def _add_pieces(core: Tokenizer, model: SentencePiece) -> None:
    """Control pieces are never found in a text by accident; pieces that the maker defined always are."""
    for piece in model.pieces:
        if piece.kind is PieceKind.CONTROL:
            core.add_special_tokens([AddedToken(piece.text, normalized=False, special=True)])
        elif piece.kind is PieceKind.USER_DEFINED:
            core.add_tokens([AddedToken(piece.text, normalized=False, special=False)])
