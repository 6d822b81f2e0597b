"""Masked language models: BERT and its kin, proteins' ESM, and ModernBERT that chats."""

from dise_adapters.families.family import Family
from dise_adapters.families.names import architectures
from dise_core.records import JsonFields

CLASSES = {
    "albert": "Albert", "bert": "Bert", "camembert": "Camembert",
    "data2vec-text": "Data2VecText", "deberta": "Deberta", "deberta-v2": "DebertaV2",
    "distilbert": "DistilBert", "electra": "Electra", "ernie": "Ernie", "esm": "Esm",
    "eurobert": "EuroBert", "gte": "Gte", "ibert": "IBert",
    "jina_embeddings_v3": "JinaEmbeddingsV3", "megatron-bert": "MegatronBert",
    "mobilebert": "MobileBert", "modernbert": "ModernBert", "mpnet": "MPNet",
    "nomic_bert": "NomicBert", "rembert": "RemBert", "roberta": "Roberta",
    "roberta-prelayernorm": "RobertaPreLayerNorm", "roformer": "RoFormer",
    "xlm-roberta": "XLMRoberta", "xlm-roberta-xl": "XLMRobertaXL", "xmod": "Xmod",
}  # fmt: skip
"""The classes of transformers' AutoModelForMaskedLM that answer in a batch as alone, without
their ForMaskedLM, by model type. Others mix tokens with padding (ConvBERT, FNet, Nystroemformer,
YOSO, MRA), pad by themselves (BigBird, Longformer), write by a decoder (BART, mBART, MVP) or read
more than text (LayoutLM, LUKE, TAPAS).
"""

ARCHITECTURES = tuple(f"{name}ForMaskedLM" for name in CLASSES.values())

COUNTS_BEHIND = (
    "camembert", "data2vec-text", "esm", "ibert", "mpnet", "roberta", "roberta-prelayernorm",
    "xlm-roberta", "xlm-roberta-xl", "xmod",
)  # fmt: skip
"""Model types that number tokens from behind the padding's id, 1 where config.json has none."""


def reserved(fields: JsonFields) -> int:
    """Return how many of the numbered positions come before a text's first token."""
    if fields.get("model_type") not in COUNTS_BEHIND:
        return 0
    padding = fields.get("pad_token_id")
    return 1 + (padding if isinstance(padding, int) else 1)


def obstacle(fields: JsonFields, model: str) -> str | None:  # noqa: ARG001
    """Return why a model of these types predicts no masked tokens; else None."""
    model_type, names = str(fields.get("model_type")), architectures(fields)
    if model_type not in CLASSES:
        return None
    if names and not set(names) & set(ARCHITECTURES):
        return (
            f"{names[0]} has no head that predicts masked tokens, as a sentence encoder has none: "
            f"name a checkpoint of {model_type} for masked language modelling"
        )
    if fields.get("is_decoder") is True:
        return "is_decoder is true, so that tokens see only those before them"
    return None


MASKED_LM = Family(
    about="BERT and its kin, ESM, and ModernBERT that chats.",
    example="google-bert/bert-base-uncased",
    architectures=ARCHITECTURES,
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
