"""Ten thousand texts of all kinds, built by code: the same ones every time."""

import random
import string
import unicodedata

_WORDS = (
    "a the man woman dog horse beach rides walks sees along and but not very running unbelievable states' don't it's "
    "we've U.S.A. co-operate e-mail naïve café Äpfel über Straße señor garçon œuvre smørrebrød zażółć gęślą "
    "быстро собака Москва здравствуйте ελληνικά ΜΕΓΑΛΑ שלום עולם مرحبا بالعالم हिन्दी नमस्ते ভাষা தமிழ் ภาษาไทย ລາວ "
    "မြန်မာ ქართული հայերեն አማርኛ 日本語 東京 ひらがな カタカナ ﾊﾝｶｸ 中文 汉字 漢字 한국어 조선 "
    "Tiếng Việt Việt İstanbul ığüşöç ﬁne ﬀ ½ ² № ™ ﷺ ﬂow Ｆｕｌｌ ｗｉｄｔｈ ǅ ß ẞ ſ K Å Ω"
)
WORDS = _WORDS.split()
NUMBERS = ["0", "7", "42", "3.14", "1,000,000", "2nd", "1st,", "9,", "2017-06-12", "$5.00", "50%", "１２３", "٣٤", "Ⅷ"]
MARKS = [*string.punctuation, "``", "''", "…", "—", "–", "“", "”", "„", "«", "»", "¿", "¡"]
MARKS += ["、", "。", "！", "？", "·", "•", "←", "∑", "€", "₿", "\\n", "@@", "</w>", "##", "▁", "▁▁", "Ġ", "Ċ"]
EMOJI = ["🙂", "👍🏽", "👩‍👩‍👧‍👦", "🏳️‍🌈", "🇩🇪", "🇩🇪🇫🇷", "❤️", "❤", "☃", "🧑🏿‍🚀", "#️⃣", "🫠", "👁️‍🗨️", "🏴󠁧󠁢󠁥󠁮󠁧󠁿"]
SPACES = [
    " ",
    "  ",
    "   ",
    "\t",
    "\n",
    "\n\n",
    "\r\n",
    "\r",
    "\v",
    "\f",
    "\u00a0",
    "\u1680",
    "\u2003",
    "\u2009",
    "\u200a",
]
SPACES += ["\u2028", "\u2029", "\u202f", "\u205f", "\u3000", "\x1c", "\x1d", "\x1e", "\x1f", "\x85", "\u200b", "\u2060"]
CONTROLS = [chr(code) for code in (*range(0, 9), *range(14, 32), *range(127, 160))]
CONTROLS += [
    "\u00ad",
    "\u200c",
    "\u200d",
    "\u200e",
    "\u200f",
    "\u202a",
    "\u202e",
    "\u2066",
    "\ufeff",
    "\ufffd",
    "\ufffe",
    "\U000e0041",
]
COMBINING = [
    "e\u0301",
    "a\u0308",
    "o\u0302\u0323",
    "n\u0303",
    "\u0301",
    "\u1100\u1161\u11a8",
    "\u0e33",
    "\u0f77",
    "i\u0307",
]
COMBINING += [
    "\u0915\u093c",
    "\u09c7\u09be",
    "Z\u0351\u036b\u0343\u036a\u0302\u036b\u033d\u034f\u0334\u0319\u0324",
    "\u212b",
    "\u1e9b\u0323",
]
SPECIAL = ["[CLS]", "[SEP]", "[MASK]", "[PAD]", "[UNK]", "<s>", "</s>", "<pad>", "<unk>", "<mask>", "<|endoftext|>"]
SPECIAL += [
    "<|startoftext|>",
    "<extra_id_0>",
    "<extra_id_99>",
    "<sep>",
    "<cls>",
    "<eop>",
    "<eod>",
    "de_DE",
    "en_XX",
    ">>fr<<",
]


def texts(number=10_000, seed=7):
    """Texts of every kind, in a mixed order. About one in seven has a special token written in it."""
    random_ = random.Random(seed)
    makers = (_sentence, _sentence, _mixed, _spaced, _scripts, _long, _codes, _odd, _with_special)
    fixed = [
        "",
        " ",
        "\n",
        "\t",
        "  ",
        "a",
        " a",
        "a ",
        " a ",
        "\n\n\n",
        "\u00a0",
        "\u3000",
        "\x00",
        "\ufeff",
        "é",
        "e\u0301",
    ]
    fixed += [
        *SPECIAL,
        *EMOJI,
        *CONTROLS,
        *COMBINING,
        *SPACES,
        "x" * 5000,
        "ab" * 1500,
        "🙂" * 300,
        "日本" * 200,
        "1" * 400,
    ]
    return fixed + [random_.choice(makers)(random_) for _ in range(number - len(fixed))]


def has_special(text):
    return any(name in text for name in SPECIAL)


def _sentence(random_):
    words = [random_.choice(WORDS) for _ in range(random_.randint(1, 14))]
    if random_.random() < 0.3:
        words.insert(random_.randrange(len(words)), random_.choice(NUMBERS))
    if random_.random() < 0.3:
        words = [random_.choice([str.upper, str.title, str.lower])(word) for word in words]
    return " ".join(words) + random_.choice(["", ".", "!", "?", "...", ".\n", " ."])


def _mixed(random_):
    kinds = (WORDS, WORDS, NUMBERS, MARKS, EMOJI, COMBINING)
    return "".join(
        random_.choice(random_.choice(kinds)) + random_.choice(["", "", " "]) for _ in range(random_.randint(1, 16))
    )


def _spaced(random_):
    return "".join(
        random_.choice(random_.choice((WORDS, SPACES, SPACES, CONTROLS))) for _ in range(random_.randint(1, 14))
    )


def _scripts(random_):
    start = random_.choice(
        [0x20, 0xA0, 0x370, 0x400, 0x530, 0x590, 0x600, 0x900, 0xE00, 0x1100, 0x1E00, 0x2000, 0x2190]
    )
    start = random_.choice(
        [start, start, 0x3040, 0x30A0, 0x4E00, 0xAC00, 0xF900, 0xFB00, 0xFE70, 0xFF00, 0x1D400, 0x1F300, 0x20000]
    )
    return "".join(
        chr(start + random_.randrange(200)) + random_.choice(["", "", " "]) for _ in range(random_.randint(1, 24))
    )


def _long(random_):
    part = random_.choice(
        [random_.choice(WORDS), random_.choice(EMOJI), random_.choice(MARKS), "".join(random_.sample(WORDS, 3))]
    )
    return part * random_.randint(2, max(3, 160 // len(part)))


def _codes(random_):
    """Any characters at all, those that Unicode has not given out included."""
    points = [
        random_.choice([random_.randrange(0x300), random_.randrange(0x10000), random_.randrange(0x110000)])
        for _ in range(12)
    ]
    return "".join(chr(point) for point in points[: random_.randint(1, 12)] if not 0xD800 <= point < 0xE000)


def _odd(random_):
    form = random_.choice(["NFD", "NFKD", "NFC", "NFKC"])
    return unicodedata.normalize(form, _mixed(random_)) + random_.choice(["", *CONTROLS])


def _with_special(random_):
    parts = [random_.choice(random_.choice((SPECIAL, WORDS, SPACES, MARKS))) for _ in range(random_.randint(1, 9))]
    return random_.choice(["", " "]).join([*parts, random_.choice(SPECIAL)])
