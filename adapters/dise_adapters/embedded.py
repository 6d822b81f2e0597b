"""The embedded model, loaded by its name like any other LLaDA checkpoint."""

from __future__ import annotations

from typing import Self

from dise_adapters.families.countdown import FOLDER
from dise_adapters.families.llada import LLADA
from dise_adapters.predictor import CheckpointPredictor
from dise_core.errors import InputError
from dise_core.params import EngineConfig


class CountdownPredictor(CheckpointPredictor):
    """The embedded model, loaded like any other LLaDA checkpoint."""

    family = LLADA

    @classmethod
    def claims(cls, model: str, revision: str | None = None) -> bool:  # noqa: ARG003
        """Return whether `model` is "countdown"."""
        return model == "countdown"

    @classmethod
    def explain(cls, model: str, revision: str | None = None) -> str | None:  # noqa: ARG003
        """Return None: this adapter knows nothing but its own name."""
        return None

    @classmethod
    def load(cls, model: str, config: EngineConfig) -> Self:
        """Return the model that ships with the package. Raises InputError for any other name."""
        if not cls.claims(model):
            raise InputError(
                f"adapter 'countdown' loads the model 'countdown' alone, not {model!r}", "adapter"
            )
        return cls(FOLDER, model, config)
