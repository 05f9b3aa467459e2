import ast
import dataclasses
import enum
import json
import random
import re
import types
import typing
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st
from unit.transformer.small_networks import DESIGNS, WORDS, decoder_only, few, many

from regard.transformer import config
from regard.transformer.config_json import from_json, to_json

KINDS = [
    kind
    for kind in vars(config).values()
    if dataclasses.is_dataclass(kind) and isinstance(kind, type) and kind.__module__.startswith(config.__name__)
]


def anything(hint, dice):
    """A random value of a type, nested to any depth."""
    if isinstance(hint, types.UnionType) or typing.get_origin(hint) is typing.Union:
        return anything(dice.choice(typing.get_args(hint)), dice)
    if dataclasses.is_dataclass(hint):
        return hint(**{name: anything(one, dice) for name, one in typing.get_type_hints(hint).items()})
    if typing.get_origin(hint) is tuple:
        return tuple(anything(typing.get_args(hint)[0], dice) for _ in range(dice.randint(1, 2)))
    if isinstance(hint, type) and issubclass(hint, enum.Enum):
        return dice.choice(list(hint))
    return {
        int: lambda: dice.choice([0, 1, -1, dice.randint(0, 10**20)]),
        float: lambda: dice.choice([0.0, 1.0, 1e-300, dice.random(), dice.gauss(0, 1e9)]),
        bool: lambda: dice.random() < 0.5,
        types.NoneType: lambda: None,
    }[hint]()


dices = st.integers(0, 10**6).map(random.Random)


@given(dice=dices)
@many
def test_any_config_survives_json_exactly(dice):
    design = anything(config.Network, dice)
    again = from_json(json.loads(json.dumps(to_json(design))))
    assert again == design
    assert repr(again) == repr(design)
    assert hash(again) == hash(design)


@pytest.mark.parametrize("kind", KINDS, ids=lambda kind: kind.__name__)
@given(dice=dices)
@few
def test_any_part_survives_json_on_its_own(kind, dice):
    part = anything(kind, dice)
    assert from_json(json.loads(json.dumps(to_json(part))), kind, "part") == part


def places(value, where="network"):
    """Every value inside a JSON config: its path, its container and its key."""
    inside = value.items() if isinstance(value, dict) else enumerate(value) if isinstance(value, list) else ()
    for key, inner in inside:
        if key != "kind":
            at = f"{where}[{key}]" if isinstance(key, int) else f"{where}.{key}"
            yield at, value, key
            yield from places(inner, at)


@given(dice=dices, wrong=st.sampled_from(["nonsense", {"kind": "Nonsense"}, {}, ["nonsense"]]))
@many
def test_nonsense_anywhere_is_an_error_that_names_the_place(dice, wrong):
    written = to_json(anything(config.Network, dice))
    where, holder, key = dice.choice(list(places(written)))
    holder[key] = wrong
    inside = r"(\[0\])?" if isinstance(wrong, list) else ""
    with pytest.raises(ValueError, match=rf"^{re.escape(where)}{inside}: expected .*, found "):
        from_json(written)


@given(dice=dices)
@many
def test_a_missing_or_unknown_field_anywhere_is_an_error_that_names_the_place_and_the_field(dice):
    written = to_json(anything(config.Network, dice))
    fields = [(where, holder, key) for where, holder, key in places(written) if isinstance(key, str)]
    where, holder, key = dice.choice(fields)
    path, kind = where.rpartition(".")[0], holder["kind"]
    value = holder.pop(key)
    with pytest.raises(ValueError, match=re.escape(f"{path} ({kind}): missing fields ['{key}'], unknown fields []")):
        from_json(written)
    holder[key], holder["colour"] = value, "blue"
    with pytest.raises(ValueError, match=re.escape(f"{path} ({kind}): missing fields [], unknown fields ['colour']")):
        from_json(written)


BLOCK = "network.decoder.blocks[0]"
WRONG = [
    (
        ["kind"],
        "Decoder",
        "network: expected one of ['DecoderOnly', 'DualEncoder', 'EncoderDecoder', 'EncoderOnly', 'TwoStream'] as",
    ),
    (["model_dim"], "10", "network.model_dim: expected int, found '10'"),
    (["model_dim"], 10.0, "network.model_dim: expected int, found 10.0"),
    (["model_dim"], True, "network.model_dim: expected int, found True"),
    (["model_dim"], None, "network.model_dim: expected int, found None"),
    (["decoder", "blocks"], {}, "network.decoder.blocks: expected a list, found {}"),
    (["decoder", "blocks", 0, "attention", "bias"], 1, f"{BLOCK}.attention.bias: expected bool, found 1"),
    (["decoder", "blocks", 0, "attention", "scale"], "1", f"{BLOCK}.attention.scale: expected float, found '1'"),
    (["decoder", "blocks", 0, "order"], "middle", f"{BLOCK}.order: expected one of ['post', 'pre', 'both']"),
    (
        ["decoder", "blocks", 0, "norm", "kind"],
        "BatchNorm",
        f"{BLOCK}.norm: expected one of ['LayerNorm', 'RMSNorm'] as `kind`, found 'BatchNorm'",
    ),
    (["decoder", "blocks", 0, "norm"], None, f"{BLOCK}.norm: expected one of ['LayerNorm', 'RMSNorm'], found None"),
    (["embedding", "tokens", "padding"], "0", "network.embedding.tokens.padding: expected int, found '0'"),
    (
        ["decoder", "blocks", 0, "attention", "kind"],
        "Dense",
        f"{BLOCK}.attention: expected an object of kind Attention",
    ),
]


@pytest.mark.parametrize(("path", "value", "message"), WRONG, ids=[".".join(map(str, path)) for path, _, _ in WRONG])
def test_errors_say_where_what_was_expected_and_what_was_found(path, value, message):
    written = to_json(decoder_only("rotary", head=WORDS))
    holder = written
    for key in path[:-1]:
        holder = holder[key]
    holder[path[-1]] = value
    with pytest.raises(ValueError, match=re.escape(message)):
        from_json(written)


@pytest.mark.parametrize("value", [None, 3, "DecoderOnly", []])
def test_what_is_no_config_at_all_is_an_error(value):
    with pytest.raises(ValueError, match="network: expected one of"):
        from_json(value)


def test_a_whole_number_may_be_written_for_a_fraction():
    written = to_json(decoder_only(head=WORDS))
    written["head"]["scale"] = 2
    scale = from_json(written).head.scale
    assert scale == 2
    assert type(scale) is float


@pytest.mark.parametrize("design", [make("learned") for make in DESIGNS.values()], ids=DESIGNS)
def test_json_is_plain_and_says_every_kind(design):
    written = to_json(design)
    assert written["kind"] == type(design).__name__
    kinds = [value for value in json.dumps(written).split('"') if value in {kind.__name__ for kind in KINDS}]
    assert {"Embedding", "Tokens", "Learned", "Stack", "Block", "Attention", "LayerNorm"} <= set(kinds)


@pytest.mark.parametrize("kind", KINDS, ids=lambda kind: kind.__name__)
def test_every_config_is_frozen_and_takes_keywords_alone(kind):
    assert kind.__dataclass_params__.frozen
    assert all(field.kw_only for field in dataclasses.fields(kind))


def test_a_field_cannot_be_changed_and_a_changed_copy_is_easy():
    design = decoder_only()
    with pytest.raises(dataclasses.FrozenInstanceError):
        design.model_dim = 3
    assert dataclasses.replace(design, model_dim=3).model_dim == 3
    with pytest.raises(TypeError):
        config.Tokens(10, None)


@pytest.mark.parametrize("kind", KINDS, ids=lambda kind: kind.__name__)
def test_structure_has_no_defaults(kind):
    for field in dataclasses.fields(kind):
        if "dropout" in field.name:
            assert field.default == 0.0
        else:
            assert field.default is dataclasses.MISSING
            assert field.default_factory is dataclasses.MISSING


def undocumented():
    """Fields of configs without a docstring, and classes without one."""
    files = sorted(Path(config.__file__).parent.glob("*.py"))
    for kind in [kind for file in files for kind in ast.parse(file.read_text(encoding="utf-8")).body]:
        if not isinstance(kind, ast.ClassDef):
            continue
        if not ast.get_docstring(kind):
            yield kind.name
        for statement, following in zip(kind.body, [*kind.body[1:], None], strict=True):
            if isinstance(statement, ast.AnnAssign):
                documented = isinstance(following, ast.Expr) and isinstance(following.value, ast.Constant)
                if not (documented and isinstance(following.value.value, str) and following.value.value.endswith(".")):
                    yield f"{kind.name}.{statement.target.id}"


def test_a_sentence_stands_under_every_field():
    assert list(undocumented()) == []
    assert len(KINDS) > 20
