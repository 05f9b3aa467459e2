"""The demo's data: dates in words."""

import re
from datetime import date

import pytest

from regard.demo import dates, number_words


@pytest.mark.parametrize(
    ("said", "expected"),
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
def test_numbers_in_words(said, expected):
    assert said == expected


@pytest.mark.parametrize(
    "say", [number_words.english_year, number_words.german_year, number_words.french_year, number_words.spanish_year]
)
def test_no_two_years_sound_alike(say):
    assert len({say(year) for year in range(1900, 2100)}) == 200


def test_every_way_tells_days_apart():
    some = dates.days(200, seed=1)
    for way in dates.SEEN + dates.UNSEEN:
        assert len({dates.write(way, day) for day in some}) == len(some), way


def test_ways_that_are_never_seen_are_never_seen():
    assert not set(dates.SEEN) & set(dates.UNSEEN)
    some = dates.days(300, seed=2)
    seen = {dates.write(way, day) for way in dates.SEEN for day in some}
    unseen = {dates.write(way, day) for way in dates.UNSEEN for day in some}
    # A few texts come out alike by chance: a French month that needs no shortening, a day of two figures.
    assert len(seen & unseen) < 0.15 * len(unseen)


def test_days_are_different_and_fixed_by_the_seed():
    assert dates.days(500, seed=3) == dates.days(500, seed=3)
    assert len(set(dates.days(5000, seed=3))) == 5000
    assert dates.days(50, seed=3) != dates.days(50, seed=4)


def test_pairs_are_texts_and_iso_dates():
    which = dates.days(400, seed=5)
    made = list(dates.pairs(which, dates.SEEN, seed=6))
    assert [target for _, target in made] == [day.isoformat() for day in which]
    assert made == list(dates.pairs(which, dates.SEEN, seed=6))
    for text, target in made:
        year, day = date.fromisoformat(target).year, date.fromisoformat(target).day
        figures = {int(number) for number in re.findall(r"\d+", text)}
        assert not figures or figures & {year, day, int(target.replace("-", ""))}, (text, target)
