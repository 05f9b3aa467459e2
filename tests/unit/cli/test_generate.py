"""`regard generate`: prompts in, continuations out; pipes and interrupts."""

import json
import signal
import subprocess
import time

import pytest
from unit.cli.runner import COMMAND, run
from unit.tasks import models, vocabularies

import regard
from regard.tasks.generate import Sampling

PROMPTS = vocabularies.sentences(8, seed=31)


@pytest.fixture(scope="module")
def folder(tmp_path_factory):
    return models.continuing(tmp_path_factory.mktemp("llama"))


def test_a_prompt_and_lines(folder):
    expected = [result.text for result in regard.load(folder).generate(PROMPTS, max_new_tokens=6)]
    assert run("generate", folder, PROMPTS[0], "--max-new-tokens", 6).out == expected[0] + "\n"
    lines = run("generate", folder, "--max-new-tokens", 6, given="\n".join(PROMPTS)).lines
    assert lines == [text.replace("\n", "\\n").replace("\r", "\\r") for text in expected]


@pytest.mark.parametrize("options", [[], ["--beam", "2"], ["--sample", "--seed", "3"]], ids=str)
def test_a_stream_is_the_text(folder, options):
    """Multi-byte characters, line breaks, several prompts: the streamed output equals the complete output."""
    given = "\n".join(["", "東京 naïve", "🙂", *PROMPTS])
    one, other = (
        run("generate", folder, "--max-new-tokens", 9, *options, *stream, given=given) for stream in ([], ["--stream"])
    )
    assert one.out == other.out
    assert one.err == other.err


def test_a_line_break_is_one_line_among_others_and_itself_alone(tmp_path):
    """A model that can only generate line breaks."""
    folder = models.continuing(tmp_path)
    model = regard.load(folder)
    newline = model.tokenizer.token_to_id("<0x0A>")
    others = [token for token in range(len(model.tokenizer)) if token != newline]
    (folder / "generation_config.json").write_text(json.dumps({"eos_token_id": 2, "suppress_tokens": others}))
    for stream in ([], ["--stream"]):
        assert run("generate", folder, "a", "--max-new-tokens", 3, *stream).out == "\n\n\n\n"
        assert run("generate", folder, "--max-new-tokens", 3, *stream, given="a\nb").lines == ["\\n\\n\\n"] * 2


def test_sampling_is_asked_for_and_repeats_with_its_seed(folder):
    call = (
        "generate",
        folder,
        PROMPTS[0],
        "--max-new-tokens",
        8,
        "--sample",
        "--temperature",
        1.4,
        "--top-k",
        50,
        "--seed",
    )
    sampling = Sampling(seed=5, temperature=1.4, top_k=50)
    expected = regard.load(folder, precision="float32").generate(PROMPTS[0], max_new_tokens=8, sampling=sampling)
    assert json.loads(run(*call, 5, "--json").out) == expected.as_json()
    assert run(*call, 5).out != run(*call, 6).out


def test_a_seed_that_is_drawn_is_printed(folder):
    """An option of sampling implies --sample. The line with the seed repeats the result, alone and in a batch."""
    words = ("--top-k", 50, "--temperature", 1.8, "--max-new-tokens", 6)
    drawn = run("generate", folder, *words, given="\n".join(PROMPTS[:3]))
    seed = drawn.err.split("sampled with --seed ")[1].split()[0]
    assert run("generate", folder, *words, "--seed", seed, given="\n".join(PROMPTS[:3])).out == drawn.out
    alone = [run("generate", folder, prompt, *words, "--seed", seed) for prompt in PROMPTS[:3]]
    assert [each.out.replace("\n", "") for each in alone] == [line.replace("\\n", "") for line in drawn.lines]
    assert "--seed" not in alone[0].err


def test_temperature_zero_is_greedy(folder):
    greedy = run("generate", folder, PROMPTS[0], "--max-new-tokens", 6).out
    for words in (["--temperature", "0"], ["--sample", "--temperature", "0"]):
        cold = run("generate", folder, PROMPTS[0], "--max-new-tokens", 6, *words)
        assert (cold.out, "seed" in cold.err) == (greedy, False)


@pytest.mark.parametrize(
    ("words", "message"),
    [
        (["--sample", "--top-p", "7"], "top_p must be between 0 and 1"),
        (["--temperature", "-1"], "temperature is -1: expected 0"),
        (["--sample", "--beam", "2"], "sampling and beam search cannot be combined"),
        (["--control", "Links"], "has no control codes"),
        (["--stop", ""], "at least one character"),
        (["--stream", "--n-best", "2"], "remove --n-best"),
    ],
)
def test_wrong_calls(folder, words, message):
    called = run("generate", folder, "a", *words)
    assert called.code == 2
    assert message in " ".join(called.err.split())


def test_why_it_stopped(folder):
    told = [
        json.loads(line)
        for line in run("generate", folder, "--json", "--max-new-tokens", 6, given="\n".join(PROMPTS)).lines
    ]
    assert {one["stopped"] for one in told} <= {"end", "length"}
    called = run("generate", folder, PROMPTS[0], "--max-new-tokens", 40, "--json", "--stop", "never written")
    assert json.loads(called.out)["stopped"] in ("end", "length")


def test_half_precision_is_computed_in_single(folder, tmp_path):
    """float16 weights give the same text as the same values in float32."""
    half = models.continuing(tmp_path / "half")
    regard.load(half).save(half, precision="float16")
    single = models.continuing(tmp_path / "single")
    regard.load(half).save(single, precision="float32")
    expected = regard.load(single, precision="float32").generate(PROMPTS[0], max_new_tokens=8)
    told = json.loads(run("generate", half, PROMPTS[0], "--max-new-tokens", 8, "--json").out)
    assert told == expected.as_json()


def test_a_closed_pipe_is_no_error(folder):
    """As with `| head -1`: the reader closes the pipe after the first line."""
    call = [*COMMAND, "generate", str(folder), "-", "--max-new-tokens", "30"]
    with subprocess.Popen(call, stdin=subprocess.PIPE, stdout=subprocess.PIPE, stderr=subprocess.PIPE) as process:
        process.stdin.write(("\n".join(PROMPTS * 200)).encode())
        process.stdin.close()
        assert process.stdout.readline().endswith(b"\n")
        process.stdout.close()
        message = process.stderr.read().decode()
        assert process.wait(timeout=120) == 0
    assert message == ""


def test_an_interrupt_leaves_what_is_finished(folder):
    """Line by line with --stream: the output before the interrupt is complete."""
    call = [*COMMAND, "generate", str(folder), "-", "--max-new-tokens", "4", "--stream"]
    pipes = dict(stdin=subprocess.PIPE, stdout=subprocess.PIPE, stderr=subprocess.PIPE)
    # A test run in the background ignores interrupts, and the command would inherit that.
    with subprocess.Popen(call, preexec_fn=lambda: signal.signal(signal.SIGINT, signal.SIG_DFL), **pipes) as process:
        process.stdin.write(f"{PROMPTS[0]}\n".encode())
        process.stdin.flush()
        first = process.stdout.readline().decode()
        time.sleep(0.2)  # now it waits for the next line
        process.send_signal(signal.SIGINT)
        rest, message = process.communicate(timeout=60)
    assert process.returncode == 130
    assert message.decode() == "interrupted\n"
    assert (
        first + rest.decode()
        == run("generate", folder, PROMPTS[0], "--max-new-tokens", 4).out.replace("\n", "\\n")[:-2] + "\n"
    )


@pytest.mark.parametrize("command", ["translate", "generate"])
def test_help_says_it_all_and_imports_nothing_heavy(command):
    code = (
        "import sys, regard.cli.main as m\n"
        f"try: m.app(['{command}', '--help'])\n"
        "except SystemExit: pass\n"
        "heavy = {'torch', 'numpy', 'pydantic', 'rich', 'tokenizers'} & set(sys.modules)\n"
        "assert not heavy, heavy"
    )
    shown = subprocess.run([*COMMAND[:2], code], check=True, capture_output=True, text=True).stdout
    for option in ("--beam", "--n-best", "--stream", "--json", "--max-new-tokens"):
        assert option in shown
