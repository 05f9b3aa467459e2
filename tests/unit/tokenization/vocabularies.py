"""Small vocabularies, trained here and saved in each of the published file formats."""

import functools
import json
import random
import tempfile
from pathlib import Path

import sentencepiece
from tokenizers import Regex, Tokenizer, models, normalizers, pre_tokenizers, trainers
from unit.tokenization.sample_texts import NUMBERS, WORDS

from regard.tokenization.algorithms import ByteBPE, WordPiece
from regard.tokenization.tokenizer import SpecialTokens
from regard.tokenization.tokenizer_trainer import train_tokenizer

ROBERTA = SpecialTokens(pad="<pad>", unk="<unk>", bos="<s>", eos="</s>", sep=None, cls=None, mask="<mask>")


@functools.cache
def corpus(count=3000, seed=3):
    """Training sentences: some words are frequent, some rare, some absent."""
    rng = random.Random(seed)
    words = [word for word in WORDS if hash_of(word) % 4]

    def word():
        if rng.random() < 0.05:
            return rng.choice(NUMBERS)
        return rng.choice(words) + (rng.choice(words) if rng.random() < 0.4 else "")

    return [" ".join(word() for _ in range(9)) + "." for _ in range(count)]


def hash_of(word):
    return sum(ord(character) * (index + 1) for index, character in enumerate(word))


def bert(folder):
    tokens = train_tokenizer(WordPiece(size=600, lowercase=True), corpus()).get_vocab()
    (folder / "vocab.txt").write_text("".join(f"{token}\n" for token in sorted(tokens, key=tokens.get)), "utf-8")


def gpt2(folder):
    _byte_level(folder, SpecialTokens(eos="<|endoftext|>"))


def roberta(folder):
    _byte_level(folder, ROBERTA)


def _byte_level(folder, special_tokens):
    tokenizer = train_tokenizer(ByteBPE(size=700), corpus(), special_tokens=special_tokens)
    write_merges(folder, json.loads(tokenizer.files()["tokenizer.json"])["model"])


def gpt(folder):
    backend = Tokenizer(models.BPE(unk_token="<unk>"))
    backend.normalizer, backend.pre_tokenizer = (
        normalizers.BertNormalizer(lowercase=True),
        pre_tokenizers.BertPreTokenizer(),
    )
    write_merges(folder, _train_with_end_of_word(backend, ["<unk>"]))


def clip(folder):
    backend = Tokenizer(models.BPE(unk_token="<|endoftext|>"))
    backend.normalizer = normalizers.Sequence([normalizers.NFC(), normalizers.Lowercase()])
    words = pre_tokenizers.Split(Regex(r"[\p{L}]+|[\p{N}]|[^\s\p{L}\p{N}]+"), "removed", invert=True)
    backend.pre_tokenizer = pre_tokenizers.Sequence([words, pre_tokenizers.ByteLevel(add_prefix_space=False)])
    alphabet = sorted(pre_tokenizers.ByteLevel.alphabet())
    model = _train_with_end_of_word(backend, [*alphabet, *(f"{byte}</w>" for byte in alphabet)])
    model["vocab"] = {token: index for index, token in enumerate([*model["vocab"], "<|startoftext|>", "<|endoftext|>"])}
    write_merges(folder, model)


def ctrl(folder):
    """CTRL's vocabulary lacks some intermediate merge results."""
    backend = Tokenizer(models.BPE(unk_token="<unk>"))
    backend.pre_tokenizer = pre_tokenizers.Split(Regex(r"\S+\n?"), "removed", invert=True)
    model = _train_with_end_of_word(backend, ["<unk>"])
    tokens = [token[:-4] if token.endswith("</w>") else f"{token}@@" for token in model["vocab"] if token != "<unk>"]
    published = [token for token in tokens if len(token) < 4 or hash_of(token) % 5]
    published = ["<unk>", *dict.fromkeys([*published, "Links", "Books"])]
    model["vocab"] = {token: index for index, token in enumerate(published)}
    write_merges(folder, model)


def _train_with_end_of_word(backend, first_tokens):
    trainer = trainers.BpeTrainer(
        vocab_size=900, special_tokens=first_tokens, end_of_word_suffix="</w>", show_progress=False
    )
    backend.train_from_iterator(corpus(), trainer)
    return json.loads(backend.to_str())["model"]


def write_merges(folder, model):
    (folder / "vocab.json").write_text(json.dumps(model["vocab"]), "utf-8")
    merges = "".join(f"{left} {right}\n" for left, right in model["merges"])
    (folder / "merges.txt").write_text(f"#version: 0.2\n{merges}", "utf-8")


def t5(folder):
    train_sentencepiece(folder / "spiece.model", pad_id=0, eos_id=1, unk_id=2, bos_id=-1)


def albert(folder):
    special = dict(pad_id=0, unk_id=1, bos_id=-1, eos_id=-1, control_symbols="[CLS],[SEP],[MASK]")
    train_sentencepiece(folder / "spiece.model", user_defined_symbols="(,)", **special)


def xlnet(folder):
    train_sentencepiece(
        folder / "spiece.model", unk_id=0, bos_id=1, eos_id=2, control_symbols="<cls>,<sep>,<pad>,<mask>,<eod>,<eop>"
    )


def mbart(folder):
    train_sentencepiece(folder / "sentencepiece.bpe.model", unk_id=0, bos_id=1, eos_id=2)


def llama(folder):
    train_sentencepiece(
        folder / "tokenizer.model",
        model_type="bpe",
        byte_fallback=True,
        normalization_rule_name="identity",
        vocab_size=900,
    )


def marian(folder):
    """Two models, and one vocabulary with the ids of both, which lacks some of their pieces."""
    for side, seed in (("source", 3), ("target", 4)):
        train_sentencepiece(folder / f"{side}.spm", seed=seed, unk_id=0, bos_id=1, eos_id=2)
    processors = [sentencepiece.SentencePieceProcessor(str(folder / f"{side}.spm")) for side in ("target", "source")]
    pieces = dict.fromkeys(
        processor.id_to_piece(index) for processor in processors for index in range(3, len(processor))
    )
    published = [piece for piece in pieces if len(piece) < 2 or hash_of(piece) % 9]
    tokens = ["</s>", "<unk>", *published, ">>fr<<", ">>de<<", "<pad>"]
    (folder / "vocab.json").write_text(json.dumps({token: index for index, token in enumerate(tokens)}), "utf-8")


def train_sentencepiece(path, *, seed=3, vocab_size=500, model_type="unigram", **options):
    """Train a SentencePiece model with the sentencepiece package."""
    with path.open("wb") as file:
        sentencepiece.SentencePieceTrainer.train(
            sentence_iterator=iter(corpus(seed=seed)),
            model_writer=file,
            vocab_size=vocab_size,
            model_type=model_type,
            minloglevel=2,
            num_threads=1,
            **options,
        )


def cached_files(make):
    """A function that writes the files of `make`, which runs only once."""

    @functools.cache
    def files():
        with tempfile.TemporaryDirectory() as folder:
            make(Path(folder))
            return {path.name: path.read_bytes() for path in Path(folder).iterdir()}

    def copy(folder):
        for name, content in files().items():
            (folder / name).write_bytes(content)

    return copy


LAYOUTS = {
    "bert": (cached_files(bert), "BertTokenizer"),
    "gpt": (cached_files(gpt), "OpenAIGPTTokenizer"),
    "gpt2": (cached_files(gpt2), "GPT2Tokenizer"),
    "roberta": (cached_files(roberta), "RobertaTokenizer"),
    "clip": (cached_files(clip), "CLIPTokenizer"),
    "ctrl": (cached_files(ctrl), "CTRLTokenizer"),
    "t5": (cached_files(t5), "T5Tokenizer"),
    "albert": (cached_files(albert), "AlbertTokenizer"),
    "xlnet": (cached_files(xlnet), "XLNetTokenizer"),
    "mbart": (cached_files(mbart), "MBartTokenizer"),
    "mbart50": (cached_files(mbart), "MBart50Tokenizer"),
    "llama": (cached_files(llama), "LlamaTokenizer"),
    "marian": (cached_files(marian), "MarianTokenizer"),
}
"""For each family, a function that writes its files, and the class that opens them in transformers."""
