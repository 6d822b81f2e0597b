"""The embedded models, small ones that solve Countdown or word problems: with them
everything runs without a download.

Each folder holds a checkpoint in its family's own format and its card, README.md;
examples/embedded_models trains them.
"""

from pathlib import Path
from typing import ClassVar, Self

from dise_adapters.checkpoint.hub import ModelFiles
from dise_adapters.embedded.tokenizer import ShippedTokenizer
from dise_adapters.families.llada import LLADA
from dise_adapters.families.sdar import SDAR
from dise_adapters.predictor import CheckpointPredictor
from dise_core import EngineConfig, Ids, InputError

ABILITY = (
    "this model solves problems such as '83,18,75 -> 10' and knows nothing else; the model "
    "word-problems answers such as 'How many legs do three spiders have?'; to talk, take another, "
    "such as dllm-hub/Qwen3-0.6B-diffusion-mdlm-v0.1"
)
"""The warning for a Countdown model that is given another text."""


class CountdownTokenizer(ShippedTokenizer):
    """The Countdown models' tokenizer, whose refusals say what the models can do."""

    def encode(self, text: str) -> Ids:
        try:
            return super().encode(text)
        except InputError as error:
            raise InputError(f"{error}: {ABILITY}", error.parameter) from None


class EmbeddedPredictor(CheckpointPredictor):
    """A model that ships with the package, loaded by its name."""

    name: ClassVar[str]
    tokenizer_kind = ShippedTokenizer
    checked_on = "its own"
    trained_on = "finished texts too"

    @classmethod
    def folder(cls) -> Path:
        return Path(__file__).with_name(cls.name.replace("-", "_"))

    @classmethod
    def claims(cls, model: str, revision: str | None = None) -> bool:  # noqa: ARG003
        return model == cls.name

    @classmethod
    def load(cls, model: str, config: EngineConfig) -> Self:
        if not cls.claims(model):
            raise InputError(
                f"adapter {cls.name!r} loads the model {cls.name!r} alone, not {model!r}", "adapter"
            )
        predictor = cls(ModelFiles.within(cls.folder()), str(model), config)
        predictor.calibration_files = sorted(cls.folder().glob("calibration*.json"))
        return predictor


class CountdownPredictor(EmbeddedPredictor):
    """The embedded model with full attention, in LLaDA's format."""

    family = LLADA
    name = "countdown"
    tokenizer_kind = CountdownTokenizer


class CountdownBlocksPredictor(EmbeddedPredictor):
    """The embedded block diffusion model, in SDAR's format."""

    family = SDAR
    name = "countdown-blocks"
    tokenizer_kind = CountdownTokenizer


class WordProblemsPredictor(EmbeddedPredictor):
    """The embedded model of word problems of one step, in LLaDA's format."""

    family = LLADA
    name = "word-problems"
