"""Integers in words, as far as dates need them: 1 to 2099, in four languages."""

from __future__ import annotations

ENGLISH = (
    "zero one two three four five six seven eight nine ten eleven twelve thirteen fourteen fifteen sixteen seventeen "
    "eighteen nineteen"
).split()
ENGLISH_TENS = "twenty thirty forty fifty sixty seventy eighty ninety".split()
ENGLISH_ORDINALS = {"one": "first", "two": "second", "three": "third", "five": "fifth", "eight": "eighth",
                    "nine": "ninth", "twelve": "twelfth"}  # fmt: skip
GERMAN = (
    "null eins zwei drei vier fünf sechs sieben acht neun zehn elf zwölf dreizehn vierzehn fünfzehn sechzehn siebzehn "
    "achtzehn neunzehn"
).split()
GERMAN_TENS = "zwanzig dreißig vierzig fünfzig sechzig siebzig achtzig neunzig".split()
GERMAN_ORDINALS = {1: "erste", 3: "dritte", 7: "siebte", 8: "achte"}
FRENCH = (
    "zéro un deux trois quatre cinq six sept huit neuf dix onze douze treize quatorze quinze seize dix-sept dix-huit "
    "dix-neuf"
).split()
FRENCH_TENS = {2: "vingt", 3: "trente", 4: "quarante", 5: "cinquante", 6: "soixante", 8: "quatre-vingt"}
SPANISH = (
    "cero uno dos tres cuatro cinco seis siete ocho nueve diez once doce trece catorce quince dieciséis diecisiete "
    "dieciocho diecinueve veinte veintiuno veintidós veintitrés veinticuatro veinticinco veintiséis veintisiete "
    "veintiocho veintinueve"
).split()
SPANISH_TENS = "treinta cuarenta cincuenta sesenta setenta ochenta noventa".split()


def english(number: int) -> str:
    """0 to 99: forty-two."""
    if number < 20:
        return ENGLISH[number]
    tens, ones = divmod(number, 10)
    return ENGLISH_TENS[tens - 2] + (f"-{ENGLISH[ones]}" if ones else "")


def english_ordinal(number: int) -> str:
    """1 to 99: forty-second."""
    head, dash, last = english(number).rpartition("-")
    if last in ENGLISH_ORDINALS:
        return head + dash + ENGLISH_ORDINALS[last]
    return head + dash + (last[:-1] + "ieth" if last.endswith("y") else last + "th")


def english_year(year: int) -> str:
    """1900 to 2099, read in pairs of digits: nineteen eighty-seven, nineteen oh five; but two thousand five."""
    century, remainder = divmod(year, 100)
    if century == 20 and remainder < 10:
        return "two thousand" + (f" {english(remainder)}" if remainder else "")
    if remainder == 0:
        return f"{english(century)} hundred"
    return f"{english(century)} {'oh ' if remainder < 10 else ''}{english(remainder)}"


def german(number: int) -> str:
    """0 to 99: zweiundvierzig."""
    if number < 20:
        return GERMAN[number]
    tens, ones = divmod(number, 10)
    return (f"{'ein' if ones == 1 else GERMAN[ones]}und" if ones else "") + GERMAN_TENS[tens - 2]


def german_ordinal(number: int) -> str:
    """1 to 99, in the weak nominative form: zweiundvierzigste."""
    return GERMAN_ORDINALS.get(number) or german(number) + ("te" if number < 20 else "ste")


def german_year(year: int) -> str:
    """neunzehnhundertsiebenundachtzig, zweitausendfünf."""
    century, remainder = divmod(year, 100)
    head = "zweitausend" if century == 20 else f"{german(century)}hundert"
    return head + (german(remainder) if remainder else "")


def french(number: int) -> str:
    """0 to 99: quarante-deux, soixante et onze, quatre-vingt-dix-neuf."""
    if number < 20:
        return FRENCH[number]
    tens, ones = divmod(number, 10)
    if tens in (7, 9):
        tens, ones = tens - 1, ones + 10
    if not ones:
        return FRENCH_TENS[tens] + ("s" if tens == 8 else "")
    return FRENCH_TENS[tens] + (" et " if ones in (1, 11) and tens != 8 else "-") + FRENCH[ones]


def french_year(year: int) -> str:
    """mille neuf cent quatre-vingt-sept, deux mille cinq."""
    thousands, remainder = divmod(year, 1000)
    hundreds, remainder = divmod(remainder, 100)
    words = ["mille" if thousands == 1 else f"{FRENCH[thousands]} mille"]
    if hundreds:
        words.append(("" if hundreds == 1 else FRENCH[hundreds] + " ") + ("cent" if remainder else "cents"))
    return " ".join([*words, french(remainder)] if remainder else words)


def spanish(number: int) -> str:
    """0 to 99: cuarenta y dos."""
    if number < 30:
        return SPANISH[number]
    tens, ones = divmod(number, 10)
    return SPANISH_TENS[tens - 3] + (f" y {SPANISH[ones]}" if ones else "")


def spanish_year(year: int) -> str:
    """mil novecientos ochenta y siete, dos mil cinco."""
    century, remainder = divmod(year, 100)
    head = "dos mil" if century == 20 else "mil novecientos"
    return head + (f" {spanish(remainder)}" if remainder else "")
