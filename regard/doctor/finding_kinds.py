"""Every kind of fault that the doctor knows, with how much it matters and what to do."""

from __future__ import annotations

from regard.doctor.finding import Kind, Severity


def _stop(name: str, said: str, remedy: str) -> Kind:
    return Kind(name=name, severity=Severity.STOP, said=said, remedy=remedy)


def _warn(name: str, said: str, remedy: str, stop_at: float = 2.0) -> Kind:
    return Kind(name=name, severity=Severity.WARN, said=said, remedy=remedy, stop_at=stop_at)


def _note(name: str, said: str, remedy: str, warn_at: float = 2.0, stop_at: float = 2.0) -> Kind:
    return Kind(name=name, severity=Severity.NOTE, said=said, remedy=remedy, warn_at=warn_at, stop_at=stop_at)


# Files, bytes and lines
EMPTY_FILE = _stop("empty-file", "there is nothing in this file", "give the file that was meant")
BROKEN_ARCHIVE = _stop("broken-archive", "the archive is broken", "make it again")
WRONG_ENCODING = _stop("wrong-encoding", "{lines} not in UTF-8", "convert the file to UTF-8")
MARK = _note("byte-order-mark", "the file begins with a byte order mark", "nothing: it is skipped when read")
MIXED_ENDS = _note("mixed-line-ends", "{lines} ending differently from the others", "make them alike: dos2unix FILE")
LONE_RETURN = _warn(
    "lone-return",
    "{lines} with a carriage return inside, which some programs take for the end of a line",
    "replace it by a line feed if a line ends there, by a space if not",
)
OTHER_LINE_END = _warn(
    "other-line-end",
    "{lines} with a character inside that some programs take for the end of a line (U+2028, U+2029, U+0085)",
    "replace it by a space: files that are cut there no longer fit together",
)
NO_FINAL_END = _note(
    "no-final-line-end",
    "the last line has no end: perhaps the file was cut off",
    "look whether the last line is whole; if it is, nothing",
)
NUL = _warn("nul", "{lines} with NUL bytes", "remove the NUL bytes, which come from a broken disk or a wrong encoding")
CONTROL = _warn("control-character", "{lines} with control characters", "remove the control characters")
REPLACEMENT = _warn(
    "replacement-character",
    "{lines} with the replacement character U+FFFD: something was lost in a conversion",
    "make the file again from its source, with the right encoding",
)
MOJIBAKE = _warn(
    "mojibake",
    "{lines} with UTF-8 that was read as another encoding and written again (é has become Ã©)",
    "undo it: text.encode('cp1252').decode('utf-8'), or make the file again from its source",
    stop_at=0.2,
)
ZERO_WIDTH = _warn("zero-width", "{lines} with characters that have no width", "remove the characters that nobody sees")
DIRECTION = _note("direction-mark", "{lines} with marks of writing direction that nobody sees", "remove the marks")
PRIVATE = _note(
    "private-character",
    "{lines} with characters for private use",
    "replace the private characters by what they stand for",
)
MARKUP = _warn("markup", "{lines} with HTML tags or entities", "turn entities into text (html.unescape) and strip tags")
LONG_LINE = _warn(
    "very-long-line",
    "{lines} far longer than any sentence (over 10,000 characters)",
    "look whether line ends were lost there",
)
EMPTY = _warn("empty-line", "{lines} without text", "remove the empty lines", stop_at=0.5)

# Tables and JSON
RAGGED = _stop("ragged-columns", "{lines} with another number of columns", "look for a tab or comma inside the text")
UNBALANCED_QUOTE = _stop(
    "unbalanced-quote",
    "{lines} with a quote that is never closed: all that follows would be one field",
    "close it, or double quotes inside a quoted field",
)
NO_COLUMN = _stop("missing-column", "a column is missing", "name the columns, or give the file that was meant")
BROKEN_JSON = _stop("broken-json", "{lines} no JSON", "write one JSON object on each line")
MISSING_KEY = _stop("missing-key", "{lines} without a key that the others have", "add it, or remove these lines")
WRONG_TYPE = _stop("wrong-type", "{lines} whose value is not text where text is needed", "write the value as text")

# Pairs
LINE_COUNTS = _stop("line-counts", "the two sides have different numbers of lines", "find the line that is too much")
MISALIGNED = _stop(
    "misaligned",
    "the two sides have the same number of lines and yet part on the way",
    "find the line that is too much on one side, and the one on the other",
)
ONE_EMPTY = _warn("empty-side", "{lines} where one side is empty", "remove these pairs", stop_at=0.2)
IDENTICAL = _note(
    "identical-sides",
    "{lines} whose two sides are the same",
    "remove those that should have been translated: they teach the network to copy",
    warn_at=0.01,
    stop_at=0.5,
)
SAME_FILE = _stop("same-file", "the two sides are the same text", "give the file of the other language")
RATIO = _warn("length-ratio", "{lines} where one side is far too long for the other", "remove these pairs", stop_at=0.3)
SWAPPED = _warn("swapped-sides", "{lines} whose two sides seem to be swapped", "swap them back", stop_at=0.2)
ONE_LANGUAGE = _warn(
    "one-language",
    "{lines} whose two sides seem to be in the same language",
    "remove these pairs, or have them translated",
    stop_at=0.3,
)
LONG_SUMMARY = _warn(
    "long-summary", "{lines} whose summary is no shorter than the text", "remove these pairs", stop_at=0.3
)

# Repeats
DUPLICATE = _note("duplicate", "{lines} repeating an earlier one", "remove the repetitions", warn_at=0.1)
CONTRADICTION = _warn(
    "contradiction",
    "{lines} with the text of an earlier one and another label",
    "decide on one label for the same text",
)
LEAKAGE = _warn(
    "leakage",
    "{lines} found in the training data too: what is measured there is memory",
    "remove these examples from the training data",
    stop_at=0.1,
)
SOURCE_LEAKAGE = _note(
    "source-leakage",
    "{lines} whose source is found in the training data, with another target",
    "remove these sources from the training data if you want to measure on unseen text",
    warn_at=0.1,
)
UNLIKE = _warn(
    "unlike-training",
    "this text is written in another way than the training data",
    "prepare both in the same way (tokenised or not, lower case or not)",
)

# Script, lengths, vocabulary
SCRIPT = _warn(
    "unexpected-script", "{lines} mostly in another script", "remove these texts, or say --script", stop_at=0.3
)
LOOKALIKE = _warn(
    "mixed-script-word",
    "{lines} with a word that mixes scripts (a Cyrillic letter in a Latin word looks the same and is not)",
    "replace the letter that was not meant",
)
TRUNCATION = _note(
    "truncation",
    "{lines} too long: they would be cut",
    "choose a larger length, or split long texts",
    warn_at=0.02,
    stop_at=0.5,
)
UNKNOWN = _warn("unknown-tokens", "the tokenizer does not know some of this text", "train the tokenizer on this text")

# Labels and scores
EMPTY_LABEL = _stop("empty-label", "{lines} without a label", "label them, or remove them")
ONE_LABEL = _stop("one-label", "there is only one label: there is nothing to learn", "give the other labels' data too")
MANY_LABELS = _stop("too-many-labels", "the label seems to be text", "say which column is the label")
RARE_LABEL = _warn("rare-label", "rare labels", "collect more examples, or join it with another label")
SIMILAR_LABELS = _warn("similar-labels", "labels that differ only in case or spaces", "write them alike")
NEW_LABEL = _warn("unseen-label", "labels that the training data does not have", "add examples, or correct the label")
LABEL_GAP = _note("label-gap", "a number is missing among the labels", "look whether a class was lost")
NO_NUMBER = _stop("no-number", "{lines} whose score is no number", "write a number")
OUT_OF_RANGE = _warn("out-of-range", "{lines} whose score is far from all others", "correct the score")

# Tags
TAGS_REMEDY = "correct the tags, or read the file with Scheme.LENIENT, which begins an entity there"
NO_TAG = _stop("missing-tag", "{lines} with fewer columns than the others: the tag is missing", "add the tag")
BAD_TAG = _stop("malformed-tag", "{lines} whose tag is not of the form of the others (B-type, I-type, O)", "correct it")
TAG_SEQUENCE = _stop("tag-sequence", "{lines} whose tag may not follow the one before", TAGS_REMEDY)
TAG_TYPE = _stop("type-within-entity", "{lines} where the type changes within an entity", TAGS_REMEDY)
ONE_WORD = _note("one-word-sentence", "{lines} where a sentence of a single word begins", "look whether it is one")
LONG_SENTENCE = _warn(
    "endless-sentence", "{lines} where a sentence of more than 500 words begins", "part sentences by an empty line"
)

# Questions and answers
BAD_DATASET = _stop("broken-dataset", "this is no SQuAD JSON", "write it as published: data, paragraphs, context, qas")
NOT_IN_CONTEXT = _warn(
    "answer-not-in-context", "{questions} whose answer is not in its context", "correct it", stop_at=0.2
)
OFFSET = _warn(
    "answer-offset", "{questions} whose answer stands elsewhere than said", "correct answer_start", stop_at=0.2
)
EMPTY_ANSWER = _warn("empty-answer", "{questions} with an empty answer", "write no answer at all if there is none")
EMPTY_QUESTION = _warn("empty-question", "{questions} with an empty question or context", "remove these questions")
SAME_ID = _warn("duplicate-id", "{questions} whose id was used before", "give each question an id of its own")
ANSWERED_IMPOSSIBLE = _warn(
    "answered-impossible", "{questions} said to have no answer, and having one", "correct is_impossible"
)
NO_ANSWER = _warn("no-answer", "{questions} without an answer and not said to be unanswerable", "add the answer")

KINDS: dict[str, Kind] = {value.name: value for value in list(globals().values()) if isinstance(value, Kind)}
