"""Synthetic corpora in several languages, generated from a seed. The doctor has no findings for them."""

import itertools
import json
import random
from pathlib import Path

from hypothesis import Phase

QUICK = dict(deadline=None, phases=[Phase.generate])
"""Settings of hypothesis: no shrinking of failures, because that takes minutes."""
WORDS = {
    "en": "man woman child dog horse teacher farmer doctor bird sailor | sees finds follows paints carries washes "
    "watches remembers draws hears | the a every some this | old small happy tired quiet friendly wild young | "
    "near behind beside under before | house river garden mountain station bridge school forest market harbour",
    "de": "Mann Frau Kind Hund Pferd Lehrer Bauer Arzt Vogel Matrose | sieht findet verfolgt bemalt trägt wäscht "
    "beobachtet erinnert zeichnet hört | der ein jeder mancher dieser | alte kleine fröhliche müde stille freundliche "
    "wilde junge | neben hinter bei unter vor | Haus Fluss Garten Berg Bahnhof Brücke Schule Wald Markt Hafen",
    "fr": "homme femme enfant chien cheval maître fermier médecin oiseau marin | voit trouve suit peint porte lave "
    "regarde rappelle dessine entend | le un chaque quelque ce | vieux petit heureux fatigué calme amical sauvage "
    "jeune | près derrière contre sous avant | maison rivière jardin montagne gare pont école forêt marché port",
    "ru": "мужчина женщина ребёнок собака лошадь учитель фермер врач птица моряк | видит находит преследует красит "
    "несёт моет наблюдает помнит рисует слышит | тот один каждый некий этот | старый малый счастливый усталый тихий "
    "дружный дикий молодой | около позади рядом под перед | дом река сад гора вокзал мост школа лес рынок гавань",
    "el": "άντρας γυναίκα παιδί σκύλος άλογο δάσκαλος αγρότης γιατρός πουλί ναύτης | βλέπει βρίσκει ακολουθεί βάφει "
    "κρατάει πλένει κοιτάζει θυμάται ζωγραφίζει ακούει | ο ένας κάθε κάποιος αυτός | παλιός μικρός χαρούμενος "
    "κουρασμένος ήσυχος φιλικός άγριος νέος | κοντά πίσω δίπλα κάτω πριν | σπίτι ποτάμι κήπος βουνό σταθμός γέφυρα "
    "σχολείο δάσος αγορά λιμάνι",
}
BANK = {language: [part.split() for part in words.split("|")] for language, words in WORDS.items()}
LANGUAGES = sorted(BANK)


def _clause(bank, numbers):
    nouns, verbs, articles, adjectives, prepositions, places = bank
    subject, verb, object_, article, adjective, preposition, place = numbers
    return [
        articles[article],
        adjectives[adjective],
        nouns[subject],
        verbs[verb],
        articles[(article + 1) % 5],
        nouns[object_],
        prepositions[preposition],
        articles[(article + 2) % 5],
        places[place],
    ]


def sentences(languages, count, seed):
    """The same distinct sentences in each language, of one to four clauses; the last clause may be shortened."""
    random_ = random.Random(seed)
    sizes = (10, 10, 10, 5, 8, 5, 10)
    seen, result = set(), {language: [] for language in languages}
    while len(seen) < count:
        clauses = [tuple(random_.randrange(size) for size in sizes) for _ in range(random_.choice((1, 1, 2, 3, 4)))]
        short = random_.choice((4, 6, 9))
        key = (tuple(clauses), short)
        if key in seen:
            continue
        generated = {language: _sentence(language, clauses, short) for language in languages}
        if (
            any(generated[language] in result[language][-1:] for language in languages)
            or generated[languages[0]] in seen
        ):
            continue
        seen.add(generated[languages[0]])
        for language in languages:
            result[language].append(generated[language])
    return [result[language] for language in languages]


def _sentence(language, clauses, short):
    words = [_clause(BANK[language], numbers) for numbers in clauses]
    words[-1] = words[-1][:short]
    text = ", ".join(" ".join(clause) for clause in words) + "."
    return text[0].upper() + text[1:]


LABELS = ["joy", "anger", "fear", "surprise"]


def labeled(count, seed, language="en"):
    """Texts with labels; all labels have the same frequency."""
    (texts,) = sentences([language], count, seed)
    return [(text, LABELS[number % len(LABELS)]) for number, text in enumerate(texts)]


def scored(count, seed):
    """Text pairs with a similarity score from 0 to 5."""
    first, second = sentences(["en"], count, seed)[0], sentences(["en"], count, seed + 1)[0]
    random_ = random.Random(seed)
    return [(a, b, f"{random_.uniform(0, 5):.2f}") for a, b in zip(first, second, strict=True)]


TYPES = ["person", "place", "group"]


def tagged(count, seed, scheme="BIO"):
    """Sentences as lists of (word, tag), at least four words each, with entities of one to three words."""
    (texts,) = sentences(["en"], count, seed)
    random_ = random.Random(seed)
    return [_tags(text.split(), random_, scheme) for text in texts]


def _tags(words, random_, scheme):
    tags = []
    while len(tags) < len(words):
        length = min(random_.choice((1, 2, 3)), len(words) - len(tags))
        kind = random_.choice([None, *TYPES])
        tags += _entity(kind, length, scheme, tags[-1] if tags else "O")
    return list(zip(words, tags, strict=True))


def _entity(kind, length, scheme, before):
    if kind is None:
        return ["O"] * length
    if scheme == "IOB1":
        prefix = "B" if before[2:] == kind else "I"
        return [f"{prefix}-{kind}"] + [f"I-{kind}"] * (length - 1)
    if scheme == "BIOES":
        return [f"S-{kind}"] if length == 1 else [f"B-{kind}"] + [f"I-{kind}"] * (length - 2) + [f"E-{kind}"]
    return [f"B-{kind}"] + [f"I-{kind}"] * (length - 1)


def conll(sentences_):
    """Sentences as lines of a CoNLL file."""
    return [line for sentence in sentences_ for line in [*(f"{word}\t{tag}" for word, tag in sentence), ""]]


def questions(count, seed):
    """Questions as records, with a context of three sentences that contains the answer."""
    (texts,) = sentences(["en"], 3 * count, seed)
    random_ = random.Random(seed)
    generated = []
    for number in range(count):
        context = " ".join(texts[3 * number : 3 * number + 3])
        answer = random_.choice(context.replace(",", "").replace(".", "").split())
        start = context.index(answer)
        answers = [{"text": answer, "answer_start": start}]
        question = f"What is it that the {number}th teller says after all?"
        generated.append({"id": f"q{number}", "question": question, "context": context, "answers": answers})
    return generated


def squad(records):
    """Records in SQuAD format, one question per line (so line = index + 2)."""
    rows = []
    for record in records:
        question = {name: value for name, value in record.items() if name != "context"}
        rows.append(json.dumps({"paragraphs": [{"context": record["context"], "qas": [question]}]}))
    return ['{"data": [', *(row + ("," if number < len(rows) - 1 else "") for number, row in enumerate(rows)), "]}"]


def write(path: Path, lines, end="\n"):
    """Write lines to a UTF-8 file; lines of type bytes are written unchanged."""
    path.write_bytes(b"".join((line if isinstance(line, bytes) else line.encode()) + end.encode() for line in lines))
    return path


def pairs_of_languages():
    return list(itertools.permutations(LANGUAGES, 2))
