"""Compute the coefficients of npformer.normal.normal_cdf with 50 digits.

    python tests/data/make_erf.py        (needs mpmath)

The function exp(z²/2) (1 - Φ(z)) is smooth in u = 1/(z + c), so a Chebyshev expansion in u needs few terms.
For z from 0 to `largest`, u lies between 1/(largest + c) and 1/c. s = a u - b maps this interval to [-1, 1].
The script prints a, b, c, the polynomial's coefficients in powers of s, the highest power first, and the
first omitted coefficient. The values of c and `largest` were chosen so that a, b and c are exact in float32.
"""

from mpmath import chebyt, mp, mpf, taylor

mp.dps = 50


def expansion(c, largest, degree, points=60):
    """Return a, b, the coefficients in powers of s, and the first omitted coefficient."""
    low, high = 1 / (largest + c), 1 / c
    nodes = [mp.cos(mp.pi * (j + mpf(1) / 2) / points) for j in range(points)]
    z = [1 / (low + (s + 1) / 2 * (high - low)) - c for s in nodes]
    f = [mp.exp(z_j**2 / 2) * mp.erfc(z_j / mp.sqrt(2)) / 2 for z_j in z]
    chebyshev = [
        (1 if k == 0 else 2) * mp.fsum(f_j * chebyt(k, s) for f_j, s in zip(f, nodes, strict=True)) / points
        for k in range(degree + 2)
    ]
    powers = [mpf(0)] * (degree + 1)
    for k, coefficient in enumerate(chebyshev[:-1]):
        for power, value in enumerate(taylor(lambda s, k=k: chebyt(k, s), 0, k)):
            powers[power] += coefficient * value
    return 2 / (high - low), (high + low) / (high - low), powers[::-1], chebyshev[-1]


if __name__ == "__main__":
    for name, c, largest, degree in (("float32", "3", "6", 7), ("float64", "5.25", "8.4", 17)):
        a, b, powers, rest = expansion(mpf(c), mpf(largest), degree)
        print(f"{name}: a = {float(a)}, b = {float(b)}, c = {c}, left out: {float(rest):.1e}")
        print("\n".join(f"    {float(power)!r}," for power in powers))
