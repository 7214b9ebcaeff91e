"""Plant each mistake of the guide page port.md in a port. compare must name the change that repairs it.

The reference is the model `llama` of transformers in golden_ports.npz.
"""

from pathlib import Path

import numpy as np
import pytest

import npformer as npf
from npformer.player.port_mistakes import CHANGES, Port, describe, walk_stations

DATA = Path(__file__).parents[1] / "data"
CONFIG = npf.CausalLMConfig(16, 20, 4, 2, 2, 1e-6, 500.0, 9, tied=False, rope_layout="halves")


def load_golden():
    """Return the arrays of the model, and the reference: the ids and the stations."""
    with np.load(DATA / "golden_ports.npz") as file:
        arrays = {name.removeprefix("llama."): file[name] for name in file if name.startswith("llama.")}
    state = {name: arrays.pop(name).astype(float) for name in list(arrays) if name.startswith("state.")}
    return {name.removeprefix("state."): array for name, array in state.items()}, arrays


STATE, REFERENCE = load_golden()
PARAMS = npf.causal_lm_from_torch(STATE, CONFIG)


def change_blocks(change):
    return PARAMS._replace(blocks=tuple(map(change, PARAMS.blocks)))


def exchange_gate_and_up(block):
    W_gate, W_up, W_down = block.ffn
    return block._replace(ffn=npf.GatedFFNParams(W_up, W_gate, W_down))


def transpose(name):
    def change(block):
        attention = block.attention._replace(**{name: getattr(block.attention, name).T})
        return block._replace(attention=attention)

    return change_blocks(change)


def exchange_norms(block):
    return block._replace(norm_1=block.norm_2, norm_2=block.norm_1)


def with_norms(change):
    def change_block(block):
        norms = {name: npf.RMSNormParams(change(getattr(block, name).gamma)) for name in ("norm_1", "norm_2")}
        return block._replace(**norms)

    params = change_blocks(change_block)
    return params._replace(norm=npf.RMSNormParams(change(params.norm.gamma)))


def with_embedding(change):
    return PARAMS._replace(embedding=npf.EmbeddingParams(change(PARAMS.embedding.E)))


TIED = PARAMS._replace(head=None)
# The parameters and the config with a mistake, the station that differs, and the change that repairs it.
PLANTED = [
    (PARAMS, CONFIG._replace(rope_layout="interleaved"), "after block 1", ("rope_layout", "halves")),
    (PARAMS, CONFIG._replace(base=10000.0), "after block 1", ("base", 500.0)),
    (PARAMS, CONFIG._replace(eps=1e-5), "after block 1", ("eps", 1e-6)),
    (change_blocks(exchange_gate_and_up), CONFIG, "after block 1", ("gate_up", None)),
    (transpose("W_Q"), CONFIG, "after block 1", ("transposed", "W_Q")),
    (transpose("W_O"), CONFIG, "after block 1", ("transposed", "W_O")),
    (change_blocks(exchange_norms), CONFIG, "after block 1", ("norms", None)),
    (TIED, CONFIG._replace(tied=True), "logits", ("own_head", "lm_head.weight")),
    (PARAMS, CONFIG._replace(n_heads=2, n_kv_heads=1), "after block 1", ("heads", (4, 2))),
    (with_norms(lambda gamma: gamma - 1), CONFIG, "after block 1", ("one_plus_gamma", None)),
    (with_embedding(lambda E: E / 4), CONFIG, "after block 0", ("embedding_scale", None)),
    (with_embedding(lambda E: E / 2), CONFIG, "after block 0", ("factor", 2.0)),
]


@pytest.mark.parametrize(
    ("params", "config", "station", "mistake"), PLANTED, ids=lambda value: str(value)[:30]
)
def test_compare_names_the_planted_mistake(params, config, station, mistake):
    comparison = npf.compare(params, REFERENCE, config=config, state=STATE)
    assert comparison.station == station
    assert comparison.mistakes == (mistake,)
    assert f"\nequal with: {describe(comparison.mistakes[0])}" in repr(comparison)


def test_compare_agrees_with_a_correct_port():
    comparison = npf.compare(PARAMS, REFERENCE, config=CONFIG)
    assert comparison and comparison.mistakes == ()
    assert repr(comparison) == "agrees at 3 stations, from after block 0 to logits"


def test_compare_names_a_tied_head():
    """The reference is the tied model, and the port has a separate head."""
    config = CONFIG._replace(tied=True)
    logits, _ = npf.causal_lm_forward(REFERENCE["ids"], TIED, config)
    reference = {"ids": REFERENCE["ids"], "logits": logits}
    assert npf.compare(PARAMS, reference, config=CONFIG).mistakes == (("tied", None),)
    scaled = TIED._replace(embedding=npf.EmbeddingParams(PARAMS.embedding.E / 4))
    assert npf.compare(scaled, reference, config=config).mistakes == ()  # the logits need a second change


def test_compare_finds_no_change_for_two_mistakes():
    config = CONFIG._replace(rope_layout="interleaved", base=10000.0)
    comparison = npf.compare(PARAMS, REFERENCE, config=config)
    assert comparison.station == "after block 1" and comparison.mistakes == ()
    assert "equal with" not in repr(comparison)


def test_compare_does_not_transpose_narrow_matrices():
    wide = npf.CausalLMConfig(16, 10, 4, 4, 0, tied=True)
    params = npf.init_causal_lm(20, wide, np.random.default_rng(0))
    reference = {"ids": np.array([[1, 2]]), "logits": np.ones((1, 2, 20))}
    assert npf.compare(params, reference, config=wide).mistakes == ()


STATIONS = dict(walk_stations(PARAMS.embedding.E[REFERENCE["ids"]], 0, Port(PARAMS, CONFIG)))


@pytest.mark.parametrize("station", STATIONS)
def test_compare_of_dicts_names_a_factor(station):
    """The order of the stations in the file does not matter."""
    wrong = {name: array * (0.5 if name == station else 1) for name, array in STATIONS.items()}
    for reference in (REFERENCE, {"logits": REFERENCE["logits"]} | REFERENCE):
        comparison = npf.compare(wrong, reference)
        assert comparison.station == station
        [(name, factor)] = comparison.mistakes
        assert name == "factor" and abs(factor - 2) < 1e-6


def test_compare_of_dicts_compares_logits_last():
    wrong = {name: array + (name != "after block 0") * np.sin(array) for name, array in STATIONS.items()}
    comparison = npf.compare(wrong, {"logits": REFERENCE["logits"]} | REFERENCE)
    assert comparison.station == "after block 1"
    assert comparison.mistakes == ()


@pytest.mark.parametrize(
    ("change", "mistake"),
    [
        (lambda array: array / 4, ("root", 16)),
        (lambda array: array * 4, ("inverse_root", 16)),
        (lambda array: array - np.arange(16), ("offset", 16)),
    ],
)
def test_compare_of_dicts_names_roots_and_offsets(change, mistake):
    """There are 16 columns, so the factor 4 is a root."""
    wrong = STATIONS | {"after block 1": change(STATIONS["after block 1"])}
    assert npf.compare(wrong, REFERENCE).mistakes == (mistake,)


def test_compare_names_no_factor_close_to_one():
    """With a factor this close to 1, another mistake is more likely, such as a different eps."""
    wrong = STATIONS | {"logits": REFERENCE["logits"] * (1 - 1e-4)}
    comparison = npf.compare(wrong, REFERENCE)
    assert comparison.station == "logits" and comparison.mistakes == ()


def test_compare_names_no_offset_of_a_single_row():
    assert npf.compare({"y": np.ones((1, 3))}, {"y": np.array([[1.0, 2.0, 4.0]])}).mistakes == ()


def test_compare_reports_a_rounding_error_that_grows():
    """Each number of the reference has a relative error of 3e-7, and each layer passes it on."""
    signs = np.random.default_rng(3)
    port = Port(PARAMS, CONFIG)
    x = PARAMS.embedding.E[REFERENCE["ids"]]
    rounded = {"ids": REFERENCE["ids"]}
    for i, name in enumerate(STATIONS):
        exact = dict(walk_stations(x, max(i - 1, 0), port))[name]
        x = exact * (1 + 3e-7 * signs.choice([-1, 1], exact.shape))
        rounded[name] = x
    comparison = npf.compare(PARAMS, rounded, config=CONFIG, tolerance=3.1e-7)
    assert not comparison and comparison.layers_agree and comparison.mistakes == ()
    assert "each layer agrees if its input comes from the reference" in repr(comparison)
    wrong = CONFIG._replace(rope_layout="interleaved")
    planted = npf.compare(PARAMS, rounded, config=wrong, tolerance=3.1e-7)
    assert not planted.layers_agree and planted.mistakes == (("rope_layout", "halves"),)


def test_compare_reports_wrong_shapes_of_later_stations():
    short = {name: array[..., :-1] if name == "logits" else array for name, array in REFERENCE.items()}
    comparison = npf.compare(PARAMS, short, config=CONFIG._replace(base=501.0))
    assert comparison.station == "after block 1"
    exact = npf.compare(PARAMS, short, config=CONFIG)
    assert exact.station == "logits" and "its shape is" in exact.note
    assert exact.agreed == ("after block 0", "after block 1")


def test_compare_says_which_texts_and_tokens_are_wrong():
    wrong = STATIONS["after block 1"].copy()
    wrong[1, 3:] += np.sin(np.arange(16))
    wrong[1, 5] = 0
    comparison = npf.compare(STATIONS | {"after block 1": wrong}, REFERENCE)
    assert (comparison.right_texts, comparison.first_token) == ((0,), 3)
    assert "right in the texts [0]" in repr(comparison)
    assert "tokens before 3 are right" in repr(comparison)
    all_wrong = npf.compare(STATIONS | {"after block 1": np.sin(wrong)}, REFERENCE)
    assert (all_wrong.right_texts, all_wrong.first_token) == ((), 0)
    assert "right in the texts" not in repr(all_wrong) and "tokens before" not in repr(all_wrong)


@pytest.mark.parametrize("value", [0.0, np.nan, np.inf])
def test_compare_of_dicts_finds_no_factor(value):
    assert npf.compare({"y": np.full(3, value)}, {"y": np.ones(3)}).mistakes == ()
    assert npf.compare({"y": np.ones(3)}, {"y": np.full(3, -np.inf)}).mistakes == ()


def test_every_change_has_a_test():
    tested = {mistake for *_, (mistake, _) in PLANTED} | {"tied", "root", "inverse_root", "offset"}
    assert tested == CHANGES.keys()


@pytest.mark.parametrize(("reference", "config", "message"), [
    ({"logits": np.ones(1)}, CONFIG, r'compare: reference is a dict; expected a dict with "ids"'),
    (None, CONFIG, r'compare: reference is None; expected a dict with "ids"'),
    (REFERENCE, None, r"compare: config is None; expected a CausalLMConfig"),
    ({"ids": REFERENCE["ids"]}, CONFIG, r"compare: reference holds no station; expected some of after "),
    ({"ids": REFERENCE["ids"] + 99}, CONFIG, r"causal_lm_forward: ids holds "),
])  # fmt: skip
def test_compare_rejects_an_incomplete_reference(reference, config, message):
    with pytest.raises((TypeError, ValueError), match=message):
        npf.compare(PARAMS, reference, config=config)


def test_compare_reports_a_wrong_shape_of_logits():
    reference = REFERENCE | {"logits": np.ones((2, 7, 3))}
    comparison = npf.compare(PARAMS, reference, config=CONFIG)
    assert comparison.station == "logits" and "its shape is (2, 9, 20)" in comparison.note


def test_compare_prints_the_size_of_the_error():
    logits = REFERENCE["logits"]
    largest = np.abs(logits).max()
    wrong = STATIONS | {"logits": logits + 0.25 * largest * np.eye(*logits.shape[-2:])}
    comparison = npf.compare(wrong, REFERENCE)
    assert abs(comparison.largest_error - 0.25) < 1e-9 and comparison.tolerance == 1e-6
    assert "largest relative error 2.5e-01, allowed 1.0e-06" in repr(comparison)
    assert "perhaps rounding" not in repr(comparison)


def test_compare_mentions_rounding_for_tiny_errors():
    tiny = STATIONS | {"logits": REFERENCE["logits"] * (1 + 3e-6)}
    comparison = npf.compare(tiny, REFERENCE)
    assert not comparison and "perhaps rounding" in repr(comparison)
    assert npf.compare(tiny, REFERENCE, tolerance=5e-6)


def test_compare_counts_cells_that_are_nan():
    broken = REFERENCE["logits"].copy()
    broken[0, 0, :3] = np.nan
    comparison = npf.compare(STATIONS | {"logits": broken}, REFERENCE)
    assert comparison.note.endswith(" cells, 3 of them NaN")
    assert comparison.largest_error < 1e-6  # of the other cells
    only_nan = npf.compare(STATIONS | {"logits": broken * np.nan}, REFERENCE)
    assert np.isnan(only_nan.largest_error) and "relative error" not in repr(only_nan)


def test_compare_of_zeros_has_an_infinite_relative_error():
    assert npf.compare({"a": np.ones(2)}, {"a": np.zeros(2)}).largest_error == np.inf


def test_compare_names_stations_that_were_not_compared():
    comparison = npf.compare({"logits": STATIONS["logits"]}, REFERENCE)
    assert comparison and comparison.not_compared == ("after block 0", "after block 1")
    expected = "agrees at 1 station, logits\nnot compared: after block 0, after block 1"
    assert repr(comparison) == expected


def test_compare_asks_whether_the_arguments_are_exchanged():
    with pytest.raises(ValueError, match="mine holds ids, which the reference lacks; are the two"):
        npf.compare(REFERENCE, STATIONS)


@pytest.mark.parametrize("value", [np.ones(2, complex), np.ones(2, bool), np.array(["1"]), [None]], ids=repr)
def test_compare_rejects_what_is_no_number(value):
    with pytest.raises(TypeError, match=r"compare: mine\['y'\] has dtype .*; expected integers or floats"):
        npf.compare({"y": value}, {"y": np.ones(2)})
    with pytest.raises(TypeError, match=r"compare: reference\['y'\] has dtype .*; expected integers"):
        npf.compare({"y": np.ones(2)}, {"y": value})


def test_compare_rejects_a_dict_without_stations():
    with pytest.raises(ValueError, match="compare: mine holds no station; expected some of y, logits"):
        npf.compare({}, {"y": np.ones(2), "logits": np.ones(2)})
