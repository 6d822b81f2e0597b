"""Each model keeps DiSE's promises, beside loops in numpy of the papers' equations."""

import math
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from dise_noise_models import BD3LM, LEAST, MDLM, MOST, SEDD, NoiseModel
from dise_noise_models.__main__ import TINY, write
from dise_noise_models.leave_one_out import auroc, coded, main, scores
from dise_noise_models.network import Network
from fastapi.testclient import TestClient
from safetensors.numpy import load_file

from dise_app import create_app
from dise_core import LLM, AsyncLLM, Floats, Ids, InputError, SamplingParams, ScoringParams
from dise_core.testing import check_claims, check_mask_predictor

CLASSES: dict[str, type[NoiseModel]] = {
    "mdlm": MDLM, "mdlm-time": MDLM, "sedd": SEDD, "sedd-uniform": SEDD, "bd3lm": BD3LM,
}  # fmt: skip


@pytest.fixture(params=TINY)
def folder(request: pytest.FixtureRequest, tmp_path: Path) -> Path:
    return write(tmp_path, request.param)


def states(
    w: dict[str, Floats], ids: Ids, sigma: float, allows: Callable[[int, int], bool]
) -> Floats:
    """Return the network's logits [N, V], token by token, head by head, in float64."""

    def linear(name: str, x: Floats) -> Floats:
        y: Floats = x @ w[name + ".weight"].T + w.get(name + ".bias", 0.0)
        return y

    def normed(name: str, x: Floats, shift: Floats, scale: Floats) -> Floats:
        x = (x - x.mean(-1, keepdims=True)) / np.sqrt(x.var(-1, keepdims=True) + 1e-5)
        y: Floats = x * w[name + ".weight"] * (1 + scale) + shift
        return y

    silu = lambda x: x / (1 + np.exp(-x))  # noqa: E731
    waves = [sigma / 10000 ** (k / 16) for k in range(16)]
    time = np.array([f(wave) for f in (math.cos, math.sin) for wave in waves])
    noise = silu(linear("time.2", silu(linear("time.0", time))))
    x = w["embed.weight"][ids]
    for layer in ("layers.0", "layers.1"):
        a, b, gate, c, d, second = np.split(linear(layer + ".modulation", noise), 6)
        q, k, v = np.split(linear(layer + ".qkv", normed(layer + ".norms.0", x, a, b)), 3, axis=-1)
        heard = np.zeros_like(x)
        for head in range(2):
            part = slice(16 * head, 16 * head + 16)
            for i in range(len(ids)):
                seen = [j for j in range(len(ids)) if allows(i, j)]
                scores = np.array([turned(q[i, part], i) @ turned(k[j, part], j) / 4 for j in seen])
                weights = np.exp(scores - scores.max())
                heard[i, part] = weights / weights.sum() @ v[seen, part]
        x = x + gate * linear(layer + ".out", heard)
        y = linear(layer + ".mlp.0", normed(layer + ".norms.1", x, c, d))
        y = y * (1 + np.tanh(math.sqrt(2 / math.pi) * (y + 0.044715 * y**3))) / 2
        x = x + second * linear(layer + ".mlp.2", y)
    shift, scale = np.split(linear("modulation", noise), 2)
    return linear("head", normed("norm", x, shift, scale))


def turned(x: Floats, place: int) -> Floats:
    """Return a head's vector, each pair of numbers turned as one complex number."""
    angles = np.array([place / 10000 ** (k / 8) for k in range(8)])
    z = (x[:8] + 1j * x[8:]) * np.exp(1j * angles)
    return np.concatenate([z.real, z.imag])


def sedd(scores: Floats, token: int, sigma: float, mask: int | None) -> Floats:
    """Return p(x0 | x_t = token), up to a constant, by matrices: (P^-1 s) * P[token], where
    P[x, y] is the probability of x after noise sigma on y.
    """
    size, stay = len(scores), math.exp(-sigma)
    noise = np.full((size, size), 1 / size)
    if mask is not None:
        noise = (np.arange(size) == mask)[:, None] * np.ones((1, size))
    after = stay * np.eye(size) + (1 - stay) * noise
    before = np.linalg.solve(after, np.where(np.arange(size) == token, 1.0, scores))
    share: Floats = np.maximum(before * after[token], 0.0)
    if mask is not None:
        share[mask] = 0.0
    return share


def reference(folder: Path) -> Callable[..., Floats]:
    """Return what gives log p(x0 | x_t) [N, V] of a text, up to a constant a row."""
    w = {k: v.astype(np.float64) for k, v in load_file(folder / "model.safetensors").items()}
    name, size = folder.name, len(w["embed.weight"])
    mask = None if name == "sedd-uniform" else size - 1

    def logits(ids: Ids, levels: Floats | None = None) -> Floats:
        sigma = 0.0
        if levels is not None and name not in ("mdlm", "bd3lm"):
            sigma = min(max(-math.log1p(-levels[0]) if levels[0] < 1 else MOST, LEAST), MOST)
        allows = (lambda i, j: j // 4 <= i // 4) if name == "bd3lm" else lambda i, j: True  # noqa: ARG005
        rows = states(w, ids, sigma, allows)
        with np.errstate(divide="ignore"):
            for row, token in zip(rows, ids, strict=True):
                if name.startswith("sedd"):
                    row[:] = np.log(sedd(np.exp(row), token, sigma, mask))
                else:  # SUBS
                    row[np.arange(size) != token if token != mask else [mask]] = -np.inf
        return rows

    return logits


def test_the_predictor_conforms_beside_the_equations(folder: Path) -> None:
    predictor = CLASSES[folder.name](str(folder))
    check_mask_predictor(predictor, 2e-4, logits=reference(folder))
    check_claims(type(predictor), [str(folder)], ["countdown"])


def test_it_scores_and_writes_as_a_loop_does(folder: Path) -> None:
    llm = LLM(str(folder))
    params = ScoringParams(scorer="dise", selector="response", logprobs=None)
    [scored] = llm.score("abc", "defg", params, finished=False)
    text = np.array([0, 1, 2, 3, 4, 5, 6])
    rows = reference(folder)(text, np.zeros(7))
    by_hand = np.mean([rows[i, text[i]] - np.logaddexp.reduce(rows[i]) for i in range(3, 7)])
    assert scored.outputs[0].score.value == pytest.approx(by_hand, abs=2e-4)
    params = SamplingParams(max_tokens=5, scorer="written", tokens_per_step=1, seed=1)
    [answer] = llm.generate("abc", params)
    assert all(token < llm.predictor.info.vocab_size for token in answer.outputs[0].token_ids)
    if folder.name != "sedd-uniform":  # whose draws a test of the core follows
        assert [*answer.outputs[0].token_ids] == greedy(folder, [0, 1, 2], 5)


def greedy(folder: Path, prompt: list[int], length: int) -> list[int]:
    """Return what the surest token a step makes; in blocks the text ends with the block."""
    mask, end, is_in_blocks = 27, 26, folder.name == "bd3lm"
    stop = -(-(len(prompt) + length) // 4) * 4 if is_in_blocks else len(prompt) + length
    ids = np.array(prompt + [mask] * (stop - len(prompt)))
    while (hidden := np.flatnonzero(ids == mask)).size:
        until = (hidden[0] // 4 + 1) * 4 if is_in_blocks else stop
        level = len(hidden) / length
        rows = reference(folder)(ids[:until], np.full(until, level))
        rows -= np.logaddexp.reduce(rows, axis=1, keepdims=True)
        place = max(hidden[hidden < until], key=lambda place: rows[place].max())
        ids[place] = rows[place].argmax()
    written = ids[len(prompt) : len(prompt) + length].tolist()
    return written[: written.index(end) + 1] if is_in_blocks and end in written else written


def test_the_server_tells_what_python_does(folder: Path) -> None:
    asked = {"max_tokens": 8, "seed": 3, "temperature": 1.0}
    llm = LLM(str(folder))
    [written] = llm.generate("ab", SamplingParams(**asked))
    [scored] = llm.score("ab", "cdef")
    with TestClient(create_app(AsyncLLM(str(folder)))) as client:
        answer = client.post("/v1/completions", json={"prompt": "ab", **asked}).json()
        score = client.post("/v1/score", json={"prompt": "ab", "response": "cdef"}).json()
        about = client.get("/tokenizer_info").json()
    assert answer["choices"][0]["text"] == written.outputs[0].text
    told = score["data"][0]["score"]["value"]
    assert told == pytest.approx(scored.outputs[0].score.value, abs=1e-5)
    assert about["mask_token"] == (None if folder.name == "sedd-uniform" else "<mask>")


def test_finished_blocks_are_computed_once(tmp_path: Path) -> None:
    llm = LLM(str(write(tmp_path, "bd3lm")))
    asked: dict[str, Any] = {"max_tokens": 24, "seed": 3, "temperature": 1.0}
    [cached] = llm.generate("abcde", SamplingParams(**asked))
    [plain] = llm.generate("abcde", SamplingParams(**asked, cache="none"))
    assert cached.outputs[0].token_ids == plain.outputs[0].token_ids
    assert cached.outputs[0].score.value == pytest.approx(plain.outputs[0].score.value, abs=1e-5)
    assert cached.usage.nfe_computed < 0.7 * plain.usage.nfe_computed


def test_options_that_nothing_here_heeds_are_refused(folder: Path) -> None:
    with pytest.raises(InputError, match="does not heed quantization: leave it out"):
        LLM(str(folder), quantization="int4")


def test_leave_one_out_is_compared_on_scores_that_it_would_have_by_hand(
    capsys: pytest.CaptureFixture[str],
) -> None:
    right, wrong = np.array([0.0, 1.0, 2.0, 2.0]), np.array([1.0, 2.0, 0.5])
    wins = [(a > b) + (a == b) / 2 for a in right for b in wrong]
    assert auroc(right, wrong) == pytest.approx(np.mean(wins))
    network = Network(13).double()
    texts = [coded((10 + i, 20), 30 + i) for i in range(3)]
    by_hand = scores(network, texts, "dise", -math.log(1 + 13 * 4))
    np.testing.assert_allclose(scores(network, texts, "loo", 0.0), by_hand, rtol=1e-5)
    main(2, num_problems=20)
    rows = [line.split() for line in capsys.readouterr().out.splitlines()]
    assert [row[0] for row in rows] == ["dise"] * 2 + ["loo"] * 4
    assert all(0 < float(row[-3]) < 1 for row in rows[:2])
