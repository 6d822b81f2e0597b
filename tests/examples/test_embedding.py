"""The embedding examples do what they say."""

import asyncio

import numpy as np
import pytest
import torch
from embedding.own_loop import confidence, main
from embedding.service import serve
from transformers import LlamaConfig, LlamaForCausalLM


def test_a_loop_that_is_not_ours_gets_the_mean_log_probability(
    capsys: pytest.CaptureFixture[str],
) -> None:
    torch.manual_seed(1)
    shape = {
        "hidden_size": 32,
        "num_hidden_layers": 2,
        "num_attention_heads": 2,
        "intermediate_size": 64,
    }
    model = LlamaForCausalLM(LlamaConfig(vocab_size=50, is_causal=False, **shape)).eval()
    with torch.inference_mode():
        logprobs = torch.log_softmax(model(torch.tensor([[1, 2, 3, 4, 5]])).logits[0], dim=-1)
    expected = np.mean([float(logprobs[i, t]) for i, t in ((2, 3), (3, 4), (4, 5))])
    assert confidence(model, [1, 2], [3, 4, 5]) == pytest.approx(expected, abs=1e-5)
    main()
    assert float(capsys.readouterr().out) < 0


def test_the_service_answers_only_if_the_model_is_sure_enough() -> None:
    questions = ["83,18,75 -> 10", "76,41,59 -> 24"]
    assert asyncio.run(serve(questions, least=0.1)) == [None, None]
    texts = asyncio.run(serve(questions, least=-100.0))
    assert all(text is not None and "<answer>" in text for text in texts)
