"""A Transformer on one page. It reads noise, and learns to say words backwards.

    python one_page.py              or, to hear your own name:    python one_page.py Ada

NumPy only, every gradient by hand; symbols as in "Attention Is All You Need" (Vaswani et al., 2017). Each
function goes down the page, and its `backward` comes up again: of two lines with the same number, the lower
one undoes the upper one and uses its variables. dy is the gradient of the loss with respect to y: it has the
shape of y, and says how fast the loss grows with each entry of y. Every line of `backward` obeys a rule:

    y = x W             dx = dy W^T  and  dW = x^T dy: dy times the other factor
    y = f(x)            dx = dy f'(x), entry by entry
    y = softmax(x)      dx = y (dy - sum(dy y)), row by row
    x is used twice     dx is the sum of both gradients; so dW sums over all uses of W

Shapes: B lines of T letters, d numbers a letter, h heads of d_k = d / h, d_ff hidden units. x.mT: each x^T.
"""

import sys
from math import sqrt

import numpy as np

LETTERS, N = " abcdefghijklmnopqrstuvwxyz|", 16  # a line: N letters, a bar, and the N letters reversed
ROW = {"axis": -1, "keepdims": True}  # x.sum(**ROW) adds up each row: (..., d) -> (..., 1)

def positions(T, d):
    """PE(pos, 2i) = sin(pos / 10000^(2i/d)),  PE(pos, 2i+1) = cos(pos / 10000^(2i/d))   (section 3.5)"""
    angle = np.arange(T)[:, None] / 10000 ** (np.arange(0, d, 2) / d)      # (T, d/2)
    return np.stack([np.sin(angle), np.cos(angle)], -1).reshape(T, d)      # (T, d), sine beside cosine

def ffn(x, W_1, b_1, W_2, b_2):
    """FFN(x) = max(0, x W_1 + b_1) W_2 + b_2   (equation 2)"""
    z = x @ W_1 + b_1                                                      # ① (B, T, d_ff)
    r = np.maximum(0, z)                                                   # ② (B, T, d_ff)
    y = r @ W_2 + b_2                                                      # ③ (B, T, d)
    def backward(dy):
        dW_2, db_2 = (r.mT @ dy).sum(0), dy.sum((0, 1))                    # ③ (d_ff, d), (d,)
        dr = dy @ W_2.T                                                    # ③ (B, T, d_ff)
        dz = dr * (z > 0)                                                  # ② (B, T, d_ff)
        dW_1, db_1 = (x.mT @ dz).sum(0), dz.sum((0, 1))                    # ① (d, d_ff), (d_ff,)
        dx = dz @ W_1.T                                                    # ① (B, T, d)
        return dx, dW_1, db_1, dW_2, db_2
    return y, backward

def layer_norm(x, gamma, beta, eps=1e-5):
    """LayerNorm(x) = gamma (x - mean) / sigma + beta,  sigma = sqrt(variance + eps)   (Ba et al., 2016)"""
    c = x - x.mean(**ROW)                                                  # ① (B, T, d)
    sigma = np.sqrt((c * c).mean(**ROW) + eps)                             # ② (B, T, 1)
    x_hat = c / sigma                                                      # ③ (B, T, d)
    y = gamma * x_hat + beta                                               # ④ (B, T, d)
    def backward(dy):
        dgamma, dbeta = (dy * x_hat).sum((0, 1)), dy.sum((0, 1))           # ④ (d,), (d,)
        dx_hat = dy * gamma                                                # ④ (B, T, d)
        dsigma = -(dx_hat * x_hat / sigma).sum(**ROW)                      # ③ (B, T, 1): factor -c / sigma^2
        dc = dx_hat / sigma                                                # ③ (B, T, d): so far without sigma
        dc += dsigma * c / sigma / x.shape[-1]                             # ② (B, T, d): and through sigma
        dx = dc - dc.mean(**ROW)                                           # ① (B, T, d): direct, and via mean
        return dx, dgamma, dbeta
    return y, backward

def softmax(s):
    """exp(s) / sum(exp(s)), row by row; s - max(s) gives the same, and cannot overflow"""
    e = np.exp(s - s.max(**ROW))
    return e / e.sum(**ROW)

def attention(x, W_Q, W_K, W_V, W_O):
    """MultiHead = Concat(head_1, ..., head_h) W_O,  head = softmax(Q K^T / sqrt(d_k)) V   (equation 1)"""
    x, scale = x[:, None], 1 / sqrt(W_K.shape[-1])                         # (B, 1, T, d): all heads
    later = np.where(np.tri(x.shape[2]), 0, -np.inf)                       # (T, T): hidden
    Q, K, V = x @ W_Q, x @ W_K, x @ W_V                                    # ① (B, h, T, d_k)
    S = Q @ K.mT * scale + later                                           # ② (B, h, T, T)
    A = softmax(S)                                                         # ③ (B, h, T, T): who sees whom
    Z = A @ V                                                              # ④ (B, h, T, d_k)
    y = (Z @ W_O).sum(1)                                                   # ⑤ (B, T, d): Concat(Z) W_O
    def backward(dy):
        dW_O = (Z.mT @ dy[:, None]).sum(0)                                 # ⑤ (h, d_k, d)
        dZ = dy[:, None] @ W_O.mT                                          # ⑤ (B, h, T, d_k)
        dA, dV = dZ @ V.mT, A.mT @ dZ                                      # ④ (B, h, T, T), (B, h, T, d_k)
        dS = A * (dA - (dA * A).sum(**ROW))                                # ③ (B, h, T, T)
        dQ, dK = dS @ K * scale, dS.mT @ Q * scale                         # ② (B, h, T, d_k)
        dW_Q, dW_K, dW_V = ((x.mT @ dz).sum(0) for dz in (dQ, dK, dV))     # ① (h, d, d_k)
        dx = (dQ @ W_Q.mT + dK @ W_K.mT + dV @ W_V.mT).sum(1)              # ① (B, T, d)
        return dx, dW_Q, dW_K, dW_V, dW_O
    return y, backward

def block(x, W_Q, W_K, W_V, W_O, gamma_1, beta_1, W_1, b_1, W_2, b_2, gamma_2, beta_2):
    """h = LayerNorm(x + MultiHead(x)),  y = LayerNorm(h + FFN(h))   (section 3.1)"""
    a, attention_backward = attention(x, W_Q, W_K, W_V, W_O)               # ① (B, T, d)
    h, norm_1_backward = layer_norm(x + a, gamma_1, beta_1)                # ② (B, T, d)
    f, ffn_backward = ffn(h, W_1, b_1, W_2, b_2)                           # ③ (B, T, d)
    y, norm_2_backward = layer_norm(h + f, gamma_2, beta_2)                # ④ (B, T, d)
    def backward(dy):
        df, *dnorm_2 = norm_2_backward(dy)                                 # ④ (B, T, d): for f, and for h
        dh, *dffn = ffn_backward(df)                                       # ③ (B, T, d): for h, through FFN
        da, *dnorm_1 = norm_1_backward(df + dh)                            # ② (B, T, d): h was used twice
        dx, *dattention = attention_backward(da)                           # ① (B, T, d): x was used twice too
        return da + dx, *dattention, *dnorm_1, *dffn, *dnorm_2
    return y, backward

def transformer(ids, E, *weights):
    """x = E[ids] sqrt(d) + PE, then block after block, twelve weights each; logits = x E^T   (section 3.4)"""
    d, undo = E.shape[1], []
    x = E[ids] * sqrt(d) + positions(ids.shape[1], d)                      # ① (B, T, d)
    for i in range(0, len(weights), 12):                                   # ②
        x, block_backward = block(x, *weights[i : i + 12])                 # ② (B, T, d)
        undo.append(block_backward)                                        # ②
    logits = x @ E.T                                                       # ③ (B, T, 28)
    def backward(dlogits):
        dE = (dlogits.mT @ x).sum(0)                                       # ③ (28, d)
        dx, dweights = dlogits @ E, []                                     # ③ (B, T, d)
        for block_backward in reversed(undo):                              # ②
            dx, *dblock = block_backward(dx)                               # ② (B, T, d)
            dweights = dblock + dweights                                   # ②
        np.add.at(dE, ids, dx * sqrt(d))                                   # ① (28, d): sums repeated ids
        return [dE, *dweights]
    return logits, backward

def cross_entropy(logits, targets):
    """loss = -mean(log p[target]),  p = softmax(logits); targets of -1 do not count"""
    right = (*np.nonzero(targets >= 0), targets[targets >= 0])             # where
    p = softmax(logits)                                                    # ① (B, T, 28)
    loss = -np.log(p[right]).mean()                                        # ② ()
    def backward():
        dp = np.zeros_like(p)                                              # ② (B, T, 28)
        dp[right] = -1 / p[right] / len(p[right])                          # ②
        return p * (dp - (dp * p).sum(**ROW))                              # ① (B, T, 28)
    return loss, backward

def loss_and_gradients(weights, ids, targets):
    """The whole idea: all the way forward, and all the way back"""
    logits, transformer_backward = transformer(ids, *weights)
    loss, loss_backward = cross_entropy(logits, targets)
    return loss, transformer_backward(loss_backward())

def adamw(weights, gradients, ms, vs, step, rate, beta_1=0.9, beta_2=0.98, eps=1e-9, decay=0.01):
    """w = w - rate (m_hat / (sqrt(v_hat) + eps) + decay w)   (section 5.3; Loshchilov and Hutter, 2019)"""
    for w, dw, m, v in zip(weights, gradients, ms, vs, strict=True):
        m += (1 - beta_1) * (dw - m)                                       # mean of the latest gradients
        v += (1 - beta_2) * (dw * dw - v)                                  # and of their squares
        m_hat, v_hat = m / (1 - beta_1**step), v / (1 - beta_2**step)      # both began at 0: corrected
        w -= rate * (m_hat / (np.sqrt(v_hat) + eps) + decay * w)

def new_weights(rng, d=32, d_ff=128, h=2, n_blocks=2):
    """Random weights, scaled so that the input and the output of a product have the same magnitude"""
    weights = [rng.normal(0, d**-0.5, (len(LETTERS), d))]                  # E
    for _ in range(n_blocks):
        weights += [*rng.normal(0, d**-0.5, (3, h, d, d // h))]            # W_Q, W_K, W_V
        weights += [rng.normal(0, d**-0.5, (h, d // h, d))]                # W_O
        weights += [np.ones(d), np.zeros(d)]                               # gamma_1, beta_1
        weights += [rng.normal(0, d**-0.5, (d, d_ff)), np.zeros(d_ff)]     # W_1, b_1
        weights += [rng.normal(0, d_ff**-0.5, (d_ff, d)), np.zeros(d)]     # W_2, b_2
        weights += [np.ones(d), np.zeros(d)]                               # gamma_2, beta_2
    return weights

def noise(rng, B=16):
    """Lines such as "      qzj bxwv|vwxb jzq      ": the input, and each next letter (-1 before the bar)"""
    letters = rng.integers(27, size=(B, N))                                # 0 is the space
    letters[np.arange(N) < rng.integers(N, size=(B, 1))] = 0               # words of 1 to N letters
    lines = np.hstack([letters, np.full((B, 1), 27), letters[:, ::-1]])    # (B, 2N + 1)
    return lines[:, :-1], np.where(np.arange(2 * N) < N, -1, lines[:, 1:])

def say(word, weights):
    """Say a word letter by letter: always the likeliest letter, given the word and the answer so far"""
    line = "".join(letter for letter in word.lower() if letter in LETTERS[:27])[:N].rjust(N) + "|"
    while len(line) <= 2 * N:
        logits, _ = transformer(np.array([[LETTERS.index(letter) for letter in line]]), *weights)
        line += LETTERS[logits[0, -1].argmax()]
    return line[N + 1 :].strip()

def derivatives(weights, batch, rng, h=1e-7):
    """Is it right? The derivative of the loss along a random direction u: by hand, and by differences"""
    u = [rng.normal(size=w.shape) for w in weights]
    _, gradients = loss_and_gradients(weights, *batch)
    ahead, behind = ([w + way * du for w, du in zip(weights, u, strict=True)] for way in (h, -h))
    difference = (loss_and_gradients(ahead, *batch)[0] - loss_and_gradients(behind, *batch)[0]) / (2 * h)
    return sum((dw * du).sum() for dw, du in zip(gradients, u, strict=True)), difference

def main(words=(), steps=800):
    """Half a minute of learning from noise, and then a few words"""
    rng = np.random.default_rng(0)
    weights = new_weights(rng)
    ms, vs = ([np.zeros_like(w) for w in weights] for _ in range(2))
    by_hand, difference = derivatives(weights, noise(rng), rng)
    print(f"derivative in a random direction: {by_hand:.6f} by hand, {difference:.6f} by differences\n")
    for step in range(1, steps + 1):
        loss, gradients = loss_and_gradients(weights, *noise(rng))
        rate = 0.005 * min(4 * step / steps, 4 / 3 * (1 - step / steps))   # it rises, then falls
        adamw(weights, gradients, ms, vs, step, rate)
        if step == 1 or step % (steps // 10) == 0:
            print(f"step {step:3}   loss {loss:.3f}   stressed -> {say('stressed', weights)}", flush=True)
    ids, targets = noise(rng, 500)
    logits, _ = transformer(ids, *weights)
    right = ((logits.argmax(-1) == targets) | (targets < 0)).all(1)
    print(f"\n{right.sum()} of 500 new lines of noise are right. And words, which it has never seen:\n")
    for word in ["dog bites man", "transformer", "step on no pets", *words]:
        print(f"    {word} -> {say(word, weights)}")
    return weights

if __name__ == "__main__":
    main(sys.argv[1:])
