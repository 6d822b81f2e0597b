"""The conformance check of engines."""

import gc
from collections import Counter
from contextlib import suppress
from typing import Any

from dise_core.errors import InputError
from dise_core.front.llm import LLM
from dise_core.models.backend import Backend, Reader
from dise_core.params.base import Params
from dise_core.params.engine import EngineConfig
from dise_core.testing.predictors import check_mask_predictor
from dise_core.testing.promises import expect
from dise_core.testing.rows import ReferenceLogits


def check_engine(
    engine: type[Backend[Any]],
    model: str,
    options: Params | None = None,
    tolerance: float = 1e-4,
    *,
    logits: ReferenceLogits | None = None,
) -> None:
    """Check that each option of the engine's own has a default, a name that EngineConfig
    has not, and a type of which wrong values are refused before anything loads; that the
    model, a name or a folder, passes check_mask_predictor; and that closing frees it.

    options: of the engine's own. tolerance, logits: as in check_mask_predictor.
    """
    for name, field in engine.options.model_fields.items():
        promise = f"the option {name!r} is one of EngineConfig's: it needs another name"
        expect(name not in EngineConfig.model_fields, promise)
        expect(not field.is_required(), f"the option {name!r} must have a default")
        with suppress(InputError):
            engine.check(EngineConfig.model_validate({name: object()}))
            raise AssertionError(f"a wrong value of the option {name!r} must be refused")
    opened: list[type] = []

    class EngineUnderTest(engine):  # type: ignore[valid-type, misc]
        @classmethod
        def open(cls, checkpoint: Any, config: EngineConfig) -> Reader:
            reader: Reader = super().open(checkpoint, config)
            opened.append(type(reader))
            return reader

    before, own = _alive(), options or engine.options()
    name = EngineUnderTest.__name__
    with LLM(model, plugins=[EngineUnderTest], engine=name, engine_options=own) as llm:
        check_mask_predictor(llm.planner.predictor, tolerance, logits=logits)
    expect(len(opened) > 0, f"the engine must open the model {model!r}, and does not")
    is_freed = _alive()[opened[0]] <= before[opened[0]]
    expect(is_freed, "a closed model must be freed: the engine keeps its reader")


def _alive() -> Counter[type]:
    gc.collect()
    return Counter(map(type, gc.get_objects()))
