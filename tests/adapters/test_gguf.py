"""Diffusion models in GGUF files answer as the same weights in safetensors."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest
from tokenizers import Tokenizer

from dise_adapters.checkpoint.gguf import GgufFile
from dise_adapters.checkpoint.gguf_tokenizer import gguf_tokenizer
from dise_adapters.plugin import FAMILIES
from dise_adapters.predictor import predictor_of
from dise_core import LLM, SamplingParams
from tests.adapters.agreement import ROUNDED, logprobs
from tests.gguf_files import LEARNED, MODELS, PLAIN, Tiny, convert

ROUNDING = {"F32": 1e-6, "F16": 0.02, "BF16": 0.06, "Q8_0": 0.2, "Q6_K": 0.5, "Q4_K": 2, "Q4_0": 2}
"""By how much a type may change a log-probability of these random weights, in the mean."""

TEXTS = (
    "It's 12,345 o'CLOCK: we'LL see\n\n  what {these} splits   do\r\n\r\n!",
    "Ångström e\u0301tude 日本語 größe\t\n \n return [name for name in self]",
    f"<|endoftext|>{PLAIN} a{PLAIN}b",
)


@pytest.fixture(params=MODELS)
def tiny(request: pytest.FixtureRequest) -> Tiny:
    return MODELS[request.param]


@pytest.mark.parametrize("kind", ROUNDING)
def test_the_answers_are_those_of_the_numbers_that_a_type_stands_for(
    tiny: Tiny, kind: str, tmp_path: Path
) -> None:
    path = tmp_path / "model.gguf"
    expected = convert(tiny, tiny.folder(tmp_path / "original"), path, kind)
    found = logprobs(LLM(str(path), dtype="float32"))
    assert np.abs(found - logprobs(LLM(str(expected), dtype="float32"))).max() < ROUNDED
    original = logprobs(LLM(str(tmp_path / "original"), dtype="float32"))
    assert np.abs(found - original).mean() < ROUNDING[kind]


def test_the_tokenizer_and_what_is_written_are_those_of_the_folder(
    tiny: Tiny, tmp_path: Path
) -> None:
    folder, path = tiny.folder(tmp_path / "original"), tmp_path / "model.gguf"
    convert(tiny, folder, path)
    claiming = [name for name, of in FAMILIES.items() if predictor_of(of).claims(str(path))]
    assert claiming == [tiny.name]
    ours, theirs = LLM(str(path), dtype="float32"), LLM(str(folder), dtype="float32")
    assert ours.predictor.info.special == theirs.predictor.info.special
    assert ours.predictor.info.max_length == theirs.predictor.info.max_length
    tokenizer, original = ours.predictor.tokenizer, theirs.predictor.tokenizer
    splits, others = (
        made.pre_tokenizer.pre_tokenize_str
        for made in (
            gguf_tokenizer(GgufFile.at(path).metadata).backend_tokenizer,
            Tokenizer.from_file(str(folder / "tokenizer.json")),
        )
    )
    for text in TEXTS:
        assert splits(text) == others(text)
        ids = original.encode(text)
        assert tokenizer.encode(text).tolist() == ids.tolist()
        assert tokenizer.decode(ids) == original.decode(ids)
    assert tokenizer.start_ids.tolist() == original.start_ids.tolist()
    for token in range(LEARNED + len(tiny.special) + 1):
        assert tokenizer.token_bytes(token) == original.token_bytes(token)
    chat = [{"role": "user", "content": "a b"}]
    assert tokenizer.chat_text(chat) == original.chat_text(chat)
    options = {"max_tokens": 16, "block_length": 8, "seed": 0, "temperature": 0.7}
    written, again = (llm.generate(["a b"], SamplingParams(**options)) for llm in (ours, theirs))
    assert written[0].outputs[0].token_ids == again[0].outputs[0].token_ids
