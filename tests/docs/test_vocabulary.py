"""The project speaks the language of its field: replaced names stay away, prose is plain, file names are unique.

The lists hold what was replaced in version 0.2; CHANGELOG.md has the new names, docs/glossary.md explains what is left.
"""

import io
import re
import tokenize
from collections import Counter
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[2]
NAMES = frozenset(
    """
    Wish Chance Habits Written AtOnce Given Wrote Said Terms end_loops no_repeat
    Looking asking answering kept_source Remembered Moves Kept Scored Rounded widened WholeNumbers InPanels
    ByInstruction BySixteenBits ScoreAndLose LoseTwice lose lose_twice bend bend_back ask_for_next Alike Again Told
    CompiledKept CompiledCache CompiledBlock CompiledStack QuickAttention QuickKernel Listed ListedLanguageModel
    ByLength OldTokenizer NewTokenizer HalfLinear Unfolding OneRow Rereading Translating Forbid EndAtLimit
    said told asked given wanted listed written drawn begun wish habits chance beside behind ahead alone together
    watch watching quicken headless recompute splitting agreement_from agreeing_cross_entropy
    """.split()
)
"""Identifiers, in Python and in C, that have another name now."""
RECIPE_KEYS = frozenset(
    "rate decay epsilon warmup tokens accumulate recompute clip smoothing agreement splitting share whole_words".split()
)
"""Keys of a recipe that have another name now; `legacy_keys.py` alone knows them."""
PHRASES = (
    r"numbers? of sixteen bits",
    r"what (a|one) level is worth",
    r"rate of learning",
    r"\b(said|told|asks|asked)\b",
    r"\bwhat is (kept|given|written)\b",
    r"\bthe way back\b",
    r"\bthere and back\b",
    r"\bcompiled parts\b",
    r"\bby chance\b",
    r"\bstand(s|ing)? side by side\b",
    r"\b(whoever|somebody|nobody)\b",
    r"\bfor to\b",
)
"""Private turns of phrase, with a plain technical term for each."""
EXEMPT = {"regard/training/recipe/legacy_keys.py"}
"""The one file that knows the names of before."""
MIRRORS = ("tasks", "objectives", "cli", "readers", "encoders", "recipe", "config", "evaluation")
"""Packages whose files are named after the same tasks, formats or config sections."""


def sources(*patterns):
    found = [path for pattern in patterns for path in sorted(ROOT.glob(pattern)) if "__pycache__" not in path.parts]
    return [path for path in found if str(path.relative_to(ROOT)) not in EXEMPT]


def identifiers(text, suffix):
    """The identifiers of a source file, with their lines."""
    if suffix == ".py":
        for token in tokenize.generate_tokens(io.StringIO(text).readline):
            if token.type == tokenize.NAME:
                yield token.string, token.start[0]
        return
    without_comments = re.sub(r"/\*.*?\*/|//[^\n]*", lambda match: "\n" * match[0].count("\n"), text, flags=re.DOTALL)
    for number, line in enumerate(without_comments.splitlines(), 1):
        yield from ((name, number) for name in re.findall(r"[A-Za-z_]\w*", line))


def prose(text, suffix):
    """Comments and strings of a Python file, comments of a C file, or all of a page; with their lines."""
    if suffix == ".py":
        for token in tokenize.generate_tokens(io.StringIO(text).readline):
            if token.type in (tokenize.COMMENT, tokenize.STRING):
                yield token.string, token.start[0]
    elif suffix == ".md":
        yield from ((line, number) for number, line in enumerate(text.splitlines(), 1))
    else:
        for match in re.finditer(r"/\*.*?\*/|//[^\n]*", text, flags=re.DOTALL):
            yield match[0], text.count("\n", 0, match.start()) + 1


def private_names(text, suffix):
    return [f"line {line}: {name}" for name, line in identifiers(text, suffix) if name in NAMES]


def private_phrases(text, suffix):
    expression = re.compile("|".join(PHRASES), flags=re.IGNORECASE)
    joined = ((re.sub(r"\s+", " ", part), line) for part, line in prose(text, suffix))
    return [f"line {line}: {match[0]}" for part, line in joined if (match := expression.search(part))]


def check(paths, find):
    found = {
        str(path.relative_to(ROOT)): words
        for path in paths
        if (words := find(path.read_text(encoding="utf-8"), path.suffix))
    }
    assert not found, "\n".join(f"{name}, {word}" for name, words in found.items() for word in words)


def test_no_private_names():
    check(sources("regard/**/*.py", "regard/native/c/*", "benchmarks/*.py"), private_names)


def test_no_private_phrases():
    check(sources("regard/**/*.py", "regard/native/c/*", "README.md", "CONTRIBUTING.md", "docs/*.md"), private_phrases)


@pytest.mark.parametrize(
    ("text", "suffix", "find"),
    [
        ("def translate(wish: Wish) -> None: ...\n", ".py", private_names),
        ("def f():\n    return cache.kept_source\n", ".py", private_names),
        ("static void lose(float *x) {}\n", ".c", private_names),
        ('"""Weights in numbers of sixteen bits."""\n', ".py", private_phrases),
        ("x = 1  # the network is\n# told\n\n# the loop is told of it\n", ".py", private_phrases),
        ("/* what is\n   kept of a row */\n", ".h", private_phrases),
        ("The network is asked for the next token.\n", ".md", private_phrases),
    ],
)
def test_a_planted_word_is_found(text, suffix, find):
    assert find(text, suffix)


def test_names_in_strings_and_plain_sentences_are_no_finding():
    assert not private_names('"""Wish, Chance, Habits."""\nx = "Kept"\n', ".py")
    assert not private_phrases('"""The KV cache of a decoder, filled by a prefill."""\n', ".py")


def test_recipes_have_no_old_key():
    from pydantic import BaseModel

    from regard.training.recipe.schema import Recipe

    def keys(model):
        for name, field in model.model_fields.items():
            yield name
            for part in re.findall(r"regard\.[\w.]+", str(field.annotation)):
                module, _, inner = part.rpartition(".")
                found = getattr(__import__(module, fromlist=[inner]), inner, None)
                if isinstance(found, type) and issubclass(found, BaseModel):
                    yield from keys(found)

    found = set(keys(Recipe))
    assert {"batch_tokens", "lr", "warmup_steps", "label_smoothing", "max_grad_norm"} <= found
    assert not found & RECIPE_KEYS


def test_a_file_name_occurs_once():
    stems = Counter(
        path.stem
        for path in sources("regard/**/*.py")
        if path.stem not in ("__init__", "model") and path.parent.name not in MIRRORS
    )
    assert not [stem for stem, count in stems.items() if count > 1]


def test_words_that_need_explaining_are_in_the_glossary():
    glossary = (ROOT / "docs" / "glossary.md").read_text(encoding="utf-8")
    rows = re.findall(r"^\| (.+?) \| (.+?) \| (.+?) \|$", glossary, flags=re.MULTILINE)[1:]
    assert len(rows) > 30
    assert [row[0].lower() for row in rows[1:]] == sorted(row[0].lower() for row in rows[1:])
