"""The advantage of each answer of a group: how much better it is than the group's mean."""

from npformer.arrays import Array, array_module
from npformer.validation.annotations import Float, Positive


def group_advantages(
    rewards: Float[Array, "... G"], *, normalize: bool = True, eps: Positive = 1e-4
) -> Float[Array, "... G"]:
    """Â_i = (R_i - mean(R)) / (std(R) + eps), for each group of G answers to one prompt.

    Shao et al., "DeepSeekMath", 2024, section 4.1.2: the group's mean replaces a trained critic. The result
    is a constant for the backward pass. Without ``normalize``, the rewards are not divided by the standard
    deviation: Liu et al., "Understanding R1-Zero-Like Training", 2025.

    Parameters
    ----------
    rewards : float array (..., G)
        The rewards of the G answers to each prompt.
    normalize : bool
    eps : float, eps > 0
        A small number for groups in which all rewards are equal. Their advantages are 0.

    Returns
    -------
    advantages : float array (..., G)

    Examples
    --------
    >>> import numpy as np
    >>> group_advantages(np.array([[0.0, 0.0, 1.0, 1.0]]), normalize=False)
    array([[-0.5, -0.5,  0.5,  0.5]])
    """
    centred = rewards - rewards.mean(axis=-1, keepdims=True)  # (..., G)
    if not normalize:
        return centred
    std = array_module(rewards).sqrt((centred * centred).mean(axis=-1, keepdims=True))  # (..., 1)
    return centred / (std + float(eps))
