"""What the fuzz test does to files: bytes, values of JSON and TOML, headers of weights, links, pipes and devices."""

import gzip
import json
import os
import pickle
import re
import struct

ESCAPES = "\x1b]0;title\x07\x9b2J\nerror: forged"
VALUES = [
    None, True, False, -1, 0, 1, 3, 10**9, 2**63, 10**30, 1.5, -1e308, float("nan"), float("inf"), "", "x",
    "x" * 50_000, ESCAPES, "../../outside/secret", "/etc/passwd", "\ud800", "int8", [], [[]], {}, {"type": "x"},
    [1, "a", None],
]  # fmt: skip
TOML_VALUES = [
    "-1", "0", "1", "1e9", "1_000_000_000", "nan", "inf", "true", '""', '"x"', "[]", "[[[[1]]]]", "{}", "1979-05-27",
    '"../../outside/secret"', '"/dev/zero"', r'"\u001b[2J\nerror: forged"', "[" * 3000 + "]" * 3000, "9" * 5000,
    '["a", "b", "c"]', '{ kind = "x" }', "0x", "'", "2 3",
]  # fmt: skip


class Evil:
    """Unpickling it creates a folder outside."""

    def __init__(self, marker):
        self.marker = marker

    def __reduce__(self):
        return os.mkdir, (str(self.marker),)


def mutate(path, draw, outside):
    """Damage one file in one way; return a description."""
    kinds = [flip, truncate, insert, empty, replace_by_link_to_itself, replace_by_pipe, replace_by_device, remove]
    kinds += [replace_by_folder, link_to_secret]
    kinds += 8 * ([change_json] if path.suffix == ".json" else [])
    kinds += 16 * ([change_toml] if path.suffix == ".toml" else [])
    kinds += 6 * ([change_header] if path.suffix == ".safetensors" else [])
    kinds += 8 * ([change_text] if path.suffix in (".txt", ".a", ".b", ".jsonl") else [])
    kind = draw.choice(kinds)
    kind(path, draw, outside)
    return f"{kind.__name__}({path.name})"


def plant(folder, draw, outside):
    """Add a file that a model folder may have, but should not."""
    kind = draw.choice(["pickle", "script", "loop", "link", "model", "part"])
    match kind:
        case "pickle":
            (folder / "pytorch_model.bin").write_bytes(pickle.dumps(Evil(outside / "marker")))
        case "script":
            (folder / "modeling.py").write_text(f"import os; os.mkdir({str(outside / 'marker')!r})")
        case "loop":
            (folder / "loop").symlink_to("loop")
        case "link":
            (folder / "tokenizer_x").symlink_to(outside / "secret")
        case "model":
            (folder / "x.model").symlink_to(outside / "secret")
        case "part":
            (folder / ".config.json.1.part").symlink_to(outside / "secret")
    return f"plant {kind}"


def flip(path, draw, _):
    content = bytearray(path.read_bytes())
    for _ in range(draw.choice([1, 1, 3, 50])):
        if content:
            content[draw.randrange(len(content))] ^= 1 << draw.randrange(8)
    path.write_bytes(content)


def truncate(path, draw, _):
    content = path.read_bytes()
    path.write_bytes(content[: draw.randrange(len(content) + 1)])


def insert(path, draw, _):
    content = path.read_bytes()
    position = draw.randrange(len(content) + 1)
    piece = draw.choice([b"\0", b"\xff\xfe", b"\n", draw.randbytes(20), b"\x1b[2J", b"[" * 5000, content[:1000]])
    path.write_bytes(content[:position] + piece + content[position:])


def empty(path, draw, _):
    path.write_bytes(draw.choice([b"", b"\n\n\n", b" ", b"\0" * 100, b"null", b"{}"]))


def remove(path, draw, _):
    path.unlink()


def replace_by_link_to_itself(path, draw, _):
    path.unlink()
    path.symlink_to(path.name)


def replace_by_pipe(path, draw, _):
    path.unlink()
    os.mkfifo(path)


def replace_by_device(path, draw, _):
    path.unlink()
    path.symlink_to(draw.choice(["/dev/zero", "/dev/null", "/dev/random"]))


def replace_by_folder(path, draw, _):
    path.unlink()
    path.mkdir()


def link_to_secret(path, draw, outside):
    """The name is one that a model has, so the content may be read, as in a Hugging Face cache; but not changed."""
    path.unlink()
    path.symlink_to(outside / "secret")


def change_json(path, draw, _):
    try:
        values = json.loads(path.read_text())
    except ValueError:
        return
    for _ in range(draw.choice([1, 1, 2])):
        parent, key = draw.choice(list(places(values)) or [({}, "x")])
        match draw.randrange(6):
            case 0:
                del parent[key]
            case 1 if isinstance(parent, dict):
                parent[draw.choice(["x", ESCAPES, "auto_map", "num_beams", "length_penalty", "labels"])] = parent[key]
            case _:
                parent[key] = draw.choice(VALUES)
    text = json.dumps(values)
    if draw.random() < 0.05:
        text = text.replace("1", "[" * 50_000 + "]" * 50_000, 1)
    path.write_text(text)


def places(value):
    """Yield all places in a JSON value, large lists and vocabularies thinned out."""
    keys = list(value) if isinstance(value, dict) else range(len(value)) if isinstance(value, list) else ()
    for key in list(keys)[:40]:
        yield value, key
        yield from places(value[key])


def change_toml(path, draw, _):
    lines = path.read_text(errors="replace").split("\n")
    chosen = draw.choice([number for number, line in enumerate(lines) if "=" in line] or [0])
    key = lines[chosen].split("=")[0]
    match draw.randrange(8):
        case 0:
            del lines[chosen]
        case 1:
            lines.insert(chosen, lines[chosen])
        case 2:
            lines.insert(chosen, draw.choice([r'"\u001b[2J" = 1', "x = 1", "[[data]]", "[data.train]", "a.b.c = 1"]))
        case 3 if re.search(r"\d", lines[chosen]):
            lines[chosen] = re.sub(
                r"\d+", lambda _: draw.choice(["0", "-1", "1000000000", "7", "1e400"]), lines[chosen]
            )
        case _:
            lines[chosen] = f"{key}= {draw.choice(TOML_VALUES)}"
    path.write_text("\n".join(lines))


def change_header(path, draw, _):
    """Change the header of a safetensors file: its length, or the dtype, shape and place of a tensor."""
    content = path.read_bytes()
    length = struct.unpack("<Q", content[:8])[0] if len(content) >= 8 else 0
    if draw.random() < 0.3 or length > len(content):
        path.write_bytes(struct.pack("<Q", draw.choice([0, 1, length + 1, 2**40, 2**63])) + content[8:])
        return
    header = json.loads(content[8 : 8 + length])
    name = draw.choice(list(header))
    match draw.randrange(4):
        case 0:
            header[draw.choice([ESCAPES, "x", f"{name}.x"])] = header.pop(name)
        case 1:
            header[name] = draw.choice(VALUES)
        case _:
            entry = header[name]
            key = draw.choice(["dtype", "shape", "data_offsets"])
            entry[key] = draw.choice([[2**40, 2**40], [-1], "F64", "I8", [0, 4], [], [10**9]])
    text = json.dumps(header).encode()
    path.write_bytes(struct.pack("<Q", len(text)) + text + content[8 + length :])


def change_text(path, draw, _):
    """Lines of data: bad bytes, control characters, very long lines, a compressed file under a plain name."""
    lines = path.read_bytes().split(b"\n")
    lines[draw.randrange(len(lines))] = draw.choice([
        b"\xff\xfe\xff", ESCAPES.encode("utf-8", "replace"), b"x" * 20_000, b"word " * 4_000, b"\0" * 50, b"\t" * 9,
        b"",
        "\U0001f600\u202e\u0301".encode() * 50, gzip.compress(b"\0" * 10**6), b"{" * 2000, b'{"step": "x"}', b"[1]",
    ])  # fmt: skip
    path.write_bytes(b"\n".join(lines))
