"""The one page: held against the package, against differences, and to what it prints."""

import ast
import re
import subprocess
import sys
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


def packed(E, *weights):
    """The page's flat list as the package's trees."""
    blocks = []
    for i in range(0, len(weights), 12):
        *W, W_O, gamma_1, beta_1, W_1, b_1, W_2, b_2, gamma_2, beta_2 = weights[i : i + 12]
        W = [w.swapaxes(0, 1).reshape(D, D) for w in W]  # heads side by side
        attention = npf.AttentionParams(*W, W_O.reshape(D, D))
        norms = npf.LayerNormParams(gamma_1, beta_1), npf.LayerNormParams(gamma_2, beta_2)
        blocks.append(
            npf.EncoderBlockParams(attention, norms[0], npf.FFNParams(W_1, b_1, W_2, b_2), norms[1])
        )
    return npf.EmbeddingParams(E), npf.EncoderParams(tuple(blocks))


def packages_own():
    """Logits, loss and gradients as the package has them."""
    embedding, encoder = packed(*WEIGHTS)
    x, embedded = npf.embedding_forward(IDS, embedding)
    x = x + npf.positional_encoding(T, D)
    y, stack = npf.encoder_forward(x, encoder, CONFIG, mask=npf.causal_mask(T))
    logits, tied = npf.tied_logits_forward(y, embedding)
    loss, asked = npf.cross_entropy_forward(logits, TARGETS, ignore_index=-1)
    dy, by_logits = npf.tied_logits_backward(npf.cross_entropy_backward(1.0, asked), tied)
    dx, dencoder = npf.encoder_backward(dy, stack)
    dE = by_logits.E + npf.embedding_backward(dx, embedded).E
    return logits, loss, (npf.EmbeddingParams(dE), dencoder)


def test_outputs_and_every_gradient_are_the_packages():
    logits, loss, grads = packages_own()
    my_logits, _ = one_page.transformer(IDS, *WEIGHTS)
    my_loss, my_grads = one_page.loss_and_gradients(WEIGHTS, IDS, TARGETS)
    pairs = {"logits": (my_logits, logits), "loss": (my_loss, loss)}
    mine, theirs = (dict(npf.leaves(tree)) for tree in (packed(*my_grads), grads))
    assert mine.keys() == theirs.keys() and len(mine) == 1 + 12 * LAYERS
    for name, (a, b) in (pairs | {name: (mine[name], theirs[name]) for name in theirs}).items():
        np.testing.assert_allclose(a, b, rtol=0, atol=1e-12, err_msg=name)
    np.testing.assert_allclose(one_page.positions(50, 8), npf.positional_encoding(50, 8), rtol=0, atol=1e-12)


def test_adamw_is_the_packages():
    mine, (ms, vs) = [w.copy() for w in WEIGHTS], ([np.zeros_like(w) for w in WEIGHTS] for _ in range(2))
    theirs = tuple(WEIGHTS)
    state = npf.adam_init(theirs)
    for step in (1, 2, 3):
        grads = tuple(RNG.normal(size=w.shape) for w in WEIGHTS)
        one_page.adamw(mine, grads, ms, vs, step, 0.01 * step)
        theirs, state = npf.adam_update(theirs, grads, state, learning_rate=0.01 * step, weight_decay=0.01)
    for a, b in zip(mine, theirs, strict=True):
        np.testing.assert_allclose(a, b, rtol=0, atol=1e-12)


def test_it_fits_one_page_and_needs_numpy_only():
    tree, lines = ast.parse(SOURCE), SOURCE.splitlines()
    imported = {n.names[0].name for n in ast.walk(tree) if isinstance(n, ast.Import)}
    imported |= {n.module for n in ast.walk(tree) if isinstance(n, ast.ImportFrom)}
    assert imported == {"sys", "math", "numpy"}
    assert len(lines) <= 200 and max(map(len, lines)) <= 110
    starts = [n.lineno for n in ast.walk(tree) if isinstance(n, ast.stmt)]
    assert len(starts) == len(set(starts)), "two statements in a line"


def circled(lines):
    """The circled numbers at the ends of lines, each once: "①①②" is "①②"."""
    return re.sub(r"(.)\1+", r"\1", "".join(re.findall(r"# ([①-⑨])", "\n".join(lines))))


def test_backward_undoes_the_forward_from_its_last_line_up():
    lines, functions = SOURCE.splitlines(), [n for n in ast.parse(SOURCE).body if hasattr(n, "args")]
    turns = [(f.lineno, g.lineno - 1, g.end_lineno) for f in functions for g in f.body if hasattr(g, "args")]
    assert len(turns) == 6
    for first, turn, last in turns:
        down, up = circled(lines[first:turn]), circled(lines[turn:last])
        assert down == up[::-1] == "①②③④⑤⑥⑦⑧⑨"[: len(down)], lines[first - 1]


def losses(printed):
    return [float(loss) for loss in re.findall(r"loss (\d+\.\d+)", printed)]


def test_a_short_training_lowers_the_loss_and_its_slope_is_right(capsys):
    one_page.main(["Ada"], steps=60)
    printed = capsys.readouterr().out
    by_hand, tried = re.search(r"direction: (\S+) by hand, (\S+) tried", printed).groups()
    assert by_hand == tried
    assert np.mean(losses(printed)[-3:]) < 0.9 * losses(printed)[0]
    assert "    Ada -> " in printed


@pytest.mark.slow
def test_it_learns_to_say_words_backwards():
    """As it is typed, from a folder of one's own, with a name."""
    done = subprocess.run(
        [sys.executable, one_page.__file__, "Zoë Ada"], capture_output=True, text=True, check=True
    )
    said = dict(re.findall(r"^    (.+) -> (.+)$", done.stdout, re.MULTILINE))
    assert said == {
        "dog bites man": "nam setib god", "transformer": "remrofsnart",
        "step on no pets": "step on no pets", "Zoë Ada": "ada oz",
    }  # fmt: skip
    assert int(re.search(r"(\d+) of 500", done.stdout)[1]) >= 490
    assert losses(done.stdout)[-1] < 0.01


def test_the_command_writes_it_and_keeps_what_is_there(tmp_path, monkeypatch, capsys):
    monkeypatch.chdir(tmp_path)
    monkeypatch.setenv("UV", "uv")
    page = Path("one_page.py")
    page.write_text("mine")
    assert cli.main(["one-page"]) == 2
    assert "--force" in capsys.readouterr().err and page.read_text() == "mine"
    assert cli.main(["one-page", "--force"]) == cli.main(["one-page", "other.py"]) == 0
    assert page.read_text(encoding="utf-8") == Path("other.py").read_text(encoding="utf-8") == SOURCE
    assert capsys.readouterr().out.endswith("\n    uv run python other.py\n")
