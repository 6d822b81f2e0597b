"""Masked language models: BERT and its kin, proteins' ESM, and ModernBERT that chats."""

from collections.abc import Mapping

from dise_adapters.families.family import Family
from dise_adapters.families.names import architectures
from dise_core.records import JsonFields

CLASSES = (
    "AlbertForMaskedLM", "BertForMaskedLM", "DebertaV2ForMaskedLM", "DistilBertForMaskedLM",
    "ElectraForMaskedLM", "EsmForMaskedLM", "ModernBertForMaskedLM", "RobertaForMaskedLM",
    "XLMRobertaForMaskedLM",
)  # fmt: skip
"""Those of transformers' AutoModelForMaskedLM that are checked here."""

COUNTS_BEHIND: Mapping[str, int] = {"esm": 1, "roberta": 1, "xlm-roberta": 1}
"""Model types that number tokens from behind the padding's id, and what that is where
config.json has none.
"""

MODEL_TYPES = {
    "albert", "bert", "deberta-v2", "distilbert", "electra", "esm", "modernbert", "roberta",
    "xlm-roberta",
}  # fmt: skip


def reserved(fields: JsonFields) -> int:
    """Return how many of the numbered positions come before a text's first token."""
    padding = COUNTS_BEHIND.get(str(fields.get("model_type")))
    if padding is None:
        return 0
    given = fields.get("pad_token_id")
    return 1 + (given if isinstance(given, int) else padding)


def obstacle(fields: JsonFields, model: str) -> str | None:  # noqa: ARG001
    """Return why a model of these types predicts no masked tokens; else None."""
    model_type, names = str(fields.get("model_type")), architectures(fields)
    if model_type not in MODEL_TYPES:
        return None
    if names and not set(names) & set(CLASSES):
        return (
            f"{names[0]} has no head that predicts masked tokens, as a sentence encoder has none: "
            f"name a checkpoint of {model_type} for masked language modelling"
        )
    if fields.get("is_decoder") is True:
        return "is_decoder is true, so that tokens see only those before them"
    return None


MASKED_LM = Family(
    about="A masked language model: BERT, RoBERTa, DeBERTa, ELECTRA's generator, ESM, ModernBERT.",
    example="google-bert/bert-base-uncased",
    architectures=CLASSES,
    model_class="AutoModelForMaskedLM",
    head=r"^(cls|decoder|generator_\w+|head|lm_head|lm_predictions|predictions|vocab_\w+)\.",
    unused=(
        r"\.pooler\.|^cls\.seq_relationship\.|^sop_classifier\.|\.contact_head\."
        r"|\.position_ids$|\.inv_freq$"
    ),
    mask_tokens=("[MASK]", "<mask>"),
    end_tokens=("[/Answer]", "[SEP]"),
    tokenizer_class="AutoTokenizer",
    is_framed=True,
    reserved=reserved,
    obstacle=obstacle,
)
