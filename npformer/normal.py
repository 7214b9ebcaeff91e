"""The normal distribution function, which GELU needs and NumPy lacks."""

from types import ModuleType

import numpy as np

from npformer.arrays import Array, array_module


def normal_cdf(z: Array) -> Array:
    """Φ(z) = ½ (1 + erf(z/√2)) for each entry, to 4e-16 in float64 and, computed in float32, to 1.5e-7.

    NumPy has no erf. The tail 1 - Φ(|z|) is exp(-z²/2) P(s) with a polynomial P in s = a/(|z| + c) - b: the
    Chebyshev expansion of exp(z²/2) (1 - Φ(z)), computed with 50 digits by tests/data/make_erf.py. The tail
    is computed directly, not as 1 minus something, so it keeps its leading digits however small it is.

    >>> normal_cdf(np.array([0.0, 1.0])).round(4)
    array([0.5   , 0.8413])
    """
    xp = array_module(z)
    cdf = xp.empty(z.shape, z.dtype)
    entries, results = z.reshape(-1), cdf.reshape(-1)  # (N,), results a view
    step = BLOCK if xp is np else max(1, z.size)  # in a processor's cache, or all at once on a GPU
    for start in range(0, z.size, step):
        block = slice(start, start + step)
        results[block] = _cdf(entries[block], xp)
    return cdf


BLOCK = 2**15  # entries


def _cdf(z: Array, xp: ModuleType) -> Array:
    a, b, c, coefficients = TAIL_FLOAT32 if z.dtype == np.float32 else TAIL_FLOAT64
    s = abs(z)
    s += c
    s = a / s
    s -= b
    polynomial = s * coefficients[0]
    for coefficient in coefficients[1:-1]:  # Horner's rule
        polynomial += coefficient
        polynomial *= s
    polynomial += coefficients[-1]
    tail = z * z
    tail *= -0.5
    xp.exp(tail, out=tail)
    tail *= polynomial
    return abs((z > 0) - tail)  # 1 - tail for z > 0, else tail; `where` takes eight times as long


# a, b, c, and the coefficients of P from the highest power down
TAIL_FLOAT32 = (9.0, 2.0, 3.0, (
    2.2165021192757078e-05, -3.488509358477531e-06, -0.0005143108543788903, 3.456095559408987e-05,
    0.014992075712732436, 0.0765779167373024, 0.20311041704163413, 0.20578068045158895,
))  # fmt: skip
TAIL_FLOAT64 = (17.0625, 2.25, 5.25, (
    -3.5072657003630986e-12, 4.669530615595196e-11, 7.546121600574195e-11, -1.3170543120735227e-09,
    -2.1904716513056065e-09, 3.214284732740188e-08, 1.0165400765698494e-07, -6.858961728166105e-07,
    -5.069826096218429e-06, 8.404285353907526e-07, 0.00017930821985964867, 0.0013220200675186193,
    0.005936176487634244, 0.019553854181181763, 0.05025392026154235, 0.10321601426045025,
    0.17021216092991012, 0.1493313304776584,
))  # fmt: skip
