"""examples/proteins says of each substitution what transformers' own class says of it."""

import sys
from pathlib import Path

import pytest
import torch
import transformers as hf
from matplotlib.image import imread
from proteins import substitutions

from dise_core import LLM

PROTEIN = "MKTAYWCHQ"


@pytest.mark.parametrize("masked", [False, True], ids=["as it is", "masked"])
def test_an_effect_is_the_substitute_s_log_probability_beside_the_residue_s(
    tmp_path: Path, masked: bool
) -> None:
    substitutions.write_random(tmp_path)
    model = hf.EsmForMaskedLM.from_pretrained(tmp_path).eval()
    tokenizer = hf.EsmTokenizer.from_pretrained(tmp_path)
    found = substitutions.effects(LLM(str(tmp_path)), PROTEIN, masked)
    assert found.shape == (20, len(PROTEIN))
    for place, wild in enumerate(PROTEIN):
        ids = tokenizer(PROTEIN, return_tensors="pt")["input_ids"]
        if masked:
            ids[0, place + 1] = tokenizer.mask_token_id
        with torch.inference_mode():
            logits = model(ids).logits[0, place + 1]
        for acid, effect in zip(substitutions.ACIDS, found[:, place], strict=True):
            token, beside = tokenizer.convert_tokens_to_ids([acid, wild])
            assert effect == pytest.approx(float(logits[token] - logits[beside]), abs=1e-5)


def test_the_example_draws_both_ways(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    picture = tmp_path / "effects.png"
    monkeypatch.setattr(
        sys, "argv", ["substitutions.py", "--protein", PROTEIN, "--picture", str(picture)]
    )
    substitutions.main()
    pixels = imread(picture)
    red, blue = pixels[..., 0] - pixels[..., 2] > 0.3, pixels[..., 2] - pixels[..., 0] > 0.3
    for half in (slice(None, len(pixels) // 2), slice(len(pixels) // 2, None)):
        assert red[half].any()
        assert blue[half].any()
