"""The texts and bytes of single tokens, joined, are the text, whatever the tokenizer."""

from __future__ import annotations

from functools import cache
from typing import Any

import numpy as np
import pytest
from hypothesis import assume, given, settings
from hypothesis import strategies as st
from tokenizers import AddedToken, decoders, models, normalizers, pre_tokenizers, trainers
from tokenizers import Tokenizer as Backend
from transformers import PreTrainedTokenizerFast

from dise_adapters.checkpoint.tokenizer import FastTokenizer
from dise_app.server.choices import chat_logprobs, text_logprobs, text_tokens
from dise_core import LLM
from dise_core.arrays import Ids
from dise_core.models.info import ModelInfo
from dise_core.models.pieces import BROKEN, MAX_WAITING, pieces
from dise_core.params.requests import ScoringParams
from dise_core.plans.reading import Canvas, Read
from dise_core.plans.readouts import TokenLogProbs
from dise_core.sequence import SpecialTokens
from dise_core.testing import ToyPredictor
from dise_core.writing.canvas import CanvasStream

CORPUS = [
    "the naïve café déjà vu, don't",
    "日本語の文字 🙂🙃",
    "Привет, мир — всё",
    "e\u0301 👨‍👩‍👧 ½ ﷽",
] * 3
KINDS = ["byte-level", "sentencepiece", "wordpiece", "cleaned"]
ENDS = ["<end>", "<mask>"]


def backend(kind: str) -> Backend:
    """Return a tokenizer of that kind, trained on the corpus."""
    if kind == "byte-level":
        made = Backend(models.BPE())
        made.pre_tokenizer = pre_tokenizers.ByteLevel(add_prefix_space=False)
        made.decoder = decoders.ByteLevel()
        alphabet = pre_tokenizers.ByteLevel.alphabet()
        made.train_from_iterator(
            CORPUS, trainers.BpeTrainer(vocab_size=330, initial_alphabet=alphabet)
        )
    elif kind == "sentencepiece":
        words = ["▁the", "▁", "▁▁▁", "na", "ï", "ve", "▁c", "日本", "本", "don", "'", "t", "s"]
        letters = [*words, *(f"<0x{byte:02X}>" for byte in range(256))]
        vocabulary = {piece: index for index, piece in enumerate(letters)}
        made = Backend(models.BPE(vocabulary, [("n", "a")][:0], byte_fallback=True))
        made.normalizer = normalizers.Sequence(
            [normalizers.Prepend("▁"), normalizers.Replace(" ", "▁")]
        )
        made.decoder = decoders.Sequence(
            [
                decoders.Replace("▁", " "),
                decoders.ByteFallback(),
                decoders.Fuse(),
                decoders.Strip(" ", 1, 0),
            ]
        )
    else:
        made = Backend(models.WordPiece(unk_token="[UNK]"))
        made.pre_tokenizer = pre_tokenizers.BertPreTokenizer()
        made.decoder = decoders.WordPiece(cleanup=kind == "cleaned")
        made.train_from_iterator(
            CORPUS, trainers.WordPieceTrainer(vocab_size=150, special_tokens=["[UNK]"])
        )
    made.add_special_tokens([AddedToken(name, special=True) for name in ENDS])
    return made


@cache
def tokenizer(kind: str) -> FastTokenizer:
    return FastTokenizer(
        PreTrainedTokenizerFast(
            tokenizer_object=backend(kind), clean_up_tokenization_spaces=kind == "cleaned"
        )
    )


def size(kind: str) -> int:
    return len(tokenizer(kind)._tokenizer)


class Predictor(ToyPredictor):
    """A ToyPredictor of that tokenizer's vocabulary."""

    def __init__(self, kind: str) -> None:
        super().__init__(max_length=600)
        generator, count = np.random.default_rng(1), size(kind)
        end, mask = (tokenizer(kind).id_of(name) for name in ENDS)
        assert end is not None
        self.info = ModelInfo(kind, count, 600, SpecialTokens(mask, frozenset({end}), end))
        self.tokenizer = tokenizer(kind)  # type: ignore[assignment]
        self._embedding = generator.normal(size=(count, 16))
        self._head = generator.normal(size=(16, count))


@cache
def llm(kind: str) -> LLM:
    return LLM(Predictor(kind))


texts = st.text(st.characters(exclude_categories=["Cs"]), max_size=12) | st.lists(
    st.sampled_from([*CORPUS[:4], "é", "🙂", "日", "\ufffd", " ", "n't", " .", "\x00"]), max_size=6
).map("".join)


@pytest.mark.parametrize("kind", KINDS)
@given(data=st.data())
@settings(max_examples=40)
def test_the_pieces_of_any_tokens_joined_are_their_text(kind: str, data: st.DataObject) -> None:
    ids = np.array(data.draw(st.lists(st.integers(0, size(kind) - 1), max_size=40)), np.int64)
    found = pieces(tokenizer(kind), ids)
    assert len(found) == len(ids)
    assert "".join(found) == tokenizer(kind).decode(ids)


def spelt_by_bytes(parts: list[bytes]) -> list[str]:
    """Return, for each token's bytes, the text that they complete: the naive way."""
    found, waiting = [], b""
    for part in parts:
        waiting += part
        try:
            found.append(waiting.decode())
            waiting = b""
        except UnicodeDecodeError:
            found.append("")
    return found


def bytes_of(kind: str, token_id: int) -> bytes:
    name = tokenizer(kind)._tokenizer.convert_ids_to_tokens(token_id)
    if kind == "sentencepiece":
        is_byte = name.startswith("<0x")
        return bytes([int(name[3:5], 16)]) if is_byte else name.replace("▁", " ").encode()
    return bytes(GPT2_BYTES[letter] for letter in name)


PRINTED = [*range(33, 127), *range(161, 173), *range(174, 256)]
HIDDEN = [byte for byte in range(256) if byte not in PRINTED]
GPT2_BYTES = {chr(byte): byte for byte in PRINTED}
GPT2_BYTES |= {chr(256 + index): byte for index, byte in enumerate(HIDDEN)}
"""GPT-2's table: the letter that stands for each byte."""


@given(texts)
@settings(max_examples=50)
def test_a_byte_level_piece_is_what_its_bytes_complete(text: str) -> None:
    assume("<end>" not in text)  # a token of no bytes
    ids = tokenizer("byte-level").encode(text)
    parts = [bytes_of("byte-level", token_id) for token_id in ids.tolist()]
    assert b"".join(parts).decode() == text
    if BROKEN not in text:
        assert pieces(tokenizer("byte-level"), ids) == spelt_by_bytes(parts)


@given(st.text(st.sampled_from("théï 日本語🙂don'ts½"), min_size=1, max_size=14))
@settings(max_examples=50)
def test_a_sentencepiece_piece_keeps_its_space_and_its_character(text: str) -> None:
    ids = tokenizer("sentencepiece").encode(text)
    parts = [bytes_of("sentencepiece", token_id) for token_id in ids.tolist()]
    parts[0] = parts[0].removeprefix(b" ")
    assert pieces(tokenizer("sentencepiece"), ids) == spelt_by_bytes(parts)


def test_a_text_that_begins_with_spaces_keeps_the_pieces_behind_them() -> None:
    spelling = tokenizer("sentencepiece")
    names = ("▁▁▁", "▁the", "▁▁▁", "▁c")
    ids = np.array([spelling.id_of(name) for name in names], np.int64)
    assert pieces(spelling, ids) == ["  ", " the", "   ", " c"]


@pytest.mark.parametrize("kind", KINDS)
@given(data=st.data())
@settings(max_examples=15)
def test_tokens_and_bytes_of_an_answer_joined_are_its_text(kind: str, data: st.DataObject) -> None:
    response = data.draw(st.lists(st.integers(0, size(kind) - 2), min_size=1, max_size=30))
    params = ScoringParams(logprobs=2, selector="response")
    [answer] = llm(kind).score([[0]], [response], params)
    [output] = answer.outputs
    assert "".join(token.text for token in output.tokens if not token.is_end) == output.text
    tokens = text_tokens(output)
    told: Any = chat_logprobs(tokens)["content"]
    assert "".join(entry["token"] for entry in told) == output.text
    assert bytes(byte for entry in told for byte in entry["bytes"]).decode() == output.text
    for entry in told:
        for other in entry["top_logprobs"]:
            assert (other["bytes"] is None) == (BROKEN in other["token"])
    offsets: Any = text_logprobs(tokens)
    for text, start in zip(offsets["tokens"], offsets["text_offset"], strict=True):
        assert output.text[start:].startswith(text)


def shown(canvases: CanvasStream, read: Read, tokens: dict[int, str]) -> None:
    for update in canvases.updates([read]):
        assert not update.is_fresh or not tokens
        tokens |= {token.position: token.text for token in update.committed}


@given(st.permutations(range(len("日本 é🙂a".encode()))))
@settings(max_examples=40)
def test_characters_on_a_canvas_are_whole_once_all_their_tokens_are(order: list[int]) -> None:
    """One token for each byte, committed in any order."""
    table = {byte: letter for letter, byte in GPT2_BYTES.items()}
    text = "日本 é🙂a"
    names = [table[byte] for byte in text.encode()]
    ids = np.array([tokenizer("byte-level").id_of(name) for name in names], np.int64)
    predictor = llm("byte-level").predictor
    canvases, tokens = CanvasStream(predictor), dict[int, str]()
    canvas: Ids = np.full(len(ids), predictor.info.special.mask_id)
    for position in order:
        canvas[position] = ids[position]
        none = np.zeros(0, np.int64)
        read = Read(canvas.copy(), none, TokenLogProbs(none), canvas=Canvas(0, 0))
        shown(canvases, read, tokens)
    assert "".join(tokens[position] for position in range(len(ids))) == text


def test_tokens_whose_text_never_comes_do_not_wait_for_ever() -> None:
    """A decoder that no context explains costs no more than a window for each token."""
    asked: list[int] = []

    class Odd(FastTokenizer):
        def decode(self, ids: Ids) -> str:
            asked.append(len(ids))
            return "x" * len(ids) if len(ids) > MAX_WAITING * 4 else "y" * len(ids)

    odd = Odd(tokenizer("byte-level")._tokenizer)
    ids = np.full(500, tokenizer("byte-level").id_of("a"), np.int64)
    assert "".join(pieces(odd, ids)) == "x" * 500
    assert max(asked[1:]) <= 2 * MAX_WAITING + 2


def test_words_of_a_vocabulary_without_an_a_are_spelt_by_two_decodes(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    made = Backend(models.WordLevel({f"t{n}": n for n in range(9)}, unk_token="t0"))
    words = FastTokenizer(PreTrainedTokenizerFast(tokenizer_object=made))
    assert words.token_text(5) == " t5"
    ids, asked, decode = np.array([3, 5, 5, 8]), [], words.decode
    pieces(words, ids)  # as what single tokens spell is looked up once
    monkeypatch.setattr(words, "decode", lambda some: asked.append(len(some)) or decode(some))
    assert pieces(words, ids) == ["t3", " t5", " t5", " t8"]
    assert asked == [4, 1]
