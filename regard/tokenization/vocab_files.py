"""Vocabularies in files of their own: `vocab.txt`, and `vocab.json` with `merges.txt`. One function for each family.

What a family does to a text before it is cut (lower-casing, how words are found) is nowhere in these files: it is
written down here.
"""

from __future__ import annotations

from pathlib import Path

from tokenizers import Regex, Tokenizer, decoders, models, normalizers, pre_tokenizers, processors

from regard.tokenization.io import TokenizerError, read_json, read_text
from regard.tokenization.special_tokens import Theirs, add, named
from regard.tokenization.tokenizer import Names

BERT = Names(padding="[PAD]", unknown="[UNK]", separator="[SEP]", classify="[CLS]", mask="[MASK]")
GPT = Names(unknown="<unk>")
GPT2 = Names(unknown="<|endoftext|>", begin="<|endoftext|>", end="<|endoftext|>")
ROBERTA = Names(
    padding="<pad>", unknown="<unk>", begin="<s>", end="</s>", separator="</s>", classify="<s>", mask="<mask>"
)
CLIP = Names(padding="<|endoftext|>", unknown="<|endoftext|>", begin="<|startoftext|>", end="<|endoftext|>")

CLIP_WORDS = r"<\|startoftext\|>|<\|endoftext\|>|'s|'t|'re|'ve|'m|'ll|'d|[\p{L}]+|[\p{N}]|[^\s\p{L}\p{N}]+"


def bert(vocabulary: Path, theirs: Theirs) -> tuple[Tokenizer, Names]:
    """BERT, DistilBERT, ELECTRA: words cut by the longest known piece; pieces inside a word begin with ##."""
    read_text(vocabulary)  # says what is wrong with a file that is no text
    core = Tokenizer(models.WordPiece(models.WordPiece.read_file(str(vocabulary)), unk_token=_unknown(theirs, BERT)))
    core.normalizer = normalizers.BertNormalizer(
        clean_text=True,
        handle_chinese_chars=bool(theirs.get("tokenize_chinese_chars", True)),
        strip_accents=theirs.get("strip_accents"),
        lowercase=bool(theirs.get("do_lower_case", True)),
    )
    core.pre_tokenizer = pre_tokenizers.BertPreTokenizer()
    core.decoder = decoders.WordPiece(prefix="##")
    names = named(theirs, BERT, core)
    if names.unknown is None:
        raise TokenizerError(f"{vocabulary}: there is no {_unknown(theirs, BERT)} in it, which every vocab.txt has")
    add(core, theirs, names)
    first, last = required(names.classify, "[CLS]", vocabulary), required(names.separator, "[SEP]", vocabulary)
    core.post_processor = template(core, f"{first}:0 $A:0 {last}:0", f"{first}:0 $A:0 {last}:0 $B:1 {last}:1")
    return core, names


def gpt(vocabulary: Path, merges: Path, theirs: Theirs) -> tuple[Tokenizer, Names]:
    """GPT: lower-cased words, whose last piece ends in `</w>`; nothing is added around a text."""
    core = Tokenizer(bpe(vocabulary, merges, unknown=_unknown(theirs, GPT), end="</w>"))
    core.normalizer = normalizers.BertNormalizer(lowercase=True)
    core.pre_tokenizer = pre_tokenizers.BertPreTokenizer()
    core.decoder = decoders.BPEDecoder(suffix="</w>")
    return _with_begin_and_end(core, theirs, named(theirs, GPT, core))


def gpt2(vocabulary: Path, merges: Path, theirs: Theirs) -> tuple[Tokenizer, Names]:
    """GPT-2 and GPT-3: bytes, written as printable characters. Nothing is unknown, and texts come back exactly."""
    core = Tokenizer(bpe(vocabulary, merges))
    core.pre_tokenizer = pre_tokenizers.ByteLevel(add_prefix_space=bool(theirs.get("add_prefix_space", False)))
    core.decoder = decoders.ByteLevel()
    return _with_begin_and_end(core, theirs, named(theirs, GPT2, core))


def roberta(vocabulary: Path, merges: Path, theirs: Theirs) -> tuple[Tokenizer, Names]:
    """RoBERTa and BART: GPT-2's pieces between `<s>` and `</s>`; a pair has two `</s>` in the middle."""
    core, _ = gpt2(vocabulary, merges, {key: theirs[key] for key in ("add_prefix_space",) if key in theirs})
    names = named(theirs, ROBERTA, core)
    add(core, theirs, names)
    first, last = required(names.classify, "<s>", vocabulary), required(names.separator, "</s>", vocabulary)
    ids, trim, space = core.get_vocab(), theirs.get("trim_offsets", True), theirs.get("add_prefix_space", False)
    core.post_processor = processors.RobertaProcessing(
        (last, ids[last]), (first, ids[first]), trim_offsets=bool(trim), add_prefix_space=bool(space)
    )
    return core, names


def clip(vocabulary: Path, merges: Path, theirs: Theirs) -> tuple[Tokenizer, Names]:
    """CLIP: lower-cased words of bytes, whose last piece ends in `</w>`."""
    core = Tokenizer(bpe(vocabulary, merges, unknown=_unknown(theirs, CLIP), end="</w>"))
    core.normalizer = normalizers.Sequence(
        [normalizers.NFC(), normalizers.Replace(Regex(r"\s+"), " "), normalizers.Lowercase()]
    )
    core.pre_tokenizer = pre_tokenizers.Sequence(
        [
            pre_tokenizers.Split(Regex(CLIP_WORDS), behavior="removed", invert=True),
            pre_tokenizers.ByteLevel(add_prefix_space=False),
        ]
    )
    core.decoder = clip_decoder()
    names = named(theirs, CLIP, core)
    add(core, theirs, names)
    first, last = required(names.begin, "<|startoftext|>", vocabulary), required(names.end, "<|endoftext|>", vocabulary)
    ids = core.get_vocab()
    core.post_processor = processors.RobertaProcessing(
        (last, ids[last]), (first, ids[first]), trim_offsets=False, add_prefix_space=False
    )
    return core, names


def clip_decoder() -> decoders.Decoder:
    """Bytes to text, and the end of a word to a space."""
    outside = decoders.Replace(Regex(r"^(</w>|[\s\x1c-\x1f])+|(</w>|[\s\x1c-\x1f])+$"), "")
    return decoders.Sequence([decoders.ByteLevel(), outside, decoders.Replace("</w>", " ")])


def bpe(vocabulary: Path, merges: Path, *, unknown: str | None = None, end: str = "") -> models.BPE:
    """Byte-pair encoding from its two files."""
    ids, pairs = read_vocabulary(vocabulary), read_merges(merges)
    for number, (left, right) in enumerate(pairs):
        for piece in (left, right, left + right):
            if piece not in ids:
                raise TokenizerError(
                    f"{merges}, merge {number + 1} ({left} {right}): {piece!r} is not in {vocabulary.name}. "
                    "Check that the two files belong together"
                )
    return models.BPE(
        vocab=ids, merges=pairs, unk_token=unknown, continuing_subword_prefix="", end_of_word_suffix=end, fuse_unk=False
    )


def read_vocabulary(path: Path) -> dict[str, int]:
    """Tokens and ids from a `vocab.json`."""
    values = read_json(path)
    for token, number in values.items():
        if not isinstance(number, int) or isinstance(number, bool) or number < 0:
            raise TokenizerError(f"{path}: token {token!r} has the id {number!r}; expected a whole number from 0")
    if not values:
        raise TokenizerError(f"{path}: the vocabulary is empty")
    return values


def read_merges(path: Path) -> list[tuple[str, str]]:
    """Pairs of pieces, in the order in which they are joined."""
    pairs = []
    for number, line in enumerate(read_text(path).replace("\r\n", "\n").split("\n"), 1):
        if line.startswith("#version") or not line:
            continue
        left, space, right = line.partition(" ")
        if not space or not left or not right or " " in right:
            raise TokenizerError(f"{path}, line {number}: expected two pieces with a space between, found {line!r}")
        pairs.append((left, right))
    return pairs


def template(core: Tokenizer, single: str, pair: str) -> processors.TemplateProcessing:
    """What stands around a text, and around a pair of texts. A word with a colon and a number is a special token."""
    words = {word.rpartition(":")[0] for word in f"{single} {pair}".split()} - {"$A", "$B"}
    special = [(word, core.token_to_id(word)) for word in sorted(words)]
    return processors.TemplateProcessing(single=single, pair=pair, special_tokens=special)


def required(token: str | None, usual: str, path: Path) -> str:
    """A special token that the family cannot do without."""
    if token is None:
        raise TokenizerError(f"{path}: the vocabulary lacks the special token that is usually written {usual}")
    return token


def _unknown(theirs: Theirs, usual: Names) -> str:
    value = theirs.get("unk_token", usual.unknown)
    return str(value["content"] if isinstance(value, dict) else value)


def _with_begin_and_end(core: Tokenizer, theirs: Theirs, names: Names) -> tuple[Tokenizer, Names]:
    add(core, theirs, names)
    core.post_processor = begin_and_end(core, theirs, names)
    return core, names


def begin_and_end(core: Tokenizer, theirs: Theirs, names: Names) -> processors.TemplateProcessing:
    """The first and the last token of a text, where the files ask for them: most of these families have none."""
    before = names.begin if theirs.get("add_bos_token") else None
    after = names.end if theirs.get("add_eos_token") else None

    def around(text: str, side: int) -> str:
        return " ".join(f"{word}:{side}" for word in (before, text, after) if word)

    return template(core, around("$A", 0), f"{around('$A', 0)} {around('$B', 1)}")
