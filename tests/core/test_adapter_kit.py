"""check_mask_predictor fails each adapter that is wrong, by the promise that it breaks, and
passes adapters that are right.
"""

from collections.abc import Callable, Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from dise_core import (
    LLM,
    BlockCausal,
    Candidates,
    Causal,
    Floats,
    Ids,
    InputError,
    Noise,
    Read,
    Reading,
    SpecialTokens,
    Tokenizer,
    TokenLogProbs,
    noise_levels,
)
from dise_core.models.attention import BIDIRECTIONAL, Attention
from dise_core.models.info import NoiseKind
from dise_core.testing import ToyPredictor, check_mask_predictor
from dise_core.testing.toy_model import END, MASK, SPECIAL, LetterTokenizer, Logits, naive_readout
from tests import reference_dream, reference_llada, reference_modernbert


class Changing(ToyPredictor):
    """Answers changed Reads."""

    def __init__(
        self, change: Callable[[Read], Read], attention: Attention = BIDIRECTIONAL
    ) -> None:
        super().__init__(attention=attention)
        self._change = change

    def read(self, reads: Sequence[Read]) -> list[Reading]:
        return super().read([self._change(read) for read in reads])


def unguided(read: Read) -> Read:
    return replace(read, guidance=None)


def unshadowed(read: Read) -> Read:
    return replace(read, shadow=False)


def unfinished(read: Read) -> Read:
    """Blocks are not completed."""
    return replace(read, is_complete=True)


class Unshifted(ToyPredictor):
    """Answers position i by the row for i - 1: the shift is forgotten."""

    def logits(self, ids: Ids) -> Logits:
        rows = super().logits(ids)
        return np.concatenate([rows[:1], rows[:-1]])


class Garbling(LetterTokenizer):
    def decode(self, ids: Ids) -> str:
        return super().decode((ids + 1) % 10)


class Starting(LetterTokenizer):
    def encode(self, text: str) -> Ids:
        return np.append(np.array([0]), super().encode(text))


class Showing(LetterTokenizer):
    def decode(self, ids: Ids) -> str:
        return "".join(map(self.token_text, ids.tolist()))


class Told(ToyPredictor):
    """A right network of which something else is told."""

    def __init__(
        self, tokenizer: Tokenizer | None = None, special: SpecialTokens = SPECIAL, **facts: Any
    ) -> None:
        super().__init__()
        self.tokenizer = tokenizer or self.tokenizer
        self.info = replace(self.info, special=special, **facts)


class Answering(ToyPredictor):
    """Changes each answer."""

    def __init__(self, change: Callable[[Read, Reading], Any]) -> None:
        super().__init__()
        self._change = change

    def read(self, reads: Sequence[Read]) -> list[Reading]:
        return [self._change(*pair) for pair in zip(reads, super().read(reads), strict=True)]


def to_half(_: Read, reading: Reading) -> Reading:
    return replace(reading, logprobs=reading.logprobs.astype(np.float16))


def to_list(_: Read, reading: Reading) -> Reading:
    return replace(reading, token_ids=reading.token_ids.tolist())


def shortened(_: Read, reading: Reading) -> Reading:
    return replace(reading, logprobs=reading.logprobs[:-1])


def to_bits(_: Read, reading: Reading) -> Reading:
    return replace(reading, logprobs=(reading.logprobs / np.log(2)).astype(np.float32))


def undefined(_: Read, reading: Reading) -> Reading:
    return replace(reading, logprobs=np.full_like(reading.logprobs, np.nan))


def untargeted(read: Read, reading: Reading) -> Reading:
    is_asked = isinstance(read.readout, TokenLogProbs)
    return replace(reading, token_ids=reading.token_ids[::-1]) if is_asked else reading


def tempered(read: Read, reading: Reading) -> Reading:
    if not isinstance(read.readout, Candidates):
        return reading
    return replace(reading, logprobs=reading.logprobs / read.readout.divisor)


def ascending(read: Read) -> Read:
    return replace(read, positions=np.sort(read.positions))


def overwritten(read: Read) -> Read:
    read.token_ids[-1] = 0
    return read


class Sorted(ToyPredictor):
    """Sorts texts by their lengths, and forgets to put the answers back."""

    def __init__(self, sign: int) -> None:
        super().__init__()
        self._sign = sign

    def read(self, reads: Sequence[Read]) -> list[Reading]:
        return super().read(sorted(reads, key=lambda read: self._sign * len(read.token_ids)))


class Restless(ToyPredictor):
    """Counts its calls."""

    def logits(self, ids: Ids) -> Logits:
        rows: Logits = super().logits(ids) * (1 + len(self.batches) / 100)
        return rows


class Mixing(ToyPredictor):
    """A text sees how many there are beside it."""

    def logits(self, ids: Ids) -> Logits:
        rows: Logits = super().logits(ids) * (1 + len(self.batches[-1]) / 100)
        return rows


class OneSided(ToyPredictor):
    """Attends to earlier tokens, and says that it attends to all."""

    def logits(self, ids: Ids) -> Logits:
        rows = [super(OneSided, self).logits(ids[: i + 1])[i] for i in range(len(ids))]
        return np.array(rows)


class Padded(ToyPredictor):
    """Pads a batch to its longest text, and attends to the padding."""

    def read(self, reads: Sequence[Read]) -> list[Reading]:
        longest = max(len(read.token_ids) for read in reads)
        padded = [
            replace(
                read,
                token_ids=np.append(
                    read.token_ids, np.zeros(longest - len(read.token_ids), np.int64)
                ),
                guidance=None,
            )
            for read in reads
        ]
        return super().read(padded)


@pytest.mark.parametrize(
    ("mutant", "promise"),
    [
        (Changing(unguided), r"guidance must make the logits u \+ \(s \+ 1\)\(c - u\)"),
        (Changing(unshadowed), "a shadow must be answered as if its position were masked"),
        (Unshifted(), "for the token AT i: .*, and are those of the position before"),
        (OneSided(), "position 0 must see the text's last token, .* attend causally"),
        (Told(Garbling()), "decode must return the text that encode was given"),
        (Told(Starting()), r"makes \[0\] of an empty text: a begin-of-text token belongs into"),
        (Told(Showing()), "decode must leave special tokens out, and shows the mask, 11, as '<ma"),
        (Told(special=SpecialTokens(3, frozenset({END}), END)), "the mask .* is the text 'd'"),
        (Told(special=SpecialTokens(MASK, frozenset({4}))), "the end token .* is the text 'e'"),
        (Told(vocab_size=MASK), r"the mask .*, 11, must be in the vocabulary, 0\.\.10"),
        (Told(vocab_size=14), "ids below vocab_size, 14: for 8 tokens with ids up to 13 it raised"),
        (Told(max_length=64), "a text of 64 tokens must be answered, as max_length is 64"),
        (Told(max_length=9**9), "a text of 4096 tokens must be answered, as max_length is 387"),
        (
            Answering(to_half),
            r"logprobs of TokenLogProbs must be .* float32 \[4\] .* float16 \[4\]",
        ),
        (Answering(to_list), "token_ids of TokenLogProbs must be a numpy array, int64 .*not list"),
        (Answering(shortened), r"must be a numpy array, float32 \[4\] .*, not float32 \[3\]"),
        (Answering(lambda _, reading: reading.logprobs), r"must return Readings, not array\("),
        (Answering(to_bits), "probabilities must sum to 1, .*: log-probabilities are natural log"),
        (Answering(undefined), "the model's logits at position 1 hold NaN or infinity"),
        (Answering(untargeted), "the token_ids that answer TokenLogProbs must be its targets"),
        (Answering(tempered), "log-probabilities of Candidates are those of the untempered"),
        (Changing(ascending), r"the order of the Read's positions, .* \[1 7 5 3\]"),
        (Changing(overwritten), "arrays of a Read unchanged, and overwrote its token_ids"),
        (Sorted(1), "read must answer in the order of the reads"),
        (Sorted(-1), "read must answer in the order of the reads"),
        (Restless(), "a read must get the same answer each time: log-probabilities differ"),
        (Mixing(), "alone and in a batch.* a text of the same length .* do rows see each other"),
        (Changing(unfinished, BlockCausal(4)), "must be read with end tokens up to the block"),
        (Padded(), "alone and in a batch: log-probabilities differ .* is padding attended to"),
    ],
)
def test_each_wrong_adapter_fails_by_the_promise_that_it_breaks(
    mutant: ToyPredictor, promise: str
) -> None:
    reference = ToyPredictor(attention=mutant.info.attention).logits
    with pytest.raises(AssertionError, match=promise):
        check_mask_predictor(mutant, logits=reference)


@pytest.mark.parametrize(
    ("field", "value", "promise"),
    [
        ("temperature", 0.0, "the temperature: the tokens"),
        ("allowed", (), "allowed: the tokens"),
        ("bias", (), "bias: the tokens"),
        ("unranked", (), "unranked: the confidences"),
        ("confidence", "probability", "confidence 'entropy': the confidences"),
        ("top_p", 1.0, "top_p: the tokens"),
        ("top_k", 0, "top_k: the tokens"),
        ("is_tempered", False, "is_tempered: the confidences"),
        ("forbidden", (MASK,), r"forbidden: the candidate \d is forbidden"),
        ("forbidden", (), "forbidden: the candidate 11 is forbidden"),
        ("noise", Noise(1), "the noise, whose seed changes no token: the tokens"),
    ],
)
def test_an_option_of_candidates_that_is_ignored_is_named(
    field: str, value: Any, promise: str
) -> None:
    def ignore(read: Read) -> Read:
        if not isinstance(read.readout, Candidates):
            return read
        return replace(read, readout=replace(read.readout, **{field: value}))

    with pytest.raises(AssertionError, match=f"Candidates must heed {promise}"):
        check_mask_predictor(Changing(ignore))


def test_a_mask_that_is_an_end_token_is_refused() -> None:
    problem = "token 3 cannot be both the mask and an end token: .* the model's own mask token"
    for ends, end in ((frozenset({2, 3}), 2), (frozenset[int](), 3)):
        with pytest.raises(InputError, match=problem):
            SpecialTokens(3, ends, end)


class Masked(ToyPredictor):
    """As MDLM: the mask is never the token, by zero probability."""

    abilities = frozenset({"shadow"})

    def logits(self, ids: Ids) -> Logits:
        rows = super().logits(ids)
        rows[:, MASK] = -np.inf
        return rows


class Ratios(ToyPredictor):
    """As SEDD: the noise is the share of masks, and it says nothing of a visible token."""

    abilities = frozenset()

    def logits(self, ids: Ids) -> Logits:
        rows: Logits = super().logits(ids) * (1 + float((ids == MASK).mean()))
        rows[ids != MASK] = 0.0
        return rows


class OneWay(ToyPredictor):
    """A causal model: the row before a position answers it."""

    abilities = frozenset()

    def __init__(self) -> None:
        super().__init__(attention=Causal())

    def logits(self, ids: Ids) -> Logits:
        rows = super().logits(ids)
        return np.concatenate([rows[:1], rows[:-1]])

    def read(self, reads: Sequence[Read]) -> list[Reading]:
        if any(0 in read.positions for read in reads):
            raise InputError("there is no answer for the first token of a text")
        return super().read(reads)


class Carrying(Masked):
    """As MDLM: where a token stands it is the only possible one, too."""

    abilities = frozenset()

    def logits(self, ids: Ids) -> Logits:
        rows = super().logits(ids)
        rows[:, ids[ids != MASK][-1:]] += 9.0  # what is likeliest stands in the text
        rows[(ids != MASK)[:, None] & (np.arange(len(self._embedding)) != ids[:, None])] = -np.inf
        return rows

    def _answer(self, read: Read) -> Reading:
        reading = super()._answer(read)
        if not isinstance(read.readout, Candidates):
            return reading
        taken = min({0, 1, 2}.difference(read.readout.forbidden))
        ids = np.where(np.isneginf(reading.logprobs), taken, reading.token_ids)
        return replace(reading, token_ids=ids)  # any but a forbidden one, where none is possible


@pytest.mark.parametrize(
    "toy",
    [
        ToyPredictor(),
        ToyPredictor(attention=BlockCausal(4)),
        Masked(),
        Carrying(),
        Ratios(),
        OneWay(),
    ],
)
def test_a_right_toy_passes(toy: ToyPredictor) -> None:
    check_mask_predictor(toy, logits=toy.logits)


def test_readouts_of_float32_rows_are_exact_in_a_large_vocabulary() -> None:
    rows = np.random.default_rng(0).normal(0, 3, (2, 100_000))
    ids = np.array([1, 2])
    read = Read(ids, np.array([0, 1]), TokenLogProbs(ids))
    narrow, wide = (naive_readout(rows.astype(kind), read) for kind in ("float32", "float64"))
    np.testing.assert_allclose(narrow.logprobs, wide.logprobs, atol=1e-5)


def test_a_model_without_a_mask_passes() -> None:
    toy = ToyPredictor()
    toy.abilities = frozenset()
    special = replace(toy.info.special, mask_id=None)
    toy.info = replace(toy.info, special=special)
    check_mask_predictor(toy, logits=toy.logits)


class Timed(ToyPredictor):
    """As SEDD of either noise: the logits grow with the noise level."""

    abilities = frozenset()

    def __init__(self, noise: NoiseKind, attention: Attention = BIDIRECTIONAL) -> None:
        super().__init__(attention=attention)
        mask_id = None if noise == "uniform" else MASK
        special = replace(self.info.special, mask_id=mask_id)
        self.info = replace(self.info, special=special, noise=noise, is_time_conditioned=True)

    def grown(self, ids: Ids, levels: Floats) -> Logits:
        rows: Logits = self.logits(ids) * (1 + levels[:, None])
        return rows

    def _logits_at(self, read: Read, ids: Ids, context: Ids | None) -> Logits:
        return self.grown(ids, self._levels(read))[read.positions]

    def _levels(self, read: Read) -> Floats:
        return noise_levels(read, self.info)


class Counting(Timed):
    """Counts masks, whatever level the Read tells."""

    def _levels(self, read: Read) -> Floats:
        return noise_levels(replace(read, noise=None), self.info)


class Undrawn(Timed):
    """Reads what uniform noise hides as it stands, or as the highest token."""

    highest = MASK + 1

    def read(self, reads: Sequence[Read]) -> list[Reading]:
        ids = (np.minimum(read.token_ids, self.highest) for read in reads)
        pairs = zip(reads, ids, strict=True)
        return [self._answer(replace(read, token_ids=tokens)) for read, tokens in pairs]


@pytest.mark.parametrize("toy", [Timed("masks"), Timed("uniform"), Timed("masks", BlockCausal(4))])
def test_a_right_model_of_noise_levels_passes(toy: Timed) -> None:
    check_mask_predictor(toy)
    check_mask_predictor(toy, logits=toy.grown)


def test_a_wrong_model_of_noise_levels_fails_by_the_promise_that_it_breaks() -> None:
    clipping, still = Undrawn("uniform"), "levels 0.25 and 0.75 are answered alike"
    clipping.highest = MASK
    for mutant, promise in (
        (Counting("masks"), still),
        (Undrawn("uniform"), "under uniform noise `read` must begin with `completed`"),
        (clipping, "and one of uniform noise with drawn tokens, as `completed` does"),
    ):
        with pytest.raises(AssertionError, match=promise):
            check_mask_predictor(mutant)


def llada(folder: Path) -> tuple[Path, Any]:
    path = reference_llada.checkpoint(folder)
    return path, reference_llada.ReferenceLLaDA(path)


def dream(folder: Path) -> tuple[Path, Any]:
    """Its rows are shifted: each predicts the next token."""
    path = reference_dream.write_checkpoint(folder)
    return path, reference_dream.ReferenceDream(path)


def masked_lm(folder: Path) -> tuple[Path, Any]:
    path = reference_modernbert.write_checkpoint(folder / "model")
    return path, reference_modernbert.ReferenceModernBert(path)


@pytest.mark.parametrize("build", [llada, dream, masked_lm])
def test_our_own_adapters_pass_beside_independent_models(
    tmp_path: Path, build: Callable[[Path], tuple[Path, Any]]
) -> None:
    path, reference = build(tmp_path)
    check_mask_predictor(
        LLM(str(path)).predictor, logits=lambda ids: np.asarray(reference.logprobs(ids.tolist()))
    )
