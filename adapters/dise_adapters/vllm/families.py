"""The families of a catalog, and those that vLLM runs with a model class of its own."""

from collections.abc import Iterator

from dise_adapters.families.blocks import shown
from dise_adapters.families.family import Family
from dise_adapters.predictor import CheckpointPredictor
from dise_core import Attention, Bidirectional, Canvases, Causal, InputError, PluginError
from dise_core.plugins.catalog import Catalog
from dise_core.records import JsonFields

MODELS = {
    "LlamaForCausalLM": "vllm.model_executor.models.llama",
    "Qwen2ForCausalLM": "vllm.model_executor.models.qwen2",
    "Qwen3ForCausalLM": "vllm.model_executor.models.qwen3",
}
"""The modules of vLLM's own classes, which are named as transformers'."""


def predictors(catalog: Catalog) -> Iterator[type[CheckpointPredictor]]:
    """Yield the predictor classes of a catalog's families, those of plugins first."""
    entries = catalog.mask_predictors.values()
    for entry in sorted(entries, key=lambda entry: entry.is_built_in):
        try:
            predictor = entry.load()
        except PluginError:  # `dise plugins` names it
            continue
        if issubclass(predictor, CheckpointPredictor):
            yield predictor


def runnable(catalog: Catalog) -> Iterator[Family]:
    """Yield the families that vLLM has a class for and that may be bidirectional."""
    return filter(_is_runnable, (predictor.family for predictor in predictors(catalog)))


def _is_runnable(family: Family) -> bool:
    is_named = bool(family.architectures and family.translate)
    return is_named and family.may_be_bidirectional and family.model_class in MODELS


def refuse_unrunnable(family: Family, attention: Attention, name: str) -> None:
    """Raise InputError for a diffusion model that vLLM would not run, or run wrongly."""
    if isinstance(attention, Causal):
        return
    if isinstance(attention, Canvases):
        raise InputError(
            f"{name} is read in canvases, which our plugin does not run inside vLLM: start `vllm "
            "serve` and give its address as the model, or take the transformers engine.",
            "engine",
        )
    if not isinstance(attention, Bidirectional):
        raise InputError(
            f"{name} reads {shown(attention)}, and vLLM has no such attention: it needs the "
            "transformers engine",
            "engine",
        )
    if not _is_runnable(family):
        raise InputError(
            f"{name} is of a format that vLLM has no class for ({family.about.rstrip('.')}): it "
            "needs the transformers engine",
            "engine",
        )


def predictor_for(
    catalog: Catalog, fields: JsonFields, model: str
) -> type[CheckpointPredictor] | None:
    """Return the predictor class of the family of a config.json, if there is one."""
    classes = predictors(catalog)
    return next((kind for kind in classes if kind.family.matches(fields, model)), None)
