"""Masked language models: what is read of them is what transformers' own classes compute for each
token alone, and what is none is refused.
"""

from __future__ import annotations

import json
import shutil
import string
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
import transformers as hf
from safetensors.torch import load_file, save_file
from tokenizers.pre_tokenizers import ByteLevel
from transformers.models.auto.modeling_auto import MODEL_FOR_MASKED_LM_MAPPING_NAMES as MAPPING

from dise_adapters.families.masked_lm import ARCHITECTURES, CLASSES
from dise_core import LLM, InputError, Read, SamplingParams, ScoringParams, TokenLogProbs
from dise_core.errors import CheckpointError, UnknownNameError
from dise_core.testing import check_mask_predictor
from tests.commands import Dise
from tests.tiny_format import edit

pytestmark = pytest.mark.filterwarnings("ignore:`torch.jit.script` is deprecated")
"""As DeBERTa's module is imported."""

LETTERS = string.ascii_lowercase
SHAPE = {"hidden_size": 32, "num_hidden_layers": 2, "num_attention_heads": 2}
SIZES = SHAPE | {"intermediate_size": 48, "initializer_range": 0.3, "max_position_embeddings": 40}
ENGLISH = ["the cat sat on a mat.", "a dog's", "was it unbelievably hot, or not?"]
PROTEINS = ["MKTAYIAKQRQISFVKSHFSRQ", "AGV", "KQLSERTWC"]


def word_pieces(_: Path) -> Any:
    """Words of letters: whole for some, else in pieces."""
    names = ["[PAD]", "[UNK]", "[CLS]", "[SEP]", "[MASK]", *LETTERS, *(f"##{c}" for c in LETTERS)]
    names += [*".,'?", "the", "cat", "##ing", "##able"]
    return hf.BertTokenizer(vocab={name: i for i, name in enumerate(names)})


def bytes_alone(_: Path) -> Any:
    names = ["<s>", "<pad>", "</s>", "<unk>", *sorted(ByteLevel.alphabet()), "<mask>"]
    return hf.RobertaTokenizer(vocab={name: i for i, name in enumerate(names)}, merges=[])


def pieces(make: Callable[..., Any], *special: str) -> Callable[[Path], Any]:
    names = [*special, "▁", *LETTERS, *".,'?", *(f"▁{letter}" for letter in LETTERS)]
    return lambda _: make(vocab=[(name, 0.0 if name in special else -3.0) for name in names])


def residues(folder: Path) -> Any:
    """As the published ESMs have it: a vocab.txt and no tokenizer.json."""
    folder.mkdir()
    names = ["<cls>", "<pad>", "<eos>", "<unk>", *"LAGVSERTIDPKQNFYMHWCXBUZO.-", "<null_1>"]
    (folder / "vocab.txt").write_text("\n".join([*names, "<mask>"]))
    return hf.EsmTokenizer(str(folder / "vocab.txt"))


ESM = SIZES | {"mask_token_id": 32, "pad_token_id": 1}
MODELS: dict[str, tuple[Callable[[Path], Any], str, dict[str, Any]]] = {
    "bert": (word_pieces, "Bert", SIZES),
    "electra": (word_pieces, "Electra",
                SIZES | {"embedding_size": 16}),
    "distilbert": (word_pieces, "DistilBert",
                   {"dim": 32, "n_layers": 2, "n_heads": 2, "hidden_dim": 48,
                    "initializer_range": 0.3, "max_position_embeddings": 40}),
    "modernbert": (word_pieces, "ModernBert",
                   SIZES | {"pad_token_id": 0, "cls_token_id": 2, "bos_token_id": 2,
                            "sep_token_id": 3, "eos_token_id": 3}),
    "roberta": (bytes_alone, "Roberta", SIZES),
    "xlm-roberta": (pieces(hf.XLMRobertaTokenizer, "<s>", "<pad>", "</s>", "<unk>"),
                    "XLMRoberta", SIZES),
    "albert": (pieces(hf.AlbertTokenizer, "<pad>", "<unk>", "[CLS]", "[SEP]", "[MASK]"),
               "Albert", SIZES | {"embedding_size": 16}),
    "deberta-v2": (pieces(hf.DebertaV2Tokenizer, "[PAD]", "[CLS]", "[SEP]", "[UNK]"),
                   "DebertaV2",
                   SIZES | {"relative_attention": True, "pos_att_type": ["p2c", "c2p"],
                            "position_biased_input": False, "type_vocab_size": 0}),
    "esm": (residues, "Esm",
            ESM | {"position_embedding_type": "rotary", "token_dropout": True,
                   "emb_layer_norm_before": False}),
    "esm-1": (residues, "Esm",
              ESM | {"position_embedding_type": "absolute", "emb_layer_norm_before": True}),
}  # fmt: skip
AS_BERT = SIZES | {"pad_token_id": 0, "bos_token_id": 2, "eos_token_id": 3}
KIN: dict[str, dict[str, Any]] = {
    "Camembert": {}, "Data2VecText": {}, "Deberta": {}, "Ernie": {}, "Gte": {}, "IBert": {},
    "EuroBert": {"num_key_value_heads": 2, "mask_token_id": 4}, "JinaEmbeddingsV3": {},
    "MPNet": {"pad_token_id": 1}, "MegatronBert": {}, "NomicBert": {}, "RobertaPreLayerNorm": {},
    "MobileBert": {"embedding_size": 16, "intra_bottleneck_size": 16, "true_hidden_size": 16},
    "RemBert": {"input_embedding_size": 16, "output_embedding_size": 16},
    "RoFormer": {"embedding_size": 32}, "XLMRobertaXL": {},
    "Xmod": {"languages": ["en"], "default_language": "en"},
}  # fmt: skip
"""The family's other classes, and the fields in which they differ."""
ALL = MODELS | {name: (word_pieces, name, AS_BERT | fields) for name, fields in KIN.items()}
WITHOUT_SHADOWS = ("deberta-v2", "esm", "esm-1")
"""Those whose attention takes no mask of pairs, or whose positions cannot be given."""


class Plain:
    """A checkpoint as transformers has it, with a forward pass a token."""

    def __init__(self, name: str, folder: Path) -> None:
        make, called, fields = ALL[name]
        self.tokenizer = make(folder / "words")
        torch.manual_seed(0)
        config = getattr(hf, f"{called}Config")(vocab_size=len(self.tokenizer), **fields)
        self.model = getattr(hf, f"{called}ForMaskedLM")(config).eval()
        self.folder = folder / "model"
        self.tokenizer.save_pretrained(self.folder)
        self.model.save_pretrained(self.folder)

    def ids(self, text: str) -> list[int]:
        """Return the tokens of a text between the special ones."""
        return list(self.tokenizer(text)["input_ids"])

    def at(self, ids: list[int], place: int, hidden: list[int], **options: Any) -> float:
        """Return log p of the token at a place, where some are hidden."""
        masked = torch.tensor([ids])
        masked[0, hidden] = self.tokenizer.mask_token_id
        with torch.inference_mode():
            logits = self.model(masked, **options).logits[0, place]
        return float(logits.double().log_softmax(-1)[ids[place]])

    def shadow(self, ids: list[int], place: int) -> float:
        """Return log p of the token at a place under a mask behind the text, which nobody sees
        and which sees all but that token.
        """
        size = len(ids) + 1
        sees = torch.ones(size, size, dtype=torch.bool)
        sees[:, -1] = False
        sees[-1, place], sees[-1, -1] = False, True
        scores = torch.zeros(1, 1, size, size).masked_fill(~sees, torch.finfo(torch.float32).min)
        first = self.model.config.pad_token_id + 1 if ids[0] == 0 else 0  # as RoBERTa counts
        positions = torch.tensor([[*range(len(ids)), place]]) + first
        extended = torch.tensor([[*ids, self.tokenizer.mask_token_id]])
        with torch.inference_mode():
            logits = self.model(extended, attention_mask=scores, position_ids=positions).logits
        return float(logits[0, -1].double().log_softmax(-1)[ids[place]])

    def expected(
        self, text: str, scorer: str, k: int = 1, within_word: bool = False
    ) -> list[float]:
        """Return log p of each token, by one pass for each."""
        ids = self.ids(text)
        places, values = list(range(1, len(ids) - 1)), []
        word = self.tokenizer(text).word_ids() if within_word else list(range(len(ids)))
        for place in places:
            if scorer == "shadow":
                values.append(self.shadow(ids, place))
                continue
            hidden = [at for at in places if (at - place) % k == 0] if scorer != "dise" else []
            hidden += [at for at in places if at > place and word[at] == word[place]] * within_word
            values.append(self.at(ids, place, hidden))
        return values


@pytest.fixture(scope="module", params=MODELS)
def plain(request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory) -> Plain:
    folder: Path = tmp_path_factory.mktemp(request.param)
    built = Plain(request.param, folder)
    assert built.folder.is_dir()
    return built


@pytest.fixture(scope="module")
def bert(tmp_path_factory: pytest.TempPathFactory) -> Plain:
    return Plain("bert", tmp_path_factory.mktemp("bert"))


def scores(llm: LLM, texts: list[str], scorer: str, **settings: object) -> list[float]:
    params = ScoringParams(scorer=scorer, scorer_settings=settings, selector="full", logprobs=None)
    answers = llm.score([""] * len(texts), texts, params)
    return [answer.outputs[0].score.value for answer in answers]


@pytest.mark.parametrize(
    ("scorer", "settings"),
    [("dise", {}), ("shadow", {}), ("interleaved", {"k": 3}), ("interleaved", {"k": 1000})],
    ids=["dise", "shadow", "interleaved", "PLL"],
)
def test_scores_are_those_of_a_plain_loop_alone_and_in_a_batch(
    plain: Plain, scorer: str, settings: dict[str, int]
) -> None:
    llm = LLM(str(plain.folder))
    name = plain.model.config.model_type
    texts = PROTEINS if name == "esm" else ENGLISH
    if scorer == "shadow" and name in WITHOUT_SHADOWS:
        with pytest.raises(InputError, match="cannot read shadows of its tokens"):
            scores(llm, texts, scorer)
        return
    expected = [np.mean(plain.expected(text, scorer, **settings)) for text in texts]
    together = scores(llm, texts, scorer, **settings)
    alone = [scores(llm, [text], scorer, **settings)[0] for text in texts]
    assert together == pytest.approx(expected, abs=1e-5)
    assert alone == pytest.approx(expected, abs=1e-5)


def test_every_class_keeps_the_contract_of_a_predictor(plain: Plain) -> None:
    check_mask_predictor(LLM(str(plain.folder)).predictor)


@pytest.mark.parametrize("name", KIN)
def test_their_kin_keep_it_too_and_answer_as_transformers_does(tmp_path: Path, name: str) -> None:
    plain = Plain(name, tmp_path)
    llm = LLM(str(plain.folder))
    told = scores(llm, ENGLISH, "interleaved", k=3)
    expected = [np.mean(plain.expected(text, "interleaved", 3)) for text in ENGLISH]
    assert told == pytest.approx(expected, abs=1e-5)
    check_mask_predictor(llm.predictor)


def test_every_class_of_the_family_is_checked() -> None:
    checked = {f"{name}ForMaskedLM" for _, name, _ in ALL.values()}
    assert checked == set(ARCHITECTURES)
    named = {kind: f"{name}ForMaskedLM" for kind, name in CLASSES.items()}
    assert named.items() <= MAPPING.items()


def test_a_text_is_as_long_as_the_model_numbers_positions_and_no_longer(plain: Plain) -> None:
    llm = LLM(str(plain.folder))
    info = llm.predictor.info
    counted = 2 if plain.ids("A")[0] == 0 else 0  # <s> and <cls>, where padding is 1
    assert info.max_length == 40 - 2 - counted
    letter = "A" if plain.model.config.model_type == "esm" else "a"
    [token] = llm.predictor.tokenizer.encode(letter)
    ids = np.full(info.max_length, token)
    places = np.array([0, len(ids) - 1])
    [reading] = llm.predictor.read([Read(ids, places, TokenLogProbs(ids[places]))])
    first, last = plain.ids(letter)[0], plain.ids(letter)[-1]
    framed = [first, *ids.tolist(), last]
    expected = [plain.at(framed, place + 1, []) for place in places.tolist()]
    assert reading.logprobs == pytest.approx(expected, abs=1e-5)
    with pytest.raises(InputError, match=f"{len(ids) + 1} tokens"):
        llm.score([[]], [[*ids.tolist(), int(token)]])


def test_what_stands_around_a_text_is_neither_selected_nor_an_end(plain: Plain) -> None:
    predictor = LLM(str(plain.folder)).predictor
    text = "MKTA" if plain.model.config.model_type == "esm" else "a cat"
    ids = predictor.tokenizer.encode(text)
    assert ids.tolist() == plain.ids(text)[1:-1]
    assert predictor.tokenizer.decode(ids) == text
    assert len(predictor.tokenizer.start_ids) == 0
    assert not predictor.info.special.eos_ids
    [answer] = LLM(predictor).score([""], [text], ScoringParams(selector="full"))
    assert answer.outputs[0].token_ids == tuple(ids.tolist())


WORDS = ["the cat", "unbelievably", "cats", "a dog's", "singing", "washable, it", "it.", "why?"]


def sentences(count: int) -> list[str]:
    """Return random texts of words in one piece and in several, with marks between them."""
    random = np.random.default_rng(0)
    return [" ".join(random.choice(WORDS, random.integers(1, 5))) for _ in range(count)]


def test_pll_of_fifty_texts_is_that_of_the_papers_with_and_without_the_rest_of_a_word(
    bert: Plain,
) -> None:
    llm, texts, means = LLM(str(bert.folder)), sentences(50), []
    for settings in ({"k": 1000}, {"k": 1000, "within_word": True}):
        means.append([np.mean(bert.expected(text, "interleaved", **settings)) for text in texts])
        assert scores(llm, texts, "interleaved", **settings) == pytest.approx(means[-1], abs=1e-5)
    assert np.abs(np.subtract(*means)).max() > 1e-2


def renamed(folder: Path, change: Callable[[dict[str, torch.Tensor]], dict[str, Any]]) -> None:
    """Change the weights of a checkpoint's file, and their names."""
    file = folder / "model.safetensors"
    save_file(change(load_file(file)), file, {"format": "pt"})


def of_old(weights: dict[str, torch.Tensor]) -> dict[str, torch.Tensor]:
    """Return weights as the first BERTs have them, with a pooler and another head."""
    old = {"LayerNorm.weight": "LayerNorm.gamma", "LayerNorm.bias": "LayerNorm.beta"}
    named = {}
    for name, weight in weights.items():
        [suffix] = [new for new in old if name.endswith(new)] or [""]
        named[name.removesuffix(suffix) + old.get(suffix, "")] = weight
    assert named.keys() != weights.keys()
    return named | {
        "bert.pooler.dense.weight": torch.zeros(32, 32),
        "bert.embeddings.position_ids": torch.arange(40)[None],
        "cls.seq_relationship.weight": torch.zeros(2, 32),
    }


def test_weights_under_the_names_of_old_and_heads_that_are_not_read_change_nothing(
    tmp_path: Path,
) -> None:
    plain = Plain("bert", tmp_path)
    renamed(plain.folder, of_old)
    [told] = scores(LLM(str(plain.folder)), ["the cat"], "dise")
    assert told == pytest.approx(np.mean(plain.expected("the cat", "dise")), abs=1e-5)


def test_a_sentence_encoder_is_refused_in_one_sentence_before_it_is_loaded(tmp_path: Path) -> None:
    plain = Plain("bert", tmp_path)
    plain.model.bert.save_pretrained(plain.folder)
    for path in plain.folder.glob("*.safetensors"):
        path.write_bytes(b"not read")
    sentence = (
        "BertModel has no head that predicts masked tokens, as a sentence encoder has none: name "
        "a checkpoint of bert for masked language modelling"
    )
    with pytest.raises(UnknownNameError, match=sentence):
        LLM(str(plain.folder))
    with pytest.raises(CheckpointError, match=f"is refused: {sentence}"):
        LLM(str(plain.folder), adapter="masked-lm")


def test_a_body_without_its_head_is_refused_by_the_names_of_its_weights(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    plain = Plain("bert", tmp_path)
    renamed(plain.folder, lambda weights: {
        name: weight for name, weight in weights.items() if name.startswith("bert.")
    })  # fmt: skip
    monkeypatch.delattr(hf.BertForMaskedLM, "forward")
    with pytest.raises(CheckpointError, match="has no head that predicts tokens, as a sentence"):
        LLM(str(plain.folder))


def test_a_decoder_and_weights_in_a_pickle_are_refused(tmp_path: Path) -> None:
    plain = Plain("bert", tmp_path)
    edit(plain.folder / "config.json", is_decoder=True)
    with pytest.raises(UnknownNameError, match="is_decoder is true, so that tokens see only"):
        LLM(str(plain.folder))
    edit(plain.folder / "config.json", is_decoder=False)
    weights = load_file(plain.folder / "model.safetensors")
    (plain.folder / "model.safetensors").unlink()
    torch.save(weights, plain.folder / "pytorch_model.bin")
    with pytest.raises(CheckpointError, match="holds no weights in safetensors"):
        LLM(str(plain.folder))


def test_a_text_in_capitals_is_read_in_lower_case_and_an_unknown_letter_is_refused(
    bert: Plain,
) -> None:
    llm = LLM(str(bert.folder))
    assert scores(llm, ["The CAT"], "dise") == scores(llm, ["the cat"], "dise")
    with pytest.raises(InputError, match="the model's vocabulary has no"):
        scores(llm, ["the cat \N{SNOWMAN}"], "dise")


def test_a_gap_is_filled_with_the_likeliest_token_between_the_special_ones(bert: Plain) -> None:
    llm = LLM(str(bert.folder))
    [filled] = llm.fill(["the"], ["sat"], SamplingParams(max_tokens=1))
    ids = bert.ids("the sat")
    with torch.inference_mode():
        logits = bert.model(torch.tensor([[*ids[:2], 4, *ids[2:]]])).logits[0, 2].tolist()
    likeliest = max((value, at) for at, value in enumerate(logits) if at != 4)
    assert filled.outputs[0].token_ids == (likeliest[1],)


@pytest.mark.parametrize(("word", "text"), [("cat", "the cat sat"), ("##ing", "theing sat")])
def test_a_filled_gap_begins_a_word_or_goes_on_with_one(
    bert: Plain, dise: Dise, tmp_path: Path, word: str, text: str
) -> None:
    folder = shutil.copytree(bert.folder, tmp_path / "sure")
    weights = load_file(folder / "model.safetensors")
    weights["cls.predictions.bias"][bert.tokenizer.convert_tokens_to_ids(word)] = 99.0
    save_file(weights, folder / "model.safetensors", {"format": "pt"})
    for given in ("the {} sat", "the{} sat"):
        asked = "fill", given, "--model", folder, "--max-tokens", 1
        assert json.loads(dise(*asked, "--json").out)["text"] == text
        assert dise(*asked).out.startswith(text)
