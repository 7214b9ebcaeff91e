"""What a wrong gradient looks like: the kinds stand in data/kills.md, and here what has none."""

import re
from itertools import product
from pathlib import Path

import numpy as np

from npformer.gradcheck.differences import HALF
from npformer.gradcheck.relations import Case, relation, words

rng = np.random.default_rng(7)
R3, k, dy = rng.standard_normal((2, 3, 4)), rng.standard_normal((2, 3, 4)), rng.standard_normal((3, 4))
fours = {"axis 2 of x": 4, "axis 0 of x": 2}
linear = np.einsum("ts,ij->tjsi", np.eye(3), rng.standard_normal((4, 4)))  # x[s, i] to y[t, j] of y = x W


def tabled(F, R, others=None):
    d_output = dy if F.shape[:2] == dy.shape else rng.standard_normal((4, 4))
    found, right = (np.tensordot(d_output, table, 2) for table in (F, R))
    return Case(found, right, others or {}, d_output=d_output, found_table=F, right_table=R)


def test_nothing_is_said_of_what_is_right_or_not_finite_or_has_nothing_to_do_with_it():
    for seed in range(15):
        draw = np.random.default_rng(seed).standard_normal
        F, R, other, three = *draw((2, 3, 4, 3, 4)), {"other": draw((3, 4))}, draw((2, 3, 4, 3))
        for case in (
            tabled(F, R, other), tabled(R + 1e-9 * draw(R.shape), R, other),
            Case(draw((2, 3)), draw((2, 4))), Case(draw((70, 2)), draw((70, 2))),
            tabled(F, R)._replace(right=np.ones((3, 5)), right_table=np.ones((3, 4, 3, 5))),
            tabled(three[0][..., None, :], three[1][..., None, :]),  # d_output has another shape
        ):  # fmt: skip
            assert relation([case]) is None
    one = Case(np.array(0.77123), np.array(0.31337), {"other": np.array(0.2)})  # one number fits any
    for case in (Case(R3 * np.inf, R3), Case(0 * R3, 0 * R3), one):
        assert relation([case]) is None


def test_what_is_hardly_wrong_gets_no_name_by_accident():
    for seed, times in product(range(5), (1.5, 3, 10)):  # of what counts as equal
        noise = times * HALF * np.random.default_rng(seed).standard_normal(R3.shape)
        for off in (noise, noise * R3, noise[0, 0, 0] * (R3 == R3.max())):
            seen = relation([Case(R3 + off, R3, {"cache.k": k}, fours)])
            assert seen is None or seen.kind in ("near", "few"), (seed, times)


def test_what_is_not_known_does_not_count():
    known = np.where(rng.random(R3.shape) < 0.1, np.nan, R3)
    assert relation([Case(2 * R3, known)]).what == "2"
    R = np.where(rng.random(linear.shape) < 0.1, np.nan, linear)
    mask = (rng.random((3, 4)) < 0.5)[:, :, None, None]
    assert relation([tabled(linear * mask, linear)._replace(right_table=R)]).kind == "zero there"


def test_a_relation_holds_in_every_case_or_is_none():
    assert relation([Case(2 * R3, R3), Case(3 * R3, R3)]).what.startswith("2")  # a factor that follows a size
    assert relation([Case(1e160 * R3, R3)]).what == "1e+160"  # its square is infinite, and no fraction
    assert relation([Case(2 * R3, R3), Case(R3 + k, R3)]) is None
    assert relation([Case(2 * R3, R3), Case(k, 0 * R3)]) is None


def test_every_kind_of_relation_is_told_on_the_page_of_what_is_caught():
    page = (Path(__file__).parent / "data" / "kills.md").read_text(encoding="utf-8")
    for kind, said in words().items():
        assert re.search(".+".join(map(re.escape, said.split("{}"))), page), kind
