"""A hundred tokens of the published story-teller, float32, keys kept: for cases.py, a function a variant.

Only where `npformer fetch stories` has put the model. PyTorch runs eagerly with the same cache: room for all
keys made at once, `linear`, `rms_norm` and `scaled_dot_product_attention`, one token after the other.
"""

import numpy as np

from npformer.published.stories import MODEL, stories_folder

PROMPT, NEW = [1, 9038, 2501, 263, 931], 100  # "Once upon a time"


def model():
    from npformer import load_llama2c

    return load_llama2c(stories_folder() / MODEL)[:2]


def writing(variant, how):
    return {"npformer": npformer, "products": products, "torch": torch_eager}[variant](how)


def npformer(how):
    from npformer import generate

    params, config = model()
    draws = {"greedy": {"temperature": 0}, "top_p": {"temperature": 0.8, "top_p": 0.9}}[how]
    rng = np.random.default_rng(0)
    return lambda: generate(np.array([PROMPT]), params, config, max_new_tokens=NEW, rng=rng, **draws)


def products(how):
    """x @ W for each weight of the model, and nothing else, as often as there are tokens."""
    from npformer import leaves

    params, config = model()
    weights = [W for _, W in leaves(params.blocks) if W.ndim == 2] + [params.embedding.E.T]
    rows = {d: np.ones((1, d), np.float32) for d in (config.d_model, config.d_ff)}

    def run():
        for _ in range(NEW):
            for W in weights:
                rows[len(W)] @ W

    return run


def torch_eager(how):
    import torch
    import torch.nn.functional as F

    torch.set_num_threads(1)
    params, config = model()
    d_k = config.d_model // config.n_heads

    def matrix(W):  # outputs as rows, as in the file and in nn.Linear
        return torch.tensor(np.ascontiguousarray(W.T))

    blocks = [
        (
            [matrix(W) for W in block.attention[:4]],
            [matrix(W) for W in block.ffn],
            [torch.tensor(norm.gamma) for norm in (block.norm_1, block.norm_2)],
        )
        for block in params.blocks
    ]
    E, gamma = torch.tensor(params.embedding.E), torch.tensor(params.norm.gamma)
    angles = torch.arange(len(PROMPT) + NEW)[:, None] / config.base ** (torch.arange(0, d_k, 2) / d_k)
    turns = torch.polar(torch.ones_like(angles), angles)  # (T, d_k / 2)

    def turned(x, t):
        return torch.view_as_real(torch.view_as_complex(x.unflatten(-1, (-1, 2))) * turns[t]).flatten(-2)

    def next_logits(token, t, kept):
        x = E[token]
        for ((W_Q, W_K, W_V, W_O), (gate, up, down), (first, second)), (keys, values) in zip(
            blocks, kept, strict=True
        ):
            n = F.rms_norm(x, x.shape, first, config.eps)
            q, k, v = (F.linear(n, W).unflatten(-1, (-1, d_k)) for W in (W_Q, W_K, W_V))  # (h, d_k)
            keys[:, t], values[:, t] = turned(k, t), v
            heads = F.scaled_dot_product_attention(
                turned(q, t)[:, None], keys[:, : t + 1], values[:, : t + 1]
            )
            x = x + F.linear(heads.flatten(), W_O)
            m = F.rms_norm(x, x.shape, second, config.eps)
            x = x + F.linear(F.silu(F.linear(m, gate)) * F.linear(m, up), down)
        return F.linear(F.rms_norm(x, x.shape, gamma, config.eps), E)

    def run():
        room = config.n_kv_heads, len(PROMPT) + NEW, d_k
        kept = [(torch.empty(room), torch.empty(room)) for _ in blocks]
        ids = list(PROMPT)
        with torch.inference_mode():
            for t in range(len(PROMPT) + NEW - 1):
                logits = next_logits(ids[t], t, kept)
                if t + 1 == len(ids):
                    ids.append(int(logits.argmax()))
        return ids

    return run
