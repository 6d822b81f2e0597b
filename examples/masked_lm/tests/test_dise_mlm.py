"""The adapter keeps DiSE's promises on a tiny BERT, and claims nothing else."""

from pathlib import Path

import pytest
import torch
from dise_mlm import MaskedLM
from transformers import BertConfig, BertForMaskedLM, BertTokenizer

from dise_core import EngineConfig
from dise_core.testing import check_claims, check_mask_predictor


@pytest.fixture
def folder(tmp_path: Path) -> str:
    names = ["[PAD]", "[UNK]", "[CLS]", "[SEP]", "[MASK]", *"abcdefghijklmnopqrstuvwxyz"]
    BertTokenizer(vocab={name: i for i, name in enumerate(names)}).save_pretrained(tmp_path)
    torch.manual_seed(0)
    sizes = {"hidden_size": 32, "num_hidden_layers": 2, "num_attention_heads": 2}
    config = BertConfig(vocab_size=len(names), intermediate_size=48, **sizes)
    BertForMaskedLM(config).save_pretrained(tmp_path)
    return str(tmp_path)


def test_the_predictor_conforms(folder: str) -> None:
    check_mask_predictor(MaskedLM.load(folder, EngineConfig()))


def test_it_claims_its_own_models_alone(folder: str) -> None:
    check_claims(MaskedLM, claimed=[folder], not_claimed=["countdown", "http://127.0.0.1:8000"])
