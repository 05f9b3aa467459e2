"""The demo's data: dates in words."""

import re
from datetime import date

import pytest

from regard.demo import dates, number_words


@pytest.mark.parametrize(
    ("words", "expected"),
    [
        (number_words.english_year(1987), "nineteen eighty-seven"),
        (number_words.english_year(1905), "nineteen oh five"),
        (number_words.english_year(1900), "nineteen hundred"),
        (number_words.english_year(2000), "two thousand"),
        (number_words.english_year(2005), "two thousand five"),
        (number_words.english_year(2024), "twenty twenty-four"),
        (number_words.english_ordinal(1), "first"),
        (number_words.english_ordinal(12), "twelfth"),
        (number_words.english_ordinal(20), "twentieth"),
        (number_words.english_ordinal(31), "thirty-first"),
        (number_words.german_year(1987), "neunzehnhundertsiebenundachtzig"),
        (number_words.german_year(2021), "zweitausendeinundzwanzig"),
        (number_words.german_ordinal(3), "dritte"),
        (number_words.german_ordinal(19), "neunzehnte"),
        (number_words.german_ordinal(21), "einundzwanzigste"),
        (number_words.french_year(1971), "mille neuf cent soixante et onze"),
        (number_words.french_year(1980), "mille neuf cent quatre-vingts"),
        (number_words.french_year(1999), "mille neuf cent quatre-vingt-dix-neuf"),
        (number_words.french_year(2021), "deux mille vingt et un"),
        (number_words.french(81), "quatre-vingt-un"),
        (number_words.spanish_year(1987), "mil novecientos ochenta y siete"),
        (number_words.spanish_year(2021), "dos mil veintiuno"),
        (number_words.spanish(31), "treinta y uno"),
    ],
)
def test_numbers_in_words(words, expected):
    assert words == expected


@pytest.mark.parametrize(
    "year_words",
    [number_words.english_year, number_words.german_year, number_words.french_year, number_words.spanish_year],
)
def test_no_two_years_sound_alike(year_words):
    assert len({year_words(year) for year in range(1900, 2100)}) == 200


def test_every_template_distinguishes_days():
    days = dates.sample_days(200, seed=1)
    for template in dates.TRAIN_TEMPLATES + dates.HELD_OUT_TEMPLATES:
        assert len({dates.format_date(template, day) for day in days}) == len(days), template


def test_held_out_templates_do_not_occur_in_training():
    assert not set(dates.TRAIN_TEMPLATES) & set(dates.HELD_OUT_TEMPLATES)
    days = dates.sample_days(300, seed=2)
    train = {dates.format_date(template, day) for template in dates.TRAIN_TEMPLATES for day in days}
    held_out = {dates.format_date(template, day) for template in dates.HELD_OUT_TEMPLATES for day in days}
    # A few texts are equal by coincidence: a French month without an abbreviation, a day with two digits.
    assert len(train & held_out) < 0.15 * len(held_out)


def test_days_are_different_and_fixed_by_the_seed():
    assert dates.sample_days(500, seed=3) == dates.sample_days(500, seed=3)
    assert len(set(dates.sample_days(5000, seed=3))) == 5000
    assert dates.sample_days(50, seed=3) != dates.sample_days(50, seed=4)


def test_pairs_are_texts_and_iso_dates():
    days = dates.sample_days(400, seed=5)
    pairs = list(dates.make_pairs(days, dates.TRAIN_TEMPLATES, seed=6))
    assert [target for _, target in pairs] == [day.isoformat() for day in days]
    assert pairs == list(dates.make_pairs(days, dates.TRAIN_TEMPLATES, seed=6))
    for text, target in pairs:
        year, day = date.fromisoformat(target).year, date.fromisoformat(target).day
        numbers = {int(number) for number in re.findall(r"\d+", text)}
        assert not numbers or numbers & {year, day, int(target.replace("-", ""))}, (text, target)
