"""A second list of wrong backward passes, written after the relations were, to see what these make of others.

name: (forward, right backward, wrong backward, arguments); every mistake but the last has a name to be found.
"""

import numpy as np

rng = np.random.default_rng(7)
normal = rng.standard_normal


def sigmoid(z):
    return 1 / (1 + np.exp(-z))


def rms(x, g):
    r = np.sqrt((x * x).mean(-1, keepdims=True) + 1e-6)
    return x / r * g, (x, r, g)


def rms_back(dy, cache, power=2, mean=np.mean):
    x, r, g = cache
    h = dy * g
    return (h - x * mean(h * x, -1, keepdims=True) / r**power) / r, (dy * x / r).sum((0, 1))


def linear(x, W, b):
    return x @ W + b, (x, W)


def linear_back(dy, cache):
    x, W = cache
    rows = dy.reshape(-1, W.shape[1])
    return dy @ W.T, x.reshape(-1, len(W)).T @ rows, rows.sum(0)


def batch_norm(x, g, b):
    s = np.sqrt(x.var(0) + 1e-5)
    h = (x - x.mean(0)) / s
    return h * g + b, (h, s, g)


def batch_norm_back(dy, cache):
    h, s, g = cache
    d = dy * g
    return (d - d.mean(0) - h * (d * h).mean(0)) / s, (dy * h).sum(0), dy.sum(0)


def convolve(x, k):
    return np.array([np.convolve(row, k[::-1], "valid") for row in x]), (x, k)


def convolve_back(dy, cache):
    x, k = cache
    dk = sum(np.convolve(row, d[::-1], "valid") for row, d in zip(x, dy, strict=True))
    return np.array([np.convolve(row, k, "full") for row in dy]), dk


def cross_entropy(x):
    p = np.exp(x) / np.exp(x).sum(-1, keepdims=True)
    return -np.log(p[[0, 1, 2], [0, 2, 1]]).mean(), (p, np.eye(4)[[0, 2, 1]])


def turn(x, angle=1.0):
    a, b = x[..., 0], x[..., 1]
    return np.stack([a * np.cos(angle) - b * np.sin(angle), a * np.sin(angle) + b * np.cos(angle)], -1)


def shared(q, k):
    return np.einsum("htd,sd->hts", q, k), (q, k)


def shared_back(dy, cache):
    return np.einsum("hts,sd->htd", dy, cache[1]), np.einsum("hts,htd->sd", dy, cache[0])


def replaced(back, place, new):
    """The backward pass with another gradient at one place: new(the right one, dy, cache)."""

    def wrong(dy, cache):
        gradients = list(back(dy, cache))
        gradients[place] = new(gradients[place], dy, cache)
        return tuple(gradients)

    return wrong


def entrywise(f, slope, wrong, *x):
    """y = f(x), with slopes of (x, y) or of (a, b, y) that dy is multiplied by."""
    return lambda *x: (f(*x), (*x, f(*x))), lambda dy, c: dy * slope(*c), lambda dy, c: dy * wrong(*c), x


Z, POSITIVE = normal((3, 4)), 2 + rng.random((3, 4))
RMS, LINEAR, NORM = (normal((2, 3, 5)), normal(5)), (normal((2, 3, 4)), normal((4, 5)), normal(5)), (normal((6, 4)), normal(4), normal(4))


def of(forward, back, args):
    return lambda place, new: (forward, back, replaced(back, place, new), args)


rms_with, linear_with, norm_with = of(rms, rms_back, RMS), of(linear, linear_back, LINEAR), of(batch_norm, batch_norm_back, NORM)
shared_with = of(shared, shared_back, (normal((3, 4, 2)), normal((5, 2))))
convolve_with = of(convolve, convolve_back, (normal((2, 6)), normal(3)))
add_with = of(lambda x, b: (x + b, None), lambda dy, _: (dy, dy.sum(0)), (Z, normal(4)))
product_with = of(lambda a, b: (sigmoid(a) * b, (sigmoid(a), b)), lambda dy, c: (dy * c[1] * c[0] * (1 - c[0]), dy * c[0]), (Z, normal((3, 4))))
quotient_with = of(lambda a, b: (a / b, (a, b)), lambda dy, c: (dy / c[1], -dy * c[0] / c[1] ** 2), (Z, POSITIVE))
loss_with = of(cross_entropy, lambda d, c: (d * (c[0] - c[1]) / 3,), (Z,))
maximum_with = of(lambda x: (x.max(-1), x), lambda dy, x: (dy[:, None] * (x == x.max(-1, keepdims=True)),), (Z,))
mean_with = of(lambda x: (x.mean(0), None), lambda dy, _: (np.ones((3, 1)) * dy / 3,), (Z,))

MORE = {
    "rms norm: no second term": rms_with(0, lambda dx, dy, c: dy * c[2] / c[1]),
    "rms norm: r not squared": (rms, rms_back, lambda dy, c: rms_back(dy, c, power=1), RMS),
    "rms norm: a sum for the mean": (rms, rms_back, lambda dy, c: rms_back(dy, c, mean=np.sum), RMS),
    "rms norm: g forgotten": rms_with(0, lambda dx, dy, c: rms_back(dy, (c[0], c[1], 1))[0]),
    "rms norm: dg keeps its rows": rms_with(1, lambda dg, dy, c: dy * c[0] / c[1]),
    "rms norm: dg is a mean": rms_with(1, lambda dg, dy, c: dg / 6),
    "tanh: 1 - z²": entrywise(np.tanh, lambda z, y: 1 - y * y, lambda z, y: 1 - z * z, Z),
    "tanh: 1 - y": entrywise(np.tanh, lambda z, y: 1 - y * y, lambda z, y: 1 - y, Z),
    "sigmoid: y alone": entrywise(sigmoid, lambda z, y: y * (1 - y), lambda z, y: y, Z),
    "sigmoid: z (1 - z)": entrywise(sigmoid, lambda z, y: y * (1 - y), lambda z, y: z * (1 - z), Z),
    "relu: leaks on the way back": entrywise(lambda z: np.maximum(z, 0), lambda z, y: z > 0, lambda z, y: np.where(z > 0, 1, 0.01), Z),
    "relu: z < 0": entrywise(lambda z: np.maximum(z, 0), lambda z, y: z > 0, lambda z, y: z < 0, Z),
    "exp: z for y": entrywise(np.exp, lambda z, y: y, lambda z, y: z, Z),
    "log: 1/y": entrywise(np.log, lambda z, y: 1 / z, lambda z, y: 1 / y, POSITIVE),
    "square: x for 2 x": entrywise(np.square, lambda x, y: 2 * x, lambda x, y: x, Z),
    "square: 3 x": entrywise(np.square, lambda x, y: 2 * x, lambda x, y: 3 * x, Z),
    "square: the first example in all": (lambda x: (x * x, x), lambda dy, x: 2 * x * dy, lambda dy, x: (2 * x * dy)[:1] + 0 * x, (Z,)),
    "linear: dW is transposed": linear_with(1, lambda dW, dy, c: dW.T),
    "linear: db is summed over axis 1": linear_with(2, lambda db, dy, c: dy.sum(1)),
    "linear: dW is not summed": linear_with(1, lambda dW, dy, c: c[0].swapaxes(1, 2) @ dy),
    "linear: db keeps its axes": linear_with(2, lambda db, dy, c: db[None, None]),
    "linear: dW of the first row": linear_with(1, lambda dW, dy, c: c[0][:, 0].T @ dy[:, 0]),
    "linear: dW with a minus": linear_with(1, lambda dW, dy, c: -dW),
    "linear: four times dx": linear_with(0, lambda dx, dy, c: 4 * dx),
    "linear: a decay in dW": linear_with(1, lambda dW, dy, c: dW + 0.01 * c[1]),
    "linear: dx is clipped": linear_with(0, lambda dx, dy, c: np.clip(dx, -1, 1)),
    "linear: x was changed before": linear_with(1, lambda dW, dy, c: linear_back(dy, (c[0] + 0.1, c[1]))[1]),
    "linear: W was updated before": linear_with(0, lambda dx, dy, c: dy @ (c[1] - 0.1 * linear_back(dy, c)[1]).T),
    "add: db of the first row": add_with(1, lambda db, dy, c: dy[0]),
    "add: db is not summed": add_with(1, lambda db, dy, c: dy),
    "gate: b is missing": product_with(0, lambda da, dy, c: dy * c[0] * (1 - c[0])),
    "gate: the slope is missing": product_with(0, lambda da, dy, c: dy * c[1]),
    "quotient: b for b²": quotient_with(1, lambda db, dy, c: -dy * c[0] / c[1]),
    "quotient: no minus": quotient_with(1, lambda db, dy, c: -db),
    "mean: no 1/n": mean_with(0, lambda dx, dy, c: 3 * dx),
    "mean: another n": mean_with(0, lambda dx, dy, c: dx * 3 / 4),
    "maximum: to all": maximum_with(0, lambda dx, dy, x: dy[:, None] + 0 * x),
    "maximum: to the least": maximum_with(0, lambda dx, dy, x: dy[:, None] * (x == x.min(-1, keepdims=True))),
    "running sum: forwards again": (lambda x: (np.cumsum(x, -1), None), lambda dy, _: np.cumsum(dy[:, ::-1], -1)[:, ::-1], lambda dy, _: np.cumsum(dy, -1), (Z,)),
    "rotation: the same again": (lambda x: (turn(x), None), lambda dy, _: turn(dy, -1.0), lambda dy, _: turn(dy), (normal((3, 2)),)),
    "convolution: the kernel not turned": convolve_with(0, lambda dx, dy, c: convolve_back(dy, (c[0], c[1][::-1]))[0]),
    "convolution: dk turned": convolve_with(1, lambda dk, dy, c: dk[::-1]),
    "batch norm: a mean over the other axis": norm_with(0, lambda dx, dy, c: dx + ((dy * c[2]).mean(0) - (dy * c[2]).mean(1, keepdims=True)) / c[1]),
    "batch norm: frozen": norm_with(0, lambda dx, dy, c: dy * c[2] / c[1]),
    "batch norm: 1/s twice": norm_with(0, lambda dx, dy, c: dx / c[1]),
    "batch norm: 1/s missing": norm_with(0, lambda dx, dy, c: dx * c[1]),
    "batch norm: n - 1 in one mean": norm_with(0, lambda dx, dy, c: dx + (dy * c[2]).sum(0) * (1 / 6 - 1 / 5) / c[1]),
    "cross-entropy: p - 2 t": loss_with(0, lambda dx, d, c: d * (c[0] - 2 * c[1]) / 3),
    "cross-entropy: t - p": loss_with(0, lambda dx, d, c: -dx),
    "cross-entropy: divided by the classes": loss_with(0, lambda dx, d, c: dx * 3 / 4),
    "shared keys: of head 0": shared_with(1, lambda dk, dy, c: dy[0].T @ c[0][0]),
    "shared keys: a mean over heads": shared_with(1, lambda dk, dy, c: dk / 3),
    "heads: merged by a reshape": (lambda x: (x.reshape(3, 2, 4).swapaxes(0, 1), None), lambda dy, _: dy.swapaxes(0, 1).reshape(3, 8), lambda dy, _: dy.reshape(3, 8), (normal((3, 8)),)),
    "one entry is not a number": (lambda x: (x * x, x), lambda dy, x: 2 * x * dy, lambda dy, x: np.where(x == x.max(), np.nan, 2 * x * dy), (Z,)),
}  # fmt: skip
