"""Test the model on one page: compare the model with npformer, and check its text and its output."""

import ast
import itertools
import re
import subprocess
import sys
from contextlib import redirect_stdout
from io import StringIO
from pathlib import Path

import numpy as np
import pytest

import npformer as npf
from npformer import cli
from npformer.handouts import one_page

SOURCE = Path(one_page.__file__).read_text(encoding="utf-8")
RNG = np.random.default_rng(0)
D, H, D_FF, T, LAYERS = 6, 3, 8, 5, 2
IDS = RNG.integers(28, size=(2, T))
TARGETS = np.where(RNG.random((2, T)) < 0.4, -1, RNG.integers(28, size=(2, T)))
CONFIG = npf.TransformerConfig(d_model=D, d_ff=D_FF, n_heads=H, n_layers=LAYERS)
WEIGHTS = [w + 0.3 * RNG.normal(size=w.shape) for w in one_page.new_weights(RNG, D, D_FF, H, LAYERS)]


def join_heads(w):
    """Return one matrix (D, D) that has the columns of all heads next to each other."""
    return w.swapaxes(0, 1).reshape(D, D)


def build_params(E, *weights):
    """Build parameters for npformer from the one-page program's flat list of arrays."""
    blocks = []
    for i in range(0, len(weights), 12):
        W_Q, W_K, W_V, W_O, gamma_1, beta_1, W_1, b_1, W_2, b_2, gamma_2, beta_2 = weights[i : i + 12]
        attention = npf.AttentionParams(join_heads(W_Q), join_heads(W_K), join_heads(W_V), W_O.reshape(D, D))
        norms = npf.LayerNormParams(gamma_1, beta_1), npf.LayerNormParams(gamma_2, beta_2)
        blocks.append(
            npf.EncoderBlockParams(attention, norms[0], npf.FFNParams(W_1, b_1, W_2, b_2), norms[1])
        )
    return npf.EmbeddingParams(E), npf.EncoderParams(tuple(blocks))


def run_package():
    """Compute logits, loss and gradients with npformer."""
    embedding, encoder = build_params(*WEIGHTS)
    x, embedded = npf.embedding_forward(IDS, embedding)
    x = x + npf.positional_encoding(T, D)
    y, stack = npf.encoder_forward(x, encoder, CONFIG, mask=npf.causal_mask(T))
    logits, tied = npf.tied_logits_forward(y, embedding)
    loss, loss_cache = npf.cross_entropy_forward(logits, TARGETS, ignore_index=-1)
    dy, by_logits = npf.tied_logits_backward(npf.cross_entropy_backward(1.0, loss_cache), tied)
    dx, dencoder = npf.encoder_backward(dy, stack)
    dE = by_logits.E + npf.embedding_backward(dx, embedded).E
    return logits, loss, (npf.EmbeddingParams(dE), dencoder)


def assert_close(found, expected, name=""):
    np.testing.assert_allclose(found, expected, rtol=0, atol=1e-12, err_msg=name)


def test_transformer_agrees_with_the_package():
    logits, loss, _ = run_package()
    found_logits, _ = one_page.transformer(IDS, *WEIGHTS)
    found_loss, _ = one_page.loss_and_gradients(WEIGHTS, IDS, TARGETS)
    assert_close(found_logits, logits)
    assert_close(found_loss, loss)


def test_gradients_agree_with_the_package():
    expected = dict(npf.leaves(run_package()[2]))
    _, grads = one_page.loss_and_gradients(WEIGHTS, IDS, TARGETS)
    found = dict(npf.leaves(build_params(*grads)))
    assert found.keys() == expected.keys() and len(found) == 1 + 12 * LAYERS
    for name in expected:
        assert_close(found[name], expected[name], name)


def test_positions_agree_with_the_package():
    assert_close(one_page.positions(50, 8), npf.positional_encoding(50, 8))


def test_adamw_agrees_with_the_package():
    found = [w.copy() for w in WEIGHTS]
    ms = [np.zeros_like(w) for w in WEIGHTS]
    vs = [np.zeros_like(w) for w in WEIGHTS]
    expected = tuple(WEIGHTS)
    state = npf.adam_init(expected)
    for step in (1, 2, 3):
        grads = tuple(RNG.normal(size=w.shape) for w in WEIGHTS)
        one_page.adamw(found, grads, ms, vs, step, 0.01 * step)
        expected, state = npf.adam_update(
            expected, grads, state, learning_rate=0.01 * step, weight_decay=0.01
        )
    for a, b in zip(found, expected, strict=True):
        assert_close(a, b)


def test_one_page_imports_only_numpy():
    tree = ast.parse(SOURCE)
    imports = [node for node in ast.walk(tree) if isinstance(node, ast.Import)]
    imported: set[str | None] = {node.names[0].name for node in imports}
    imported |= {node.module for node in ast.walk(tree) if isinstance(node, ast.ImportFrom)}
    assert imported == {"sys", "math", "numpy"}


def test_one_page_has_at_most_200_lines():
    lines = SOURCE.splitlines()
    assert len(lines) <= 200
    assert max(len(line) for line in lines) <= 110


def test_one_page_has_one_statement_per_line():
    starts = [node.lineno for node in ast.walk(ast.parse(SOURCE)) if isinstance(node, ast.stmt)]
    assert len(starts) == len(set(starts))


def list_circled_numbers(lines):
    """Return the circled numbers in the comments of these lines. List equal neighbours only once."""
    numbers = re.findall(r"# ([①-⑨])", "\n".join(lines))
    return "".join(number for number, _ in itertools.groupby(numbers))


def list_functions(node):
    return [child for child in node.body if isinstance(child, ast.FunctionDef)]


FORWARDS = [function for function in list_functions(ast.parse(SOURCE)) if list_functions(function)]


def test_one_page_has_six_backward_passes():
    assert len(FORWARDS) == 6


@pytest.mark.parametrize("forward", FORWARDS, ids=lambda function: function.name)
def test_backward_undoes_the_forward_line_by_line(forward):
    lines = SOURCE.splitlines()
    (backward,) = list_functions(forward)
    forward_numbers = list_circled_numbers(lines[forward.lineno : backward.lineno - 1])
    backward_numbers = list_circled_numbers(lines[backward.lineno - 1 : backward.end_lineno])
    assert forward_numbers == "①②③④⑤⑥⑦⑧⑨"[: len(forward_numbers)]
    assert backward_numbers == forward_numbers[::-1]


def list_losses(printed):
    return [float(loss) for loss in re.findall(r"loss (\d+\.\d+)", printed)]


@pytest.fixture(scope="module")
def short_training():
    """Run a short training and return the printed text."""
    printed = StringIO()
    with redirect_stdout(printed):
        one_page.main(["Ada"], steps=60)
    return printed.getvalue()


def test_short_training_lowers_the_loss(short_training):
    losses = list_losses(short_training)
    assert np.mean(losses[-3:]) < 0.9 * losses[0]
    assert "    Ada -> " in short_training


def test_short_training_prints_equal_derivatives(short_training):
    match = re.search(r"direction: (\S+) by hand, (\S+) by differences", short_training)
    by_hand, finite_difference = match.groups()
    assert by_hand == finite_difference


@pytest.mark.slow
def test_training_learns_to_spell_words_backwards():
    """Run the program in a new process, with a name as argument."""
    command = [sys.executable, one_page.__file__, "Zoë Ada"]
    result = subprocess.run(command, capture_output=True, text=True, check=True)
    answers = dict(re.findall(r"^    (.+) -> (.+)$", result.stdout, re.MULTILINE))
    assert answers == {
        "dog bites man": "nam setib god", "transformer": "remrofsnart",
        "step on no pets": "step on no pets", "Zoë Ada": "ada oz",
    }  # fmt: skip
    assert int(re.search(r"(\d+) of 500", result.stdout)[1]) >= 490
    assert list_losses(result.stdout)[-1] < 0.01


def test_one_page_command_overwrites_only_with_force(tmp_path, monkeypatch, capsys):
    monkeypatch.chdir(tmp_path)
    monkeypatch.setenv("UV", "uv")
    page = Path("one_page.py")
    page.write_text("mine")
    assert cli.main(["one-page"]) == 2
    assert "--force" in capsys.readouterr().err and page.read_text() == "mine"
    assert cli.main(["one-page", "--force"]) == cli.main(["one-page", "other.py"]) == 0
    assert page.read_text(encoding="utf-8") == Path("other.py").read_text(encoding="utf-8") == SOURCE
    assert capsys.readouterr().out.endswith("\n    uv run python other.py\n")
    assert cli.main(["one-page", "--out", "third.py"]) == 0
    assert Path("third.py").read_text(encoding="utf-8") == SOURCE
    with pytest.raises(SystemExit):
        cli.main(["one-page", "other.py", "--out", "third.py"])
