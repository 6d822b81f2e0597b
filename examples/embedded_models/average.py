"""Average the weights of checkpoints of one run, which solves more than either of them.

python -m embedded_models.average --output ../adapters/dise_adapters/embedded/countdown second third
"""

from __future__ import annotations

import argparse
import shutil
from pathlib import Path

import torch
from safetensors.torch import load_file, save_file


def average(folders: list[Path], output: Path) -> None:
    """Write the mean of the checkpoints' weights, in bfloat16, with the other files of the first
    one.
    """
    weights = [load_file(folder / "model.safetensors") for folder in folders]
    mean = {
        name: torch.stack([each[name].float() for each in weights]).mean(0) for name in weights[0]
    }
    output.mkdir(parents=True, exist_ok=True)
    for file in folders[0].iterdir():
        if file.suffix != ".safetensors":
            shutil.copy(file, output)
    rounded = {name: weight.to(torch.bfloat16).contiguous() for name, weight in mean.items()}
    save_file(rounded, output / "model.safetensors", metadata={"format": "pt"})


def main() -> None:
    """Average the named folders."""
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--output", type=Path, required=True)
    parser.add_argument("checkpoints", type=Path, nargs="+")
    args = parser.parse_args()
    average(args.checkpoints, args.output)


if __name__ == "__main__":
    main()
