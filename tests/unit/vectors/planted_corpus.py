"""A text in which analogies are planted."""

import numpy as np

COUNTRIES = [f"country{n}" for n in range(8)]
CITIES = [f"city{n}" for n in range(8)]


def planted_text(seed=0, sentences=6000):
    """Capitals and countries share topics: pairs by number, kinds by the words around them."""
    rng = np.random.default_rng(seed)
    lines = []
    for _ in range(sentences):
        number = rng.integers(8)
        is_city = rng.random() < 0.5
        kind = [f"{'town' if is_city else 'land'}{k}" for k in rng.integers(0, 6, 3)]
        topic = [f"topic{number}x{k}" for k in rng.integers(0, 6, 3)]
        line = [*kind, *topic]
        rng.shuffle(line)
        line.insert(3, CITIES[number] if is_city else COUNTRIES[number])
        lines.append(" ".join(line))
    return "\n".join(lines) + "\n"
