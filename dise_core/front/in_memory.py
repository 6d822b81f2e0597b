"""What makes an LLM, or an AsyncLLM, of a module that is in memory."""

from collections.abc import Callable, Sequence
from os import PathLike
from typing import Self, TypedDict, Unpack

from dise_core.errors import InputError
from dise_core.models.attention import BIDIRECTIONAL, Attention
from dise_core.models.backend import LoadedModule
from dise_core.models.info import AnswersFor
from dise_core.models.predictor import MaskPredictor
from dise_core.params.engine import Dtype
from dise_core.plans.outcome import Budget
from dise_core.plugins.catalog import Catalog
from dise_core.scoring.calibration import Calibration

Model = str | PathLike[str] | MaskPredictor | LoadedModule
"""A name, folder or hub id, a model that is loaded, or a module to be read as one."""


class ModuleOptions(TypedDict, total=False):
    """Options that load no model; `max_waiting` and `budget` are AsyncLLM's alone."""

    judge: Model | None
    catalog: Catalog | None
    plugins: Sequence[object]
    engine: str
    max_num_seqs: int
    max_batch_tokens: int
    judge_device: str | None
    judge_dtype: Dtype | None
    calibration: str | PathLike[str] | Calibration | None
    max_waiting: int
    budget: Budget | None


class FromModel:
    """Takes modules that are in memory, as a trainer's are."""

    @classmethod
    def from_model(
        cls,
        module: object,
        tokenizer: object,
        *,
        mask_id: int | None = None,
        max_length: int | None = None,
        answers_for: AnswersFor = "own",
        attention: Attention = BIDIRECTIONAL,
        **options: Unpack[ModuleOptions],
    ) -> Self:
        """Return the LLM of a module of torch or transformers, with its weights of the
        moment: what a trainer changes is in the next answer.

        tokenizer: a fast one of transformers, or a Tokenizer. mask_id, max_length (of a
        text, in tokens): where neither its config nor the tokenizer tells them.
        attention, answers_for, and how it is called: see dise_adapters.reader_of.
        options: see ModuleOptions. Raises InputError for what the module does not tell,
        or does not do, and for an option that loads a model.
        """
        for name in options.keys() - ModuleOptions.__annotations__.keys():
            raise InputError(f"from_model takes no {name:.80}, as it loads nothing.", name)
        fields = (mask_id, max_length, answers_for, attention)
        make: Callable[..., Self] = cls
        return make(LoadedModule(module, tokenizer, *fields), **options)
