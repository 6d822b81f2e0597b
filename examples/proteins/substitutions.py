"""What each single substitution does to a protein, by how much likelier than the residue that
stands there an ESM finds it: read as it is, in one pass (wild-type marginals), and with each
residue masked in turn (masked marginals). Source: Meier et al. 2021. Without a model: a small one
of random weights, whose picture says nothing of proteins. The last command was not run here, for
want of the weights.

pip install '.[eval]'
python examples/proteins/substitutions.py --picture random.png
python examples/proteins/substitutions.py facebook/esm2_t6_8M_UR50D --picture effects.png
"""

from __future__ import annotations

import argparse
import tempfile
from collections.abc import Mapping, Sequence
from pathlib import Path

import numpy as np
import numpy.typing as npt

from dise_core import LLM, Plan, Read, Reading, TopLogProbs

ACIDS = "ACDEFGHIKLMNPQRSTVWY"
UBIQUITIN = "MQIFVKTLTGKTITLEVEPSDTIENVKAKIQDKEGIPPDQQRLIFAGKQLEDGRTLSDYNIQKESTLHLVLRLRGG"

Effects = npt.NDArray[np.float32]
"""log p(substitute) - log p(wild type) in nats: of each of ACIDS at each residue, [20, L]."""


def effects(llm: LLM, protein: str, masked: bool = False) -> Effects:
    """Return all substitutions' effects; masked: with the residue hidden, in L passes."""
    encode, mask = llm.predictor.tokenizer.encode, llm.predictor.info.mask_token_id
    assert mask is not None, f"{llm.predictor.info.name} has no mask token"
    ids, acids = encode(protein), tuple(encode(ACIDS).tolist())
    places = np.arange(len(ids))
    text = np.where(np.eye(len(ids), dtype=bool), mask, ids) if masked else ids[None]
    of_text = np.split(places, len(text))  # each at its mask, or all at once
    reads = [
        Read(row, at, TopLogProbs(1, acids, ids[at])) for row, at in zip(text, of_text, strict=True)
    ]
    [outcome] = llm.run([asking(reads)])
    logprobs = np.concatenate([reading.logprobs for reading in outcome.unwrap()])
    return np.transpose(logprobs[:, 1:-1] - logprobs[:, -1:])  # the first is the likeliest token's


def asking(reads: Sequence[Read]) -> Plan[Sequence[Reading]]:
    """Return what the model says to the reads, in batches of the engine's."""
    return (yield reads)


def draw(protein: str, ways: Mapping[str, Effects], path: Path) -> None:
    """Draw a heat map for each way, red where the model prefers the substitute."""
    from matplotlib.figure import Figure

    figure = Figure(figsize=(2 + 0.12 * len(protein), 4 * len(ways)), layout="constrained")
    limit = max(float(np.abs(values).max()) for values in ways.values())
    for axes, (name, values) in zip(figure.subplots(len(ways)), ways.items(), strict=True):
        image = axes.imshow(values, cmap="RdBu_r", vmin=-limit, vmax=limit, aspect="auto")
        axes.set_title(name)
        axes.set_xticks(range(len(protein)), protein, fontsize=6)
        axes.set_yticks(range(len(ACIDS)), ACIDS, fontsize=6)
    figure.colorbar(image, ax=figure.axes, label="log p(substitute) - log p(wild type), nats")
    figure.savefig(path, dpi=150)


def write_random(folder: Path) -> None:
    """Write an ESM of two layers and random weights, in the published form."""
    import torch
    from transformers import EsmConfig, EsmForMaskedLM, EsmTokenizer

    names = [
        "<cls>",
        "<pad>",
        "<eos>",
        "<unk>",
        *"LAGVSERTIDPKQNFYMHWCXBUZO.-",
        "<null_1>",
        "<mask>",
    ]
    (folder / "vocab.txt").write_text("\n".join(names))
    EsmTokenizer(str(folder / "vocab.txt")).save_pretrained(folder)
    torch.manual_seed(0)
    config = EsmConfig(
        vocab_size=len(names), mask_token_id=len(names) - 1, pad_token_id=1, hidden_size=32,
        num_hidden_layers=2, num_attention_heads=2, intermediate_size=64, token_dropout=True,
        position_embedding_type="rotary", initializer_range=0.3,
    )  # fmt: skip
    EsmForMaskedLM(config).save_pretrained(folder)


def main() -> None:
    """Draw the picture that the command line asks for."""
    parser = argparse.ArgumentParser(description=__doc__.partition("\n\n")[0])
    parser.add_argument("model", nargs="?", help="an ESM: a folder, or a name on the hub")
    parser.add_argument("--protein", default=UBIQUITIN)
    parser.add_argument("--picture", type=Path, required=True)
    args = parser.parse_args()
    with tempfile.TemporaryDirectory() as folder:
        if args.model is None:
            write_random(Path(folder))
        llm = LLM(args.model or folder)
        ways = {
            "wild-type marginals, one pass": effects(llm, args.protein),
            "masked marginals, a pass each": effects(llm, args.protein, masked=True),
        }
    draw(args.protein, ways, args.picture)


if __name__ == "__main__":
    main()
