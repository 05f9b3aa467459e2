"""Synthetic data: dates as people write them, and the same dates in ISO 8601.

The demo trains a network to translate them. There are about sixty templates in four languages, with numbers in digits
and in words. Some templates are held out of training, to measure generalization to unseen templates.
"""

from __future__ import annotations

import random
from collections.abc import Iterator
from datetime import date, timedelta

from regard.demo import number_words

FIRST_DAY, LAST_DAY = date(1900, 1, 1), date(2099, 12, 31)

MONTHS = {
    "en": "January February March April May June July August September October November December".split(),
    "de": "Januar Februar März April Mai Juni Juli August September Oktober November Dezember".split(),
    "fr": "janvier février mars avril mai juin juillet août septembre octobre novembre décembre".split(),
    "es": "enero febrero marzo abril mayo junio julio agosto septiembre octubre noviembre diciembre".split(),
}
SHORT_MONTHS = {
    "en": "Jan Feb Mar Apr May Jun Jul Aug Sep Oct Nov Dec".split(),
    "de": "Jan Feb Mär Apr Mai Jun Jul Aug Sep Okt Nov Dez".split(),
    "fr": "janv févr mars avr mai juin juil août sept oct nov déc".split(),
    "es": "ene feb mar abr may jun jul ago sep oct nov dic".split(),
}
WEEKDAYS = {
    "en": "Monday Tuesday Wednesday Thursday Friday Saturday Sunday".split(),
    "de": "Montag Dienstag Mittwoch Donnerstag Freitag Samstag Sonntag".split(),
    "fr": "lundi mardi mercredi jeudi vendredi samedi dimanche".split(),
    "es": "lunes martes miércoles jueves viernes sábado domingo".split(),
}
ROMAN = "I II III IV V VI VII VIII IX X XI XII".split()


def _fields(day: date) -> dict[str, str]:
    """Return the values of all placeholders that a template may contain."""
    fields = {
        "d": str(day.day),
        "dd": f"{day.day:02}",
        "m": str(day.month),
        "mm": f"{day.month:02}",
        "y": str(day.year),
    }
    suffix = "th" if 10 < day.day < 20 else {1: "st", 2: "nd", 3: "rd"}.get(day.day % 10, "th")
    fields |= {
        "dth": f"{day.day}{suffix}",
        "der": "1er" if day.day == 1 else str(day.day),
        "roman": ROMAN[day.month - 1],
    }
    for language in MONTHS:
        fields[f"month_{language}"] = MONTHS[language][day.month - 1]
        fields[f"mon_{language}"] = SHORT_MONTHS[language][day.month - 1]
        fields[f"day_{language}"] = WEEKDAYS[language][day.weekday()]
    fields["day_words_en"] = number_words.english_ordinal(day.day)
    fields["year_words_en"] = number_words.english_year(day.year)
    fields["day_words_de"] = number_words.german_ordinal(day.day)
    fields["year_words_de"] = number_words.german_year(day.year)
    fields["day_words_fr"] = "premier" if day.day == 1 else number_words.french(day.day)
    fields["year_words_fr"] = number_words.french_year(day.year)
    fields["day_words_es"] = number_words.spanish(day.day)
    fields["year_words_es"] = number_words.spanish_year(day.year)
    return fields


TRAIN_TEMPLATES = """
{month_en} {d}, {y}
{month_en} {dth}, {y}
{d} {month_en} {y}
{dth} {month_en} {y}
the {dth} of {month_en}, {y}
{day_en}, {month_en} {d}, {y}
{day_en}, {d} {month_en} {y}
{mon_en} {d}, {y}
{mon_en}. {d}, {y}
{d} {mon_en} {y}
{dd}-{mon_en}-{y}
{day_words_en} of {month_en} {y}
the {day_words_en} of {month_en}, {year_words_en}
{month_en} the {day_words_en}, {year_words_en}
{month_en} {d}, {year_words_en}
{y}, {month_en} {d}
{d}. {month_de} {y}
{dd}. {month_de} {y}
den {d}. {month_de} {y}
{day_de}, {d}. {month_de} {y}
{day_de}, den {d}. {month_de} {y}
{d}. {mon_de} {y}
{day_de}, {d}. {mon_de}. {y}
{d}.{m}.{y}
{dd}.{mm}.{y}
der {day_words_de} {month_de} {y}
der {day_words_de} {month_de} {year_words_de}
{d}. {month_de} {year_words_de}
{d} {month_fr} {y}
le {der} {month_fr} {y}
{day_fr} {der} {month_fr} {y}
le {day_fr} {d} {month_fr} {y}
{d} {mon_fr}. {y}
le {day_words_fr} {month_fr} {y}
le {day_words_fr} {month_fr} {year_words_fr}
{day_fr} {day_words_fr} {month_fr} {year_words_fr}
{d} de {month_es} de {y}
el {d} de {month_es} de {y}
{day_es}, {d} de {month_es} de {y}
{day_es} {d} de {month_es}, {y}
{d} {mon_es} {y}
el {day_words_es} de {month_es} de {y}
el {day_words_es} de {month_es} de {year_words_es}
{day_words_es} de {month_es} de {year_words_es}
{y}-{mm}-{dd}
{y}/{mm}/{dd}
{y}.{mm}.{dd}
{y}{mm}{dd}
{d} {roman} {y}
{d}.{roman}.{y}
""".strip().splitlines()
"""Templates of the training data."""

HELD_OUT_TEMPLATES = """
{day_en} the {dth} of {month_en}, {y}
{mon_en} {dth} {y}
on {month_en} {d}, {y}
{d} {month_en}, {year_words_en}
am {d}. {month_de} {y}
{day_de}, der {day_words_de} {month_de} {y}
{dd} {month_fr} {y}
{day_fr}, {d} {mon_fr} {y}
{day_es}, {day_words_es} de {month_es} de {y}
{d}-{mon_es}-{y}
{y} {mon_en} {dd}
{dd}/{roman}/{y}
""".strip().splitlines()
"""Templates that do not occur in the training data."""


def format_date(template: str, day: date) -> str:
    """Write a date with a template."""
    return template.format_map(_fields(day))


def sample_days(count: int, seed: int) -> list[date]:
    """Return distinct random days, determined by the seed."""
    span = (LAST_DAY - FIRST_DAY).days + 1
    return [FIRST_DAY + timedelta(n) for n in random.Random(seed).sample(range(span), count)]


def make_pairs(days: list[date], templates: list[str], seed: int) -> Iterator[tuple[str, str]]:
    """Yield each day once: written with a random template, in lower case with probability 0.1; and in ISO 8601."""
    rng = random.Random(f"{seed}")
    for day in days:
        text = format_date(rng.choice(templates), day)
        draw = rng.random()
        yield text.lower() if draw < 0.1 else text, day.isoformat()
