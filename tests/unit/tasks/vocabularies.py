"""Small vocabularies in the published layouts of generative models, trained on the fly."""

import json
import random

import sentencepiece
from tokenizers import Regex, Tokenizer, models, normalizers, pre_tokenizers, trainers

from regard.tokenization.algorithms import ByteBPE, Unigram
from regard.tokenization.tokenizer import SpecialTokens
from regard.tokenization.tokenizer_trainer import train_tokenizer

TEXT = (
    "a the man woman dog horse beach house tree red green small big rides walks sees runs along under over and but not "
    "Der Mann die Frau das Pferd über Straße café naïve 東京 日本語 собака 🙂 don't it's 42 3.14 time upon there was"
)
WORDS = TEXT.split()
ROBERTA = SpecialTokens(pad="<pad>", unk="<unk>", bos="<s>", eos="</s>", mask="<mask>")


def sentences(number=400, seed=3):
    """Sentences of these words; some words are joined, so that there are subwords to learn."""
    draw = random.Random(seed)
    words = [*WORDS, *(draw.choice(WORDS) + draw.choice(WORDS) for _ in range(60))]
    return [" ".join(draw.choice(words) for _ in range(draw.randint(2, 9))) + "." for _ in range(number)]


def trained(folder):
    """A tokenizer.json as regard trains it, with an EOS token after every text."""
    train_tokenizer(
        ByteBPE(size=340), sentences(), special_tokens=SpecialTokens(pad="<pad>", bos="<s>", eos="</s>")
    ).save(folder)


def unigram(folder):
    """The same with unigram pieces of whole characters, so that random networks generate valid text."""
    train_tokenizer(Unigram(size=160), sentences(100)).save(folder)


def roberta(folder):
    _bytes(folder, ROBERTA)


def gpt2(folder):
    _bytes(folder, SpecialTokens(eos="<|endoftext|>"))


def _bytes(folder, names):
    core = json.loads(train_tokenizer(ByteBPE(size=340), sentences(), special_tokens=names).files()["tokenizer.json"])
    _write_merges(folder, core["model"])


def gpt(folder):
    core = Tokenizer(models.BPE(unk_token="<unk>"))
    core.normalizer, core.pre_tokenizer = normalizers.BertNormalizer(lowercase=True), pre_tokenizers.BertPreTokenizer()
    _write_merges(folder, _ending_words(core))


def ctrl(folder):
    core = Tokenizer(models.BPE(unk_token="<unk>"))
    core.pre_tokenizer = pre_tokenizers.Split(Regex(r"\S+\n?"), "removed", invert=True)
    model = _ending_words(core)
    tokens = [token[:-4] if token.endswith("</w>") else f"{token}@@" for token in model["vocab"] if token != "<unk>"]
    tokens = dict.fromkeys(["<unk>", *tokens])
    _write_merges(folder, {**model, "vocab": {token: place for place, token in enumerate(tokens)}})


def _ending_words(core):
    trainer = trainers.BpeTrainer(
        vocab_size=300, special_tokens=["<unk>"], end_of_word_suffix="</w>", show_progress=False
    )
    core.train_from_iterator([*sentences(), *["Links Books"] * 200], trainer)
    return json.loads(core.to_str())["model"]


def _write_merges(folder, model):
    (folder / "vocab.json").write_text(json.dumps(model["vocab"]), "utf-8")
    merges = "".join(f"{left} {right}\n" for left, right in model["merges"])
    (folder / "merges.txt").write_text(f"#version: 0.2\n{merges}", "utf-8")


def t5(folder):
    _pieces(folder / "spiece.model", pad_id=0, eos_id=1, unk_id=2, bos_id=-1)


def mbart(folder):
    _pieces(folder / "sentencepiece.bpe.model", unk_id=0, bos_id=1, eos_id=2)


def mbart_of_25(folder):
    """With the tokenizer class in the config, for a network that is not mBART."""
    mbart(folder)
    (folder / "tokenizer_config.json").write_text('{"tokenizer_class": "MBartTokenizer"}')


def llama(folder):
    options = dict(model_type="bpe", byte_fallback=True, normalization_rule_name="identity", vocab_size=420)
    _pieces(folder / "tokenizer.model", **options)


def marian(folder, codes=()):
    """Two SentencePiece models, and one vocabulary with the ids of the pieces of both."""
    for side, seed in (("source", 3), ("target", 4)):
        _pieces(folder / f"{side}.spm", seed=seed, unk_id=0, bos_id=1, eos_id=2)
    sides = [sentencepiece.SentencePieceProcessor(str(folder / f"{side}.spm")) for side in ("target", "source")]
    found = dict.fromkeys(side.id_to_piece(place) for side in sides for place in range(3, len(side)))
    tokens = ["</s>", "<unk>", *found, *(f">>{code}<<" for code in codes), "<pad>"]
    (folder / "vocab.json").write_text(json.dumps({token: place for place, token in enumerate(tokens)}), "utf-8")


def marian_of_many(folder):
    marian(folder, codes=("fr", "de"))


def _pieces(path, *, seed=3, vocab_size=140, model_type="unigram", **options):
    """A SentencePiece model, by the sentencepiece package."""
    with path.open("wb") as file:
        sentencepiece.SentencePieceTrainer.train(
            sentence_iterator=iter(sentences(seed=seed)), model_writer=file, vocab_size=vocab_size,
            model_type=model_type, minloglevel=2, num_threads=1,
            hard_vocab_limit=model_type != "unigram", **options,
        )  # fmt: skip
