"""A pair of functions and its arguments in float32."""

import numpy as np

from npformer.tree import ends_mapped


def to_float32(tree):
    return ends_mapped(lambda x: np.float32(x) if getattr(x, "dtype", None) == np.float64 else x, tree)


def in_float32(forward, backward):
    """The pair with everything that it returns in the dtype of the first floating array that it gets."""

    def dtype(tree):
        found = []
        ends_mapped(
            lambda x: found.append(x.dtype) if getattr(x, "dtype", None) in (np.float32, np.float64) else 0,
            tree,
        )
        return found[0]

    def cast(tree, like):
        return ends_mapped(
            lambda x: (
                x.astype(like) if isinstance(x, np.ndarray | np.floating) and x.dtype.kind == "f" else x
            ),
            tree,
        )

    def narrow_forward(*args, **kwargs):
        y, cache = forward(*args, **kwargs)
        return np.asarray(y).astype(dtype(args)), cache

    return narrow_forward, lambda dy, cache: cast(backward(dy, cache), dy.dtype)
