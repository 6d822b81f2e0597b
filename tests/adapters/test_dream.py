"""The Dream adapter against an independent Dream: logits, the sampler, the tokenizer without remote
code.
"""

from pathlib import Path

import numpy as np
import pytest

from dise_core import LLM, SamplingParams
from dise_core.noise import Noise
from tests.adapters.agreement import assert_agrees, random_texts
from tests.reference_dream import IM_END, MASK, PAD, ReferenceDream, naive_sample, write_checkpoint
from tests.tiny_format import edit

Models = tuple[LLM, ReferenceDream]

PROMPTS = [np.random.default_rng(n).integers(0, 60, n).tolist() for n in (3, 5, 8, 17)]
TIMED = {"eps": 1e-3}
PARAMS = SamplingParams(max_tokens=16, block_length=16, steps=12, seed=6, unmasking_settings=TIMED)


@pytest.fixture(scope="module")
def models(tmp_path_factory: pytest.TempPathFactory) -> Models:
    folder = write_checkpoint(tmp_path_factory.mktemp("dream"))
    return LLM(str(folder)), ReferenceDream(folder)


@pytest.mark.parametrize(
    "changes", [{}, {"num_key_value_heads": 4}, {"rope_theta": 10000.0, "num_hidden_layers": 3}]
)
def test_logits_agree_with_an_independent_dream(tmp_path: Path, changes: dict[str, object]) -> None:
    folder = write_checkpoint(tmp_path, 0.7, **changes)
    assert_agrees(LLM(str(folder)), ReferenceDream(folder), random_texts(60, 1, 2, 9, 40, 96))


@pytest.mark.parametrize(
    ("steps", "temperature", "top_p"),
    [
        *((steps, 0.0, 1.0) for steps in (5, 12, 16, 24)),
        (12, 0.0, 0.9),
        (12, 0.2, 0.95),
        (12, 0.2, 0.7),
        (12, 1.0, 0.9),
        (12, 1.0, 1.0),
    ],
)
@pytest.mark.parametrize(
    ("alg", "unmasking"),
    [("maskgit_plus", "low-confidence"), ("topk_margin", "margin"), ("entropy", "entropy")],
)
def test_sampling_writes_what_the_published_sampler_writes_of_the_same_uniform_numbers(
    models: Models, alg: str, unmasking: str, steps: int, temperature: float, top_p: float
) -> None:
    llm, reference = models
    settings = {"unmasking": unmasking, "temperature": temperature, "top_p": top_p, "steps": steps}
    answers = llm.generate(PROMPTS, PARAMS.model_copy(update=settings))
    for prompt, answer in zip(PROMPTS, answers, strict=True):
        noise = Noise.for_request(6, np.array(prompt), 0)
        expected = naive_sample(
            reference, prompt, 16, steps, alg, 1e-3, temperature, top_p,
            lambda step, at, n=noise: n.at_step(step).uniforms(at),
        )  # fmt: skip
        assert [*prompt, *answer.outputs[0].token_ids] == expected


def test_the_order_before_temperature_and_top_p_is_another_one(models: Models) -> None:
    """What the test above would not notice: that both orders commit the same."""
    llm, _ = models
    drawn = PARAMS.model_copy(update={"unmasking": "entropy", "temperature": 0.2, "top_p": 0.95})
    texts = []
    for tempered in (None, True, False):
        params = drawn.model_copy(
            update={"unmasking_settings": TIMED | {"tempered_confidence": tempered}}
        )
        texts.append([answer.outputs[0].token_ids for answer in llm.generate(PROMPTS, params)])
    assert texts[0] == texts[1]
    assert sum(one != other for one, other in zip(texts[0], texts[2], strict=True)) >= 3


def test_the_tokenizer_and_its_special_tokens_need_no_remote_code(models: Models) -> None:
    predictor = models[0].predictor
    tokenizer, special = predictor.tokenizer, predictor.info.special
    assert (special.mask_id, special.eos_ids, special.eos_id) == (MASK, {PAD, IM_END}, PAD)
    assert tokenizer.encode("abc<|mask|>").tolist() == [26, 2, MASK]
    assert tokenizer.decode(np.array([26, 2, PAD])) == "abc"
    assert tokenizer.has_chat_template
    chat = tokenizer.encode_chat([{"role": "user", "content": "ab"}])
    assert tokenizer.token_text(int(chat[0])) == "<|im_start|>"
    assert IM_END in chat
    assert tokenizer.decode(chat) == "user\nab\nassistant\n"


def test_without_num_key_value_heads_every_head_has_its_own(tmp_path: Path) -> None:
    folder = write_checkpoint(tmp_path, 0.7, num_attention_heads=4, num_key_value_heads=4)
    reference = ReferenceDream(folder)
    edit(folder / "config.json", num_key_value_heads=None)
    assert_agrees(LLM(str(folder)), reference, random_texts(60, 20))
