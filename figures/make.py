"""Draw the figures of this folder again.

    uv run python figures/make.py                   draw all figures
    uv run python figures/make.py clock_hands.svg   draw the named figures
    uv run python figures/make.py --check           draw and compare with the files, without writing
    uv run python figures/make.py --alt             print each figure as Markdown with its alternative text

The docstring of each figure's function is its alternative text. Line art is SVG, heat maps are PNG. With the
library versions in `drawn_with.txt`, the new files are identical byte for byte. Other versions place letters
slightly differently.
"""

import argparse
import functools
import json
import platform
import sys
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

import matplotlib
import numpy as np
import PIL
from banner import draw_banner
from matplotlib.figure import Figure
from steps import dataflow

from npformer import (
    TransformerConfig,
    angular_frequencies,
    embedding_forward,
    ffn_backward,
    ffn_forward,
    gelu_backward,
    gelu_forward,
    init_encoder,
    init_ffn,
    layer_norm_backward,
    layer_norm_forward,
    multi_head_attention_forward,
    positional_encoding,
    relu_backward,
    relu_forward,
    shift_matrix,
    wavelengths,
)
from npformer.attention import AttentionParams
from npformer.encoder import self_attention_backward, self_attention_forward
from npformer.gradcheck import low_precision
from npformer.gradcheck.kernels import Kernel
from npformer.lessons import plots
from npformer.lessons.worked_example import dog_bites_man, worked_example

FOLDER = Path(__file__).parent
DRAWN_WITH = "drawn_with.txt"


def clock_hands() -> Figure:
    """Nine clocks at positions 0, 3 and 15: the fast hand turns many times, and the slow hand hardly
    moves"""
    return plots.clock_hands([0, 3, 15], angular_frequencies(8))


def frequency_bands() -> Figure:
    """Four bands, each with a sine and a cosine: one turn takes 6.3 positions in the first band and 198.7
    in the last"""
    return plots.frequency_bands(angular_frequencies(16))


def worked_table() -> Figure:
    """The table of 3 positions and 4 columns: dog is 0, 1, 0, 1; bites 0.841, 0.540, 0.010, 1.000"""
    return plots.matrix(
        positional_encoding(3, 4),
        row_labels=["0 dog", "1 bites", "2 man"],
        column_labels=["0 sin", "1 cos", "2 sin", "3 cos"],
        title="n = 3, d_model = 4",
    )


def wavelengths_by_base() -> Figure:
    """The positions per turn grow by the same factor from pair to pair: up to 47,117 for base 10000 and
    up to 5,063 for base 1000"""
    longest = {"base 10000 (the paper)": wavelengths(64), "base 1000": wavelengths(64, base=1000.0)}
    return plots.wavelength_curves(longest, title="d_model = 64")


def one_step() -> Figure:
    """A matrix with two-by-two blocks on its diagonal and zeros everywhere else; each block is a rotation"""
    return plots.matrix(
        shift_matrix(1, 6),
        decimals=2,
        x_label="column of PE[p + 1]",
        y_label="column of PE[p]",
        title="k = 1",
    )


def heat_map() -> Figure:
    """The position table as colours: left columns change at every position, and right columns hardly
    change"""
    return plots.heat_map(positional_encoding(100, 64), title="100 positions, d_model = 64")


def position_similarity() -> Figure:
    """A dark diagonal with paler stripes parallel to it: the similarity of two positions depends on their
    distance"""
    return plots.position_similarity(positional_encoding(100, 64), title="PE[p] · PE[q], d_model = 64")


def binary_counter() -> Figure:
    """Left: the numbers 0 to 15 in four bits, where each bit changes half as often as the bit before it.
    Right: four pairs of waves, which become slower in the same way."""
    bits = (np.arange(16)[:, None] >> np.arange(4)) & 1
    return plots.binary_counter(bits, positional_encoding(16, 8, base=16.0), base=16)


def lanes() -> Figure:
    """Three lanes: in each lane, meaning plus order tag goes through the same box, FFN. No arrow leads to
    a different lane, because the figure leaves out attention."""
    meaning, position = words(), positional_encoding(3, 4)
    output, _ = ffn_forward(meaning + position, EXAMPLE.block.ffn)
    return plots.lanes(meaning, position, output, EXAMPLE.tokens)


def hourglass() -> Figure:
    """A row of 8 squares becomes a row of 32, of which ReLU leaves 13 empty, and then a row of 8 again"""
    rng = np.random.default_rng(0)
    x = rng.normal(size=8)
    y, cache = ffn_forward(x, init_ffn(8, 32, rng))
    return plots.hourglass(x, cache.hidden, y)


def activations() -> Figure:
    """ReLU is 0 for negative z and z for positive z. GELU is a smooth version of ReLU with a minimum of
    −0.17, and its derivative has no jump."""
    z = np.linspace(-4, 4, 401)
    (relu, relu_cache), (gelu, gelu_cache) = relu_forward(z), gelu_forward(z)
    one = np.ones_like(z)
    derivatives = {"ReLU": relu_backward(one, relu_cache), "GELU": gelu_backward(one, gelu_cache)}
    return plots.curves(z, {"value": {"ReLU": relu, "GELU": gelu}, "derivative": derivatives}, x_label="z")


def attention_and_order() -> Figure:
    """Four tables of weights with one row per query. Without positions, "dog bites man" and "man bites
    dog" give the same table; with positions, their tables differ."""
    panels = {}
    for positions, scale in (("no positions", 0.0), ("with positions", 1.0)):
        for order in ([0, 1, 2], [2, 1, 0]):
            x = words()[order] + scale * positional_encoding(3, 4)
            _, cache = multi_head_attention_forward(x, x, x, EXAMPLE.block.attention, n_heads=2)
            sentence = " ".join(EXAMPLE.tokens[word] for word in order)
            back = np.argsort(order)  # sorts both tables in the same word order, so that they can be compared
            panels[f"{sentence},\n{positions}"] = cache.weights[0][np.ix_(back, back)]
    tokens = EXAMPLE.tokens
    return plots.matrices(panels, across=2, signed=False, row_labels=tokens, column_labels=tokens)


def encoder_block() -> Figure:
    """Two rows of four tables. First row: x, the output of attention, their sum, and h, the layer norm of
    this sum. Second row: h, the output of the FFN, their sum, and y, the layer norm of this sum."""
    x, a, h, f, y = block_steps()
    attention = [("x", x), ("a = attention(x)", a), ("x + a", x + a), ("h = norm(x + a)", h)]
    ffn = [("h", h), ("f = FFN(h)", f), ("h + f", h + f), ("y = norm(h + f)", y)]
    return dataflow([attention, ffn], EXAMPLE.tokens, residuals=[(0, 2)])


def encoder_block_pre_norm() -> Figure:
    """Two rows of four tables. First row: x, its norm, attention, and the sum h. Second row: h, its norm,
    FFN, and the sum y."""
    x, block = words() + positional_encoding(3, 4), EXAMPLE.block
    u, _ = layer_norm_forward(x, block.norm_1)
    a, _ = multi_head_attention_forward(u, u, u, block.attention, n_heads=2)
    h = x + a
    v, _ = layer_norm_forward(h, block.norm_2)
    f, _ = ffn_forward(v, block.ffn)
    attention = [("x", x), ("u = norm(x)", u), ("a = attention(u)", a), ("h = x + a", h)]
    ffn = [("h", h), ("v = norm(h)", v), ("f = FFN(v)", f), ("y = h + f", h + f)]
    return dataflow([attention, ffn], EXAMPLE.tokens, residuals=[(0, 3)])


def gradient_by_depth() -> Figure:
    """With a norm, the gradient of x keeps its size over 24 blocks; without a norm, it grows or vanishes.
    The gradient of W_Q is zero after four blocks without residuals, and after fourteen blocks with
    residuals but without a norm."""
    panels = {}
    for row, of in enumerate(("x", "W_Q")):
        for residuals in (True, False):
            lines = {name: gradient_sizes(norm, residuals)[row] for norm, name in NORMS.items()}
            panels[f"of {of}, {'with' if residuals else 'without'} residuals"] = lines
    return plots.gradient_by_depth(panels)


def banner() -> Figure:
    """Left: the position table as a heat map, with fast columns on the left and slow columns on the
    right. Right: one position as seven clock hands, from fast to slow, and below them an encoder block as
    a row of steps."""
    x, a, h, f, y = block_steps()
    first = [("input", x), ("attention", a), ("add", x + a), ("norm", h)]
    second = [("FFN", f), ("add", h + f), ("norm", y)]
    return draw_banner(
        positional_encoding(40, 64),
        9,
        range(0, 21, 3),
        first + second,
        EXAMPLE.tokens,
        residuals=[(0, 2), (3, 5)],
    )


# --- the numbers in the figures -----------------------------------------------------------------

EXAMPLE = dog_bites_man()


def words() -> np.ndarray:
    """Return the embeddings of "dog bites man" (3, 4) without positional encoding."""
    return embedding_forward(EXAMPLE.ids, EXAMPLE.embedding)[0]


def block_steps() -> list[np.ndarray]:
    """Return x, attention, norm 1, FFN and norm 2 of the worked example's block, each (3, 4)."""
    steps = worked_example().named
    return [steps[name].value for name in "xahfy"]


NORMS = {"post": "post-norm", "pre": "pre-norm", "no": "no norm"}
DEEP = TransformerConfig(d_model=64, d_ff=256, n_heads=4, n_layers=24)


@functools.cache
def gradient_sizes(norm: str, residuals: bool) -> np.ndarray:
    """Return the Euclidean norms of the gradients of x and W_Q at each block of a stack: (2, n_layers)."""
    rng = np.random.default_rng(0)
    blocks, x, caches, sizes = init_encoder(DEEP, rng).blocks, rng.normal(size=(10, 64)), [], []
    for block in blocks:
        x, attention = half_forward(x, attend, block.attention, block.norm_1, norm, residuals)
        x, ffn = half_forward(x, ffn_forward, block.ffn, block.norm_2, norm, residuals)
        caches.append((attention, ffn))
    dx = rng.normal(size=x.shape)
    for attention, ffn in reversed(caches):
        dx, _ = half_backward(dx, ffn_backward, ffn, norm, residuals)
        dx, grads = half_backward(dx, self_attention_backward, attention, norm, residuals)
        sizes.append([np.linalg.norm(dx), np.linalg.norm(grads.W_Q)])
    found = np.array(sizes[::-1]).T
    found = np.where(found > 1e-10, found, np.nan)  # smaller values are rounding errors
    # Round to four digits, which are the same on every processor.
    return np.vectorize(lambda size: float(f"{size:.4g}"))(found)


def attend(x: np.ndarray, params: AttentionParams) -> tuple[np.ndarray, Any]:
    return self_attention_forward(x, params, DEEP, None)


def half_forward(
    x: np.ndarray, forward: Callable, params: Any, norm_params: Any, norm: str, residuals: bool
) -> tuple[np.ndarray, tuple[Any, Any]]:
    """Run attention or the FFN of a block. `norm` and `residuals` may leave out the norm and the residual."""
    u, seen = layer_norm_forward(x, norm_params) if norm == "pre" else (x, None)
    y, cache = forward(u, params)
    y = x + y if residuals else y
    y, seen = layer_norm_forward(y, norm_params) if norm == "post" else (y, seen)
    return y, (cache, seen)


def half_backward(
    dy: np.ndarray, backward: Callable, caches: tuple[Any, Any], norm: str, residuals: bool
) -> tuple[np.ndarray, Any]:
    cache, seen = caches
    dy, _ = layer_norm_backward(dy, seen) if norm == "post" else (dy, None)
    dx, grads = backward(dy, cache)
    dx, _ = layer_norm_backward(dx, seen) if norm == "pre" else (dx, None)
    return (dx + dy if residuals else dx), grads


# --- the files ----------------------------------------------------------------------------------


def order_and_accuracy() -> Figure:
    """The accuracy of a model during training on sentences whose label depends only on word order: it
    stays at 50 % without positions and rises to 100 % with sinusoids"""
    lines = trained("with and without positions")
    return plots.accuracy(trained("steps"), {"": lines}, x_label="training steps")


def learned_or_sinusoidal() -> Figure:
    """Two bands of accuracy, each from five training runs, for sinusoidal and for learned positions: the
    bands overlap during the whole training"""
    early = slice(0, 11)  # the first 200 steps, in which the accuracy changes
    lines = {name: [run[early] for run in runs] for name, runs in trained("five seeds").items()}
    return plots.accuracy(trained("steps")[early], {"five seeds each": lines}, x_label="training steps")


def longer_sentences() -> Figure:
    """Accuracy on sentences that are longer than in training. If every word sees all words, all position
    schemes except ALiBi fall towards 50 % or below. With a causal mask, most stay near 100 %."""
    return plots.accuracy(
        trained("words"), trained("longer than in training"), x_label="words", trained=(3, 8)
    )


def cross_attention() -> Figure:
    """The words that each digit comes from: each digit that the decoder writes attends to the
    corresponding word"""
    found = trained("cross-attention")
    return plots.cross_attention(np.array(found["weights"]), found["words"], found["written"])


def trained(name: str) -> Any:
    """Return the results of the models that figures/train.py trained."""
    return json.loads((FOLDER / "data" / "trained.json").read_text(encoding="utf-8"))[name]


def growth() -> Figure:
    """The time of one forward and backward pass, measured and predicted from the multiplications. Three
    panels. With more positions, the time rises more and more steeply. With more hidden units, the time is
    flat at first and then rises. With more blocks, the time rises in a straight line. The measured times are
    above the predicted times."""
    data = json.loads((FOLDER / "data" / "growth.json").read_text(encoding="utf-8"))
    names = {"n": "positions n", "d_ff": "hidden units d_ff", "n_layers": "blocks"}
    panels = {}
    for argument, found in data.items():
        measured, predicted = (1e3 * np.array(found[f"{kind}_s"]) for kind in ("measured", "predicted"))
        panels[names[argument]] = np.array(found["value"]), {"measured": measured, "predicted": predicted}
    return plots.growth(panels)


def error_clouds() -> Figure:
    """Errors of one entry of a gradient in float16 at 32 neighbouring points. Left: softmax, correct; the
    errors scatter around zero. Right: the sum of softmax is 0.3 % too large; the errors scatter around a
    number far from zero."""
    panels = {}
    for title, share in (("correct", 1.0), ("the sum is 0.3 % too large", 1.003)):
        panels[title] = softmax_errors(share)
    return plots.error_clouds(panels, y_label="error in rounding units")


def softmax_errors(share: float) -> np.ndarray:
    """Return the errors of one entry of dscores at 32 points, in rounding units. `share` scales a sum."""

    def softmax(scores: np.ndarray) -> np.ndarray:
        e = np.exp(scores - scores.max(axis=-1, keepdims=True))
        return e / e.sum(axis=-1, keepdims=True)

    def forward(scores: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
        p = softmax(scores.astype(np.float32)).astype(np.float16)
        return p, p

    def backward(dp: np.ndarray, p: np.ndarray) -> np.ndarray:
        p, dp = p.astype(np.float32), dp.astype(np.float32)
        return (p * (dp - share * (dp * p).sum(axis=-1, keepdims=True))).astype(np.float16)

    scores = np.random.default_rng(0).normal(size=(6, 8)).astype(np.float16)
    kernel = Kernel(forward, backward, softmax, (scores,), {}, None)
    (comparison,) = low_precision.choose_comparisons(kernel, None)
    sample = low_precision.draw_sample(kernel, low_precision.NEAR * low_precision.find_unit(kernel))
    found, true = low_precision.compare_at_points(kernel, comparison, sample, comparison.columns)
    unit = low_precision.find_unit(kernel) * abs(true).mean(axis=0)
    entry = int(np.argmax(abs(true).mean(axis=0)))
    errors = ((found - true) / unit)[:, entry]
    return np.round(errors, 2)  # so that the figure does not depend on the processor's rounding


FIGURES: dict[str, Callable[[], Figure]] = {
    "activations.svg": activations,
    "attention_and_order.svg": attention_and_order,
    "banner.png": banner,
    "binary_counter.svg": binary_counter,
    "clock_hands.svg": clock_hands,
    "cross_attention.png": cross_attention,
    "encoder_block.svg": encoder_block,
    "encoder_block_pre_norm.svg": encoder_block_pre_norm,
    "error_clouds.svg": error_clouds,
    "frequency_bands.svg": frequency_bands,
    "gradient_by_depth.svg": gradient_by_depth,
    "growth.svg": growth,
    "heat_map.png": heat_map,
    "hourglass.svg": hourglass,
    "lanes.svg": lanes,
    "learned_or_sinusoidal.svg": learned_or_sinusoidal,
    "longer_sentences.svg": longer_sentences,
    "order_and_accuracy.svg": order_and_accuracy,
    "position_similarity.png": position_similarity,
    "shift_matrix.svg": one_step,
    "wavelengths.svg": wavelengths_by_base,
    "worked_table.svg": worked_table,
}


def alt(name: str) -> str:
    """Return the alternative text of a figure."""
    return " ".join((FIGURES[name].__doc__ or "").split())


def drawn(name: str) -> bytes:
    """Draw one figure, and return the bytes of its file."""
    return plots.encoded(FIGURES[name](), Path(name).suffix.removeprefix("."))


def versions() -> str:
    """Return the versions on which the bytes of a file depend."""
    tools = f"matplotlib {matplotlib.__version__}, Pillow {PIL.__version__}, NumPy {np.__version__}"
    return f"{tools}, {platform.system()} {platform.machine()}\n"


def renew(name: str, file: Path, check: bool) -> tuple[bool, str]:
    """Draw one figure. Return whether its old file was up to date, and a line of text for the terminal."""
    start = time.perf_counter()
    data = drawn(name)
    same = file.is_file() and file.read_bytes() == data
    if not check:
        file.write_bytes(data)
    verdict = "as before" if same else ("differs" if check else "written")
    return same, f"{name:24} {len(data) / 1000:6.0f} kB  {time.perf_counter() - start:4.1f} s  {verdict}"


def main(arguments: list[str] | None = None, folder: Path = FOLDER) -> int:
    """Write the figures, or with --check report the files that differ. Return 1 if such a file differs."""
    parser = argparse.ArgumentParser(description="Draw the figures of this folder.")
    parser.add_argument("names", nargs="*", metavar="NAME", help=f"one of {', '.join(FIGURES)}")
    parser.add_argument("--check", action="store_true", help="compare with the files and write nothing")
    parser.add_argument("--alt", action="store_true", help="print Markdown for each and draw nothing")
    options = parser.parse_args(arguments)
    if unknown := set(options.names) - set(FIGURES):
        parser.error(f"no figure is called {', '.join(sorted(unknown))}")

    names, all_same, record = options.names or list(FIGURES), True, folder / DRAWN_WITH
    if options.alt:
        print("\n".join(f"![{alt(name)}](figures/{name})" for name in names))
        return 0
    if not options.check and not (record.is_file() and record.read_text(encoding="utf-8") == versions()):
        names = list(FIGURES)  # Redraw all: figures of two versions must not be mixed.
    for number, name in enumerate(names, 1):
        same, line = renew(name, folder / name, options.check)
        all_same = all_same and same
        print(f"{number:3} of {len(names)}  {line}", flush=True)
    if not options.check:
        record.write_text(versions(), encoding="utf-8")
    elif not all_same:
        print(
            f"here:  {versions()}files: {record.read_text(encoding='utf-8') if record.is_file() else 'none'}"
        )
    return 0 if all_same or not options.check else 1


if __name__ == "__main__":
    sys.exit(main())
