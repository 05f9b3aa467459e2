"""Small vocabularies, trained on the spot and saved in each of the published layouts."""

import functools
import json
import random
import tempfile
from pathlib import Path

import sentencepiece
from tokenizers import Regex, Tokenizer, models, normalizers, pre_tokenizers, trainers
from unit.tokenization.sample_texts import NUMBERS, WORDS

from regard.tokenization.algorithms import ByteBPE, WordPiece
from regard.tokenization.tokenizer import Names
from regard.tokenization.tokenizer_trainer import train

ROBERTA = Names(padding="<pad>", unknown="<unk>", begin="<s>", end="</s>", separator=None, classify=None, mask="<mask>")


@functools.cache
def corpus(number=3000, seed=3):
    """Sentences to learn from: some words are frequent, some rare, some never there."""
    random_ = random.Random(seed)
    words = [word for word in WORDS if hash_of(word) % 4]

    def word():
        if random_.random() < 0.05:
            return random_.choice(NUMBERS)
        return random_.choice(words) + (random_.choice(words) if random_.random() < 0.4 else "")

    return [" ".join(word() for _ in range(9)) + "." for _ in range(number)]


def hash_of(word):
    return sum(ord(letter) * (place + 1) for place, letter in enumerate(word))


def bert(folder):
    tokens = train(WordPiece(size=600, lower=True), corpus()).vocabulary()
    (folder / "vocab.txt").write_text("".join(f"{token}\n" for token in sorted(tokens, key=tokens.get)), "utf-8")


def gpt2(folder):
    _bytes(folder, Names(end="<|endoftext|>"))


def roberta(folder):
    _bytes(folder, ROBERTA)


def _bytes(folder, names):
    core = json.loads(train(ByteBPE(size=700), corpus(), special=names).files()["tokenizer.json"])
    write_merges(folder, core["model"])


def gpt(folder):
    core = Tokenizer(models.BPE(unk_token="<unk>"))
    core.normalizer, core.pre_tokenizer = normalizers.BertNormalizer(lowercase=True), pre_tokenizers.BertPreTokenizer()
    write_merges(folder, _ends_of_words(core, ["<unk>"]))


def clip(folder):
    core = Tokenizer(models.BPE(unk_token="<|endoftext|>"))
    core.normalizer = normalizers.Sequence([normalizers.NFC(), normalizers.Lowercase()])
    words = pre_tokenizers.Split(Regex(r"[\p{L}]+|[\p{N}]|[^\s\p{L}\p{N}]+"), "removed", invert=True)
    core.pre_tokenizer = pre_tokenizers.Sequence([words, pre_tokenizers.ByteLevel(add_prefix_space=False)])
    letters = sorted(pre_tokenizers.ByteLevel.alphabet())
    model = _ends_of_words(core, [*letters, *(f"{letter}</w>" for letter in letters)])
    model["vocab"] = {token: place for place, token in enumerate([*model["vocab"], "<|startoftext|>", "<|endoftext|>"])}
    write_merges(folder, model)


def ctrl(folder):
    """CTRL's vocabulary lacks pieces that are only met on the way to longer ones."""
    core = Tokenizer(models.BPE(unk_token="<unk>"))
    core.pre_tokenizer = pre_tokenizers.Split(Regex(r"\S+\n?"), "removed", invert=True)
    model = _ends_of_words(core, ["<unk>"])
    tokens = [token[:-4] if token.endswith("</w>") else f"{token}@@" for token in model["vocab"] if token != "<unk>"]
    kept = [token for token in tokens if len(token) < 4 or hash_of(token) % 5]
    kept = ["<unk>", *dict.fromkeys([*kept, "Links", "Books"])]
    model["vocab"] = {token: place for place, token in enumerate(kept)}
    write_merges(folder, model)


def _ends_of_words(core, first):
    trainer = trainers.BpeTrainer(vocab_size=900, special_tokens=first, end_of_word_suffix="</w>", show_progress=False)
    core.train_from_iterator(corpus(), trainer)
    return json.loads(core.to_str())["model"]


def write_merges(folder, model):
    (folder / "vocab.json").write_text(json.dumps(model["vocab"]), "utf-8")
    merges = "".join(f"{left} {right}\n" for left, right in model["merges"])
    (folder / "merges.txt").write_text(f"#version: 0.2\n{merges}", "utf-8")


def t5(folder):
    pieces(folder / "spiece.model", pad_id=0, eos_id=1, unk_id=2, bos_id=-1)


def albert(folder):
    special = dict(pad_id=0, unk_id=1, bos_id=-1, eos_id=-1, control_symbols="[CLS],[SEP],[MASK]")
    pieces(folder / "spiece.model", user_defined_symbols="(,)", **special)


def xlnet(folder):
    pieces(
        folder / "spiece.model", unk_id=0, bos_id=1, eos_id=2, control_symbols="<cls>,<sep>,<pad>,<mask>,<eod>,<eop>"
    )


def mbart(folder):
    pieces(folder / "sentencepiece.bpe.model", unk_id=0, bos_id=1, eos_id=2)


def llama(folder):
    pieces(
        folder / "tokenizer.model",
        model_type="bpe",
        byte_fallback=True,
        normalization_rule_name="identity",
        vocab_size=900,
    )


def marian(folder):
    """Two models, and one vocabulary that numbers the pieces of both, and lacks some of them."""
    for side, seed in (("source", 3), ("target", 4)):
        pieces(folder / f"{side}.spm", seed=seed, unk_id=0, bos_id=1, eos_id=2)
    sides = [sentencepiece.SentencePieceProcessor(str(folder / f"{side}.spm")) for side in ("target", "source")]
    found = dict.fromkeys(side.id_to_piece(place) for side in sides for place in range(3, len(side)))
    kept = [piece for piece in found if len(piece) < 2 or hash_of(piece) % 9]
    tokens = ["</s>", "<unk>", *kept, ">>fr<<", ">>de<<", "<pad>"]
    (folder / "vocab.json").write_text(json.dumps({token: place for place, token in enumerate(tokens)}), "utf-8")


def pieces(path, *, seed=3, vocab_size=500, model_type="unigram", **options):
    """A SentencePiece model, by the sentencepiece package."""
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


def once(make):
    """Made in the first call, copied after that."""

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
    "bert": (once(bert), "BertTokenizer"),
    "gpt": (once(gpt), "OpenAIGPTTokenizer"),
    "gpt2": (once(gpt2), "GPT2Tokenizer"),
    "roberta": (once(roberta), "RobertaTokenizer"),
    "clip": (once(clip), "CLIPTokenizer"),
    "ctrl": (once(ctrl), "CTRLTokenizer"),
    "t5": (once(t5), "T5Tokenizer"),
    "albert": (once(albert), "AlbertTokenizer"),
    "xlnet": (once(xlnet), "XLNetTokenizer"),
    "mbart": (once(mbart), "MBartTokenizer"),
    "mbart50": (once(mbart), "MBart50Tokenizer"),
    "llama": (once(llama), "LlamaTokenizer"),
    "marian": (once(marian), "MarianTokenizer"),
}
"""How each is made, and the class that opens it in transformers."""
