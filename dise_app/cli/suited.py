"""Which scorer suits a model, by what it was trained on."""

from dise_app.terminal.lines import tell
from dise_core import LLM, SamplingParams, ScoringParams
from dise_core.params.base import Params


def suited_scorers(trained_on: str) -> dict[str, str]:
    """Return the scorer that suits generated answers and the one for given texts, by
    these words.
    trained_on: see MaskPredictor.
    """
    if trained_on == "next tokens":
        return {"given": "ar-perplexity"}
    if not trained_on or trained_on.startswith("masks alone"):
        return {"generated": "written", "given": "interleaved"}
    return dict.fromkeys(("generated", "given"), "dise")


def advise(llm: LLM, params: Params) -> None:
    """Print the name of a better scorer, for a model trained on masks alone where nobody
    chose one.
    """
    predictor = llm.predictor
    if not isinstance(params, ScoringParams) or "scorer" in params.model_fields_set:
        return
    if llm.planner.calibration is not None or not predictor.trained_on.startswith("masks alone"):
        return
    texts = "generated" if isinstance(params, SamplingParams) else "given"
    scorer = suited_scorers(predictor.trained_on)[texts]
    tell(
        f"{predictor.info.name} was trained on masks alone, so --scorer {scorer} tells more of "
        f"{texts} texts than {params.scorer}, the default; --scorer {params.scorer} ends this line"
    )
