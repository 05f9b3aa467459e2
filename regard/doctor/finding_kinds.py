"""All kinds of findings, with their severity, message and remedy."""

from __future__ import annotations

from regard.doctor.finding import FindingKind, Severity


def _stop(name: str, message: str, remedy: str) -> FindingKind:
    return FindingKind(name=name, severity=Severity.STOP, message=message, remedy=remedy)


def _warn(name: str, message: str, remedy: str, stop_fraction: float = 2.0) -> FindingKind:
    return FindingKind(name=name, severity=Severity.WARN, message=message, remedy=remedy, stop_fraction=stop_fraction)


def _note(name: str, message: str, remedy: str, warn_fraction: float = 2.0, stop_fraction: float = 2.0) -> FindingKind:
    return FindingKind(
        name=name,
        severity=Severity.NOTE,
        message=message,
        remedy=remedy,
        warn_fraction=warn_fraction,
        stop_fraction=stop_fraction,
    )


# Files, bytes and lines
EMPTY_FILE = _stop("empty-file", "the file is empty", "check the path")
BROKEN_ARCHIVE = _stop("broken-archive", "the compressed file is corrupt", "compress it again")
WRONG_ENCODING = _stop("wrong-encoding", "{lines} not in UTF-8", "convert the file to UTF-8")
MARK = _note("byte-order-mark", "the file starts with a byte order mark", "no action needed: it is skipped")
MIXED_ENDS = _note(
    "mixed-line-ends", "{lines} with a different line ending", "normalize the line endings: dos2unix FILE"
)
LONE_RETURN = _warn(
    "lone-return",
    "{lines} containing a carriage return, which some programs treat as a line break",
    "replace it by a line feed if the line ends there, else by a space",
)
OTHER_LINE_END = _warn(
    "other-line-end",
    "{lines} containing a Unicode line separator (U+2028, U+2029, U+0085), which some programs treat as a line break",
    "replace it by a space: programs that split lines there break the alignment of files",
)
NO_FINAL_END = _note(
    "no-final-line-end",
    "no newline at the end of the file: it may be truncated",
    "check that the last line is complete",
)
NUL = _warn("nul", "{lines} with NUL bytes", "remove the NUL bytes, which come from a broken disk or a wrong encoding")
CONTROL = _warn("control-character", "{lines} with control characters", "remove the control characters")
REPLACEMENT = _warn(
    "replacement-character",
    "{lines} with the replacement character U+FFFD: characters were lost in a conversion",
    "create the file again from its source, with the right encoding",
)
MOJIBAKE = _warn(
    "mojibake",
    "{lines} with UTF-8 that was decoded as another encoding (é became Ã©)",
    "undo it: text.encode('cp1252').decode('utf-8'), or create the file again from its source",
    stop_fraction=0.2,
)
ZERO_WIDTH = _warn("zero-width", "{lines} with zero-width characters", "remove the zero-width characters")
DIRECTION = _note("direction-mark", "{lines} with invisible bidirectional control characters", "remove them")
PRIVATE = _note(
    "private-character",
    "{lines} with private-use characters",
    "replace them by the characters that they stand for",
)
MARKUP = _warn(
    "markup", "{lines} with HTML tags or entities", "convert entities to text (html.unescape) and remove tags"
)
LONG_LINE = _warn(
    "very-long-line",
    "{lines} with more than 10,000 characters",
    "check for lost line breaks",
)
NO_EXAMPLE = _stop(
    "no-example",
    "the file contains no examples: every line is empty, or cannot be read",
    "check the path and the content",
)
EMPTY = _warn("empty-line", "{lines} without text", "remove the empty lines", stop_fraction=0.5)

# Tables and JSON
HEADER = _note(
    "header",
    "the first line is read as the names of the columns",
    "no action needed; if it is an example, set header to none",
)
RAGGED = _stop(
    "ragged-columns", "{lines} with an unexpected number of columns", "look for a tab or comma inside the text"
)
UNBALANCED_QUOTE = _stop(
    "unbalanced-quote",
    "{lines} with an unclosed quote: the rest of the file would become one field",
    "close it, or double the quotes inside a quoted field",
)
NO_COLUMN = _stop("missing-column", "a column is missing", "set the columns, or check the path")
BROKEN_JSON = _stop("broken-json", "{lines} with invalid JSON", "write one JSON object on each line")
MISSING_KEY = _stop("missing-key", "{lines} with a missing key", "add it, or remove these lines")
WRONG_TYPE = _stop("wrong-type", "{lines} where a value has the wrong type", "correct the value")

# Pairs
LINE_COUNTS = _stop("line-counts", "the two sides have different numbers of lines", "find the extra line")
MISALIGNED = _stop(
    "misaligned",
    "the two sides have the same number of lines, but are misaligned in between",
    "find the extra line on one side, and the one on the other side",
)
ONE_EMPTY = _warn("empty-side", "{lines} where one side is empty", "remove these pairs", stop_fraction=0.2)
IDENTICAL = _note(
    "identical-sides",
    "{lines} with identical source and target",
    "remove those that should be translated: the network learns to copy from them",
    warn_fraction=0.01,
    stop_fraction=0.5,
)
SAME_FILE = _stop("same-file", "the two files have the same content", "pass the file of the target language")
RATIO = _warn("length-ratio", "{lines} with an implausible length ratio", "remove these pairs", stop_fraction=0.3)
SWAPPED = _warn("swapped-sides", "{lines} whose two sides seem to be swapped", "swap them back", stop_fraction=0.2)
ONE_LANGUAGE = _warn(
    "one-language",
    "{lines} whose two sides seem to be in the same language",
    "remove these pairs, or translate them",
    stop_fraction=0.3,
)
OTHER_LANGUAGE = _warn(
    "other-language",
    "{lines} that seem to be in another language than the rest of the file",
    "remove these pairs, or translate them",
    stop_fraction=0.3,
)
LONG_SUMMARY = _warn(
    "long-summary", "{lines} whose summary is not shorter than the text", "remove these pairs", stop_fraction=0.3
)

# Duplicates
DUPLICATE = _note("duplicate", "{lines} identical to an earlier one", "remove the duplicates", warn_fraction=0.1)
CONTRADICTION = _warn(
    "contradiction",
    "{lines} with the text of an earlier one but another label",
    "decide on one label for the same text",
)
LEAKAGE = _warn(
    "leakage",
    "{lines} also in the training data: metrics on them measure memorization",
    "remove these examples from the training data",
    stop_fraction=0.1,
)
SOURCE_LEAKAGE = _note(
    "source-leakage",
    "{lines} whose source is also in the training data, with another target",
    "remove these sources from the training data if you want to measure on unseen text",
    warn_fraction=0.1,
)
UNLIKE = _warn(
    "unlike-training",
    "the text style differs from the training data",
    "preprocess both in the same way (tokenized or not, lowercased or not)",
)

# Script, lengths, vocabulary
SCRIPT = _warn(
    "unexpected-script", "{lines} mostly in another script", "remove these texts, or set --script", stop_fraction=0.3
)
LOOKALIKE = _warn(
    "mixed-script-word",
    "{lines} with a word that mixes scripts (such as a Cyrillic letter that looks like a Latin one)",
    "replace the letter of the wrong script",
)
TRUNCATION = _note(
    "truncation",
    "{lines} longer than the maximum length: they would be truncated",
    "increase the maximum length, or split long texts",
    warn_fraction=0.02,
    stop_fraction=0.5,
)
UNKNOWN = _warn(
    "unknown-tokens", "the tokenizer maps part of this text to unknown tokens", "train the tokenizer on this text"
)

# Labels and scores
EMPTY_LABEL = _stop("empty-label", "{lines} without a label", "label them, or remove them")
ONE_LABEL = _stop("one-label", "there is only one label: nothing to learn", "add examples of other labels")
MANY_LABELS = _stop("too-many-labels", "the label column looks like free text", "set the label column")
RARE_LABEL = _warn("rare-label", "rare labels", "collect more examples, or merge them with other labels")
SIMILAR_LABELS = _warn("similar-labels", "labels that differ only in case or spaces", "use one spelling")
NEW_LABEL = _warn("unseen-label", "labels that are not in the training data", "add examples, or correct the label")
LABEL_GAP = _note("label-gap", "a number is missing in the sequence of labels", "check whether a class is missing")
NO_NUMBER = _stop("no-number", "{lines} whose score is not a number", "write a number")
OUT_OF_RANGE = _warn("out-of-range", "{lines} whose score is an outlier", "correct the score")

# Tags
TAGS_REMEDY = 'correct the tags, or set the scheme to "lenient", which starts an entity there'
NO_TAG = _stop("missing-tag", "{lines} with fewer columns than the others: the tag is missing", "add the tag")
BAD_TAG = _stop("malformed-tag", "{lines} whose tag does not fit the scheme (B-type, I-type, O)", "correct the tag")
TAG_SEQUENCE = _stop("tag-sequence", "{lines} with an invalid tag transition", TAGS_REMEDY)
TAG_TYPE = _stop("type-within-entity", "{lines} where the entity type changes inside an entity", TAGS_REMEDY)
ONE_WORD = _note("one-word-sentence", "{lines} where a sentence of one word starts", "check whether it is a sentence")
LONG_SENTENCE = _warn(
    "endless-sentence", "{lines} where a sentence of more than 500 words starts", "separate sentences by an empty line"
)

# Questions and answers
BAD_DATASET = _stop("broken-dataset", "not in SQuAD format", "expected the keys data, paragraphs, context and qas")
NOT_IN_CONTEXT = _warn(
    "answer-not-in-context", "{questions} whose answer is not in the context", "correct the answer", stop_fraction=0.2
)
OFFSET = _warn("answer-offset", "{questions} whose answer_start is wrong", "correct answer_start", stop_fraction=0.2)
EMPTY_ANSWER = _warn("empty-answer", "{questions} with an empty answer", "omit the answer if there is none")
EMPTY_QUESTION = _warn("empty-question", "{questions} with an empty question or context", "remove these questions")
SAME_ID = _warn("duplicate-id", "{questions} whose id occurred before", "use a unique id for each question")
ANSWERED_IMPOSSIBLE = _warn(
    "answered-impossible", "{questions} marked as impossible, but with an answer", "correct is_impossible"
)
NO_ANSWER = _warn("no-answer", "{questions} without an answer, but not marked as impossible", "add the answer")

KINDS: dict[str, FindingKind] = {
    value.name: value for value in list(globals().values()) if isinstance(value, FindingKind)
}
