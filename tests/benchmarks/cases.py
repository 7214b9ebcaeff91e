"""What the benchmark times: one function a case and a variant. run.py gives each a fresh process.

python tests/benchmarks/cases.py CASE VARIANT SECONDS     prints the median CPU time of one call, in seconds
"""

import os
import statistics
import sys
import time

import numpy as np

SIZES = {  # B, T, d_model, d_ff, n_heads
    "tiny": (2, 3, 4, 16, 2),
    "article": (3, 6, 8, 32, 4),
    "base": (8, 128, 512, 2048, 8),
    "long": (1, 1024, 512, 2048, 8),
}


def inputs(size):
    rng = np.random.default_rng(0)
    B, T, d, _, _ = SIZES[size]
    return rng.normal(size=(B, T, d)).astype(np.float32), rng.normal(size=(B, T, d)).astype(np.float32)


def table(variant, n, dtype):
    n, d, dtype = int(n), 512, np.dtype(dtype)
    if variant == "npformer":
        from npformer import positional_encoding

        return lambda: positional_encoding(n, d, dtype=dtype)
    if variant == "torch":
        import torch

        kind = getattr(torch, dtype.name)

        def usual():  # angles in the table's own type, as most tutorials have them: in float32 up to 5e-4 off
            angles = torch.arange(n, dtype=kind)[:, None] * torch.exp(
                torch.arange(0, d, 2, dtype=kind) * (-np.log(10000.0) / d)
            )
            table = torch.empty(n, d, dtype=kind)
            table[:, 0::2], table[:, 1::2] = torch.sin(angles), torch.cos(angles)
            return table

        return usual

    def plain():  # all angles, then their sines, then their cosines
        angles = np.arange(n)[:, None] / 10000.0 ** (np.arange(0, d, 2) / d)
        table = np.empty((n, d), dtype)
        table[:, 0::2], table[:, 1::2] = np.sin(angles), np.cos(angles)
        return table

    return plain


def ffn(variant, size, backward):
    x, dy = inputs(size)
    _, _, d, f, _ = SIZES[size]
    backward = backward == "backward"
    if variant == "npformer":
        from npformer import ffn_backward, ffn_forward, init_ffn

        params = init_ffn(d, f, np.random.default_rng(1), dtype=np.float32)
        if not backward:
            return lambda: ffn_forward(x, params)
        return lambda: ffn_backward(dy, ffn_forward(x, params)[1])
    if variant == "torch":
        import torch

        model = torch.nn.Sequential(torch.nn.Linear(d, f), torch.nn.ReLU(), torch.nn.Linear(f, d))
        return torch_step(model, x, dy, backward)
    N = x.shape[0] * x.shape[1]
    forward = [((N, d), (d, f)), ((N, f), (f, d))]
    back = [((f, N), (N, d)), ((N, d), (d, f)), ((d, N), (N, f)), ((N, f), (f, d))]
    return products(forward + back * backward)


def block(variant, size):
    x, dy = inputs(size)
    B, T, d, f, h = SIZES[size]
    if variant == "npformer":
        import npformer as npf

        config = npf.TransformerConfig(d_model=d, d_ff=f, n_heads=h, attention_bias=True)
        params = npf.init_encoder_block(config, np.random.default_rng(1), dtype=np.float32)
        return lambda: npf.encoder_block_backward(dy, npf.encoder_block_forward(x, params, config)[1])
    if variant == "torch":
        import torch

        layer = torch.nn.TransformerEncoderLayer(d, h, f, dropout=0.0, batch_first=True)
        return torch_step(layer, x, dy, True)
    N, k, heads = B * T, d // h, (B, h)
    linear = [((N, d), (d, d)), ((N, d), (d, d)), ((d, N), (N, d))] * 4
    feed = [((N, d), (d, f)), ((N, f), (f, d))] * 2 + [((f, N), (N, d)), ((d, N), (N, f))]
    square = [((*heads, T, k), (*heads, k, T))] * 2  # scores, and the gradient of the weights
    tall = [((*heads, T, T), (*heads, T, k))] * 4  # weights v, and the gradients of v, q and k
    return products(linear + feed + square + tall)


def train(variant):
    """One step of lesson 06: embed, add positions, one block, mean, linear, loss, back, Adam."""
    rng = np.random.default_rng(0)
    ids, labels = rng.integers(1, 40, size=(64, 6)), rng.integers(0, 2, size=64)
    return npformer_step(ids, labels) if variant == "npformer" else torch_training(ids, labels, variant)


def npformer_step(ids, labels, d=16):
    import npformer as npf

    rng = np.random.default_rng(1)
    config = npf.TransformerConfig(d_model=d, d_ff=32, n_heads=2, n_layers=1, dropout=0.0)
    embedding = npf.init_embedding(40, d, rng, dtype=np.float32)
    head = rng.normal(size=(d, 2)).astype(np.float32), np.zeros(2, np.float32)
    params = embedding, npf.init_encoder(config, rng, dtype=np.float32), head
    state = npf.adam_init(params)
    T = ids.shape[1]
    table = npf.positional_encoding(T, d, dtype=np.float32)

    def step():
        nonlocal params, state
        x, c_embedding = npf.embedding_forward(ids, params[0])
        y, c_encoder = npf.encoder_forward(x + table, params[1], config)
        logits, c_head = npf.linear_forward(y.mean(axis=1), *params[2])
        _, c_loss = npf.cross_entropy_forward(logits, labels)
        dmean, *dhead = npf.linear_backward(npf.cross_entropy_backward(1.0, c_loss), c_head)
        dx, dencoder = npf.encoder_backward(np.repeat(dmean[:, None] / T, T, axis=1), c_encoder)
        grads = npf.embedding_backward(dx, c_embedding), dencoder, tuple(dhead)
        params, state = npf.adam_update(params, grads, state, learning_rate=1e-3)

    return step


def torch_training(ids, labels, variant, d=16):
    import torch

    torch.set_num_threads(1)
    ids, labels = torch.tensor(ids), torch.tensor(labels)
    position = torch.arange(ids.shape[1])[:, None]
    angles = position / 10000.0 ** (torch.arange(0, d, 2) / d)
    table = torch.stack([angles.sin(), angles.cos()], dim=-1).reshape(-1, d)
    embedding = torch.nn.Embedding(40, d)
    encoder = torch.nn.TransformerEncoderLayer(d, 2, 32, dropout=0.0, batch_first=True)
    head = torch.nn.Linear(d, 2)
    parameters = [p for module in (embedding, encoder, head) for p in module.parameters()]
    adam = torch.optim.Adam(parameters, lr=1e-3, fused=True if variant == "torch_fused" else None)

    def step():
        adam.zero_grad()
        y = encoder(embedding(ids) * d**0.5 + table).mean(dim=1)
        torch.nn.functional.cross_entropy(head(y), labels).backward()
        adam.step()

    return step


def write(variant, how):
    from writing import writing

    return writing(variant, how)


def sentences(variant, kind):
    """Embeddings of 20 texts of 4 to 23 words, or of 12 texts one after the other, 5 to 16 tokens each.

    PyTorch pads the 20 to the longest, as its users do, and gets the ids ready made; npformer splits texts
    into tokens within the time and sorts them into batches that need little padding, unless kind is "padded".
    """
    import npformer as npf
    from npformer.published import minilm

    model = npf.load_minilm(os.environ["MINILM"])
    rng = np.random.default_rng(0)
    lengths = range(3, 15) if kind == "single" else range(4, 24)
    texts = [" ".join(rng.choice(WORDS, size=n)) for n in lengths]
    calls = [[text] for text in texts] if kind == "single" else [texts]
    if variant == "torch":
        ids = [[encoding.ids for encoding in model[2].encode_batch(call)] for call in calls]
        embed = torch_encoder(*model[:2])
        return lambda: [embed(rows) for rows in ids]
    if kind == "padded":
        minilm.MOST_PADDING = 10**6
    return lambda: [npf.sentence_embeddings(call, *model) for call in calls]


WORDS = (
    "the quick brown fox runs over a low hill near some old houses while rain falls on every garden".split()
)


def torch_encoder(params, config):
    """The encoder in PyTorch's eager functions, with the same weights."""
    import torch
    import torch.nn.functional as F

    import npformer as npf

    torch.set_num_threads(1)
    h, eps = config.n_heads, config.eps
    E, P, S = map(torch.from_numpy, (params.embedding.E, params.positions.P, params.S))
    norm, encoder = npf.tree_map(lambda a: torch.from_numpy(a.T.copy()), (params.norm, params.encoder))

    def normed(x, p):
        return F.layer_norm(x, (config.d_model,), p.gamma, p.beta, eps)

    @torch.inference_mode()
    def embed(rows):
        counts = torch.tensor([len(row) for row in rows])
        padded = torch.nn.utils.rnn.pad_sequence([torch.tensor(row) for row in rows], batch_first=True)
        B, T = padded.shape
        is_token = torch.arange(T) < counts[:, None]
        mask = None if is_token.all() else is_token[:, None, None]
        x = normed(E[padded] + P[:T] + S[0], norm)
        for attention, norm_1, ffn, norm_2 in encoder.blocks:
            W_Q, W_K, W_V, W_O, b_Q, b_K, b_V, b_O = attention
            weights = ((W_Q, b_Q), (W_K, b_K), (W_V, b_V))
            q, k, v = (F.linear(x, W, b).view(B, T, h, -1).transpose(1, 2) for W, b in weights)
            heads = F.scaled_dot_product_attention(q, k, v, attn_mask=mask)
            y = normed(x + F.linear(heads.transpose(1, 2).reshape(B, T, -1), W_O, b_O), norm_1)
            x = normed(y + F.linear(F.gelu(F.linear(y, ffn.W_1, ffn.b_1)), ffn.W_2, ffn.b_2), norm_2)
        means = (x * is_token[..., None]).sum(1) / counts[:, None]
        return F.normalize(means)

    return embed


def products(shapes):
    """The bare matrix products, each into its own array made beforehand."""
    rng = np.random.default_rng(2)
    pairs = [tuple(rng.normal(size=shape).astype(np.float32) for shape in pair) for pair in shapes]
    outs = [np.matmul(a, b) for a, b in pairs]

    def run():
        for (a, b), out in zip(pairs, outs, strict=True):
            np.matmul(a, b, out=out)

    return run


def torch_step(model, x, dy, backward):
    import torch

    torch.set_num_threads(1)
    x, dy = torch.tensor(x, requires_grad=backward), torch.tensor(dy)

    def step():
        model.zero_grad(set_to_none=True)
        x.grad = None
        model(x).backward(dy)

    def forward():
        with torch.no_grad():
            model(x)

    return step if backward else forward


def keep_memory():
    """Freeing a block of this size, untouched, makes glibc keep freed memory instead of giving it back."""
    np.empty(2**25 - 2**13, np.uint8)


def main():
    case, variant, seconds, memory = sys.argv[1:5]
    if memory == "kept":
        keep_memory()
    name, *options = case.split(":")
    known = {"table": table, "ffn": ffn, "block": block, "train": train, "sentences": sentences}
    run = (known | {"write": write})[name](variant, *options)
    for _ in range(3):
        run()
    times, stop = [], time.perf_counter() + float(seconds)
    while time.perf_counter() < stop or len(times) < 5:
        start = time.process_time()  # of all its threads; other programs' load does not count
        run()
        times.append(time.process_time() - start)
    print(statistics.median(times))


if __name__ == "__main__":
    main()
