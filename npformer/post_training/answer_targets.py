"""The targets of a loss that counts the tokens of the answer only, not those of the prompt."""

import numpy as np

from npformer.arrays import Array, array_module
from npformer.validation.annotations import Count, Ids, Integer


def answer_targets(
    ids: Ids[Array, "... T"],
    n_prompt: Count,
    *,
    ignore_index: Integer = -1,
    padding_id: Integer | None = None,
) -> Ids[Array, "... T"]:
    """targets_t = ids_{t+1} if token t + 1 belongs to the answer, and ignore_index otherwise.

    The logits at position t predict token t + 1. So the last token of the prompt has the first token of the
    answer as its target. This is the usual loss of supervised fine-tuning.

    Parameters
    ----------
    ids : integer array (..., T)
        Each sequence is a prompt of n_prompt tokens and its answer.
    n_prompt : int
        The number of tokens of each prompt.
    ignore_index : int
        The target of the positions that do not count.
    padding_id : int, optional
        The id of the padding tokens after shorter answers. Padding does not count.

    Returns
    -------
    targets : integer array (..., T)
        Input of ``cross_entropy_forward`` and ``token_log_probs_forward``.

    Examples
    --------
    >>> answer_targets(np.array([[7, 8, 9, 4, 5]]), 3)
    array([[-1, -1,  4,  5, -1]])
    """
    xp = array_module(ids)
    targets = xp.full(ids.shape, ignore_index, dtype=np.int64)  # (..., T)
    answers = ids[..., n_prompt:].astype(np.int64)  # (..., T - n_prompt)
    if padding_id is not None:
        answers = xp.where(answers == padding_id, ignore_index, answers)
    targets[..., n_prompt - 1 : -1] = answers
    return targets
