"""The conformance checks of adapters: what a predictor answers, and which models it claims."""

from collections.abc import Iterator, Sequence
from pathlib import Path
from tempfile import TemporaryDirectory

import numpy as np

from dise_core import Floats, Ids, MaskPredictor, Noise, Read, Reading
from dise_core.plans.readouts import READOUTS, Candidates, Distribution, TokenLogProbs, TopLogProbs
from dise_core.testing.answers import ask
from dise_core.testing.batches import check_batch, check_longest, check_repeated
from dise_core.testing.promises import expect, gap_between, kept
from dise_core.testing.rows import ReferenceLogits, check_rows
from dise_core.testing.tokenizers import check_special, check_tokenizer

STRANGE_NAMES = (
    "of-nobody", "Of Nobody (v2)?", "./of-nobody", "~of-nobody/model", "of-nobody/some-model",
    "ftp://of-nobody.invalid/some-model",
)  # fmt: skip
"""Names that belong to no model."""


@kept()
def check_mask_predictor(
    predictor: MaskPredictor, tolerance: float = 1e-4, *, logits: ReferenceLogits | None = None
) -> None:
    """Check that answers have the types and shapes that Reading names, leave Reads
    unchanged, stand in the order of Reads and positions, and are the same each time,
    alone or in a batch of texts of different lengths; that a text of max_length, 4096 at
    most, is answered; that readouts agree with each other, and heed guidance, attention,
    each option of Candidates and what the abilities say; and that the tokenizer's texts
    are stable, and none holds a mask or an end token.

    tolerance: how far log-probabilities of one text may differ, in nats. logits: another
    implementation of the model, slow and simple: it returns the logits [N, V] of a text,
    int64 [N], row i for the token AT i (row 0 is not read of a causal model), given the
    noise levels, float64 [N], too where info.is_time_conditioned. Without it, answers are
    compared with the predictor's own distribution: a forgotten shift, say, is not found.
    Where `readouts` leave some out, the others are compared alone and in a batch.
    """
    check_tokenizer(predictor.tokenizer, predictor.info.vocab_size)
    check_special(predictor.tokenizer, predictor.info)
    texts = _texts_of(predictor)
    _check_drawn(predictor, texts[0])
    reads = [read for ids in texts for read in _questions(ids, predictor)]
    alone = [reading for read in reads for reading in ask(predictor, [read])]
    num, is_whole = len(reads) // len(texts), predictor.readouts >= READOUTS
    check_repeated(predictor, reads[:num], alone[:num], tolerance)
    check_longest(predictor)
    check_batch(predictor, reads, alone, tolerance)
    for start in range(0, len(reads), num) if is_whole else ():
        _check_readouts(reads[start : start + num], alone[start : start + num], tolerance)
    for ids in texts if is_whole else ():
        check_rows(predictor, _with_mask(ids, predictor), tolerance, logits)
    if predictor.info.block_length is not None and "two-stream" in predictor.abilities:
        for ids in texts if predictor.info.special.mask_id is not None else ():
            for start in (0, len(ids) // 2) if predictor.info.block_origin == "response" else (0,):
                _check_two_streams(predictor, ids, start, tolerance)


def _check_drawn(predictor: MaskPredictor, ids: Ids) -> None:
    if predictor.info.noise == "masks":
        return
    ids = _with_mask(ids, predictor)
    try:
        predictor.read([Read(ids, np.arange(len(ids)), Candidates())])
    except IndexError as error:
        raise AssertionError(
            "under uniform noise `read` must begin with `completed`, which draws tokens "
            f"where special.mask_id stands: {error!r}"
        ) from error


def _check_two_streams(
    predictor: MaskPredictor, context: Ids, first: int, tolerance: float
) -> None:
    """Check that each block from `first` on is read after the finished text before it."""
    masked, grid = context.copy(), predictor.info.blocks(first)
    masked[first::2] = predictor.info.special.masking_id
    positions = np.arange(first, len(context))
    targets = TokenLogProbs(context[positions])
    [together] = ask(
        predictor, [Read(masked, positions, targets, context_ids=context, start=first)]
    )
    for start, stop in grid.spans(first, len(context)) if grid else ():
        text, positions = np.append(context[:start], masked[start:stop]), np.arange(start, stop)
        targets = TokenLogProbs(context[positions])
        [alone] = ask(predictor, [Read(text, positions, targets, start=first)])
        difference = gap_between(alone.logprobs, together.logprobs[positions - first])
        promise = "with context_ids a block must be read after the finished ones before it"
        message = f"{promise}: its log-probabilities differ by {difference}"
        expect(difference <= tolerance, message)


def check_claims(
    adapter: type[MaskPredictor], claimed: Sequence[str], not_claimed: Sequence[str] = ()
) -> None:
    """Check that the adapter claims its own models, and returns False for others without
    raising: not_claimed, nonsense names, a hub id, paths that do not exist, and folders
    with an empty, broken or unknown config.json. Set HF_HUB_OFFLINE=1 to keep tests off
    the network.
    """
    for model in claimed:
        expect(_claim(adapter, model), f"claims({model!r}) must be True: the model is its own")
    with TemporaryDirectory() as folder:
        for model in (*not_claimed, *STRANGE_NAMES, *_strange_folders(Path(folder))):
            promise = f"claims({model!r}) must be False: the model is not its own"
            expect(not _claim(adapter, model), promise)


def _claim(adapter: type[MaskPredictor], model: str) -> bool:
    try:
        is_claimed = adapter.claims(model)
    except Exception as error:
        raise AssertionError(
            f"claims({model!r}) must not raise, whatever the name: {error!r}"
        ) from error
    promise = f"claims({model!r}) must return a bool, not {is_claimed!r}"
    expect(isinstance(is_claimed, bool), promise)
    return is_claimed


def _strange_folders(parent: Path) -> Iterator[str]:
    yield str(parent / "nowhere")
    for name, config in (
        ("empty", None),
        ("broken", "{"),
        ("nulls", '{"model_type": null, "architectures": null}'),
        ("stranger", '{"model_type": "of-nobody", "architectures": ["OfNobodyModel"]}'),
    ):
        (parent / name).mkdir()
        if config is not None:
            (parent / name / "config.json").write_text(config, encoding="utf-8")
        yield str(parent / name)


def _check_readouts(reads: Sequence[Read], readings: Sequence[Reading], tolerance: float) -> None:
    """Check the readouts of one text, of which the last is the whole distribution."""
    everything = readings[-1].logprobs.astype(np.float64)
    total = np.exp(everything).sum(axis=1)
    expect(
        bool(np.allclose(total, 1, atol=1e-3)),
        f"probabilities must sum to 1, not {total}: log-probabilities are natural logarithms of a "
        "softmax over the whole vocabulary",
    )
    for read, reading in zip(reads[:-1], readings[:-1], strict=True):
        logprobs = reading.logprobs.reshape(len(everything), -1)
        ids = reading.token_ids.reshape(logprobs.shape)
        gap = gap_between(np.take_along_axis(everything, ids, 1), logprobs)
        name = type(read.readout).__name__
        expect(gap <= tolerance, f"{name} differs from the distribution by {gap}")
        if isinstance(read.readout, TopLogProbs):
            _check_top(read.readout, reading, everything, tolerance)


def _check_top(
    readout: TopLogProbs, reading: Reading, everything: Floats, tolerance: float
) -> None:
    is_first = reading.logprobs[:, 0] >= everything.max(axis=1) - tolerance
    expect(bool(is_first.all()), "TopLogProbs must start with the likeliest token")
    if readout.with_entropy:
        likely = np.maximum(everything, -1e3)
        gap = gap_between((np.exp(likely) * likely).sum(axis=1), reading.confidences)
        expect(gap <= 10 * tolerance, f"the negative entropies of TopLogProbs are off by {gap}")


def _texts_of(predictor: MaskPredictor) -> list[Ids]:
    """Return texts of lengths that neither ascend nor descend, with the highest id."""
    random = np.random.default_rng(0)
    allowed = np.setdiff1d(np.arange(predictor.info.vocab_size), [predictor.info.special.mask_id])
    lengths = [length for length in (8, 3, 20, 7) if length <= predictor.info.max_length]
    texts = [random.choice(allowed, length) for length in lengths]
    texts[0][0] = allowed[-1]
    return texts


def _with_mask(ids: Ids, predictor: MaskPredictor) -> Ids:
    """Return the text with a mask at its last odd position, if the model has one."""
    if (mask_id := predictor.info.special.mask_id) is None:
        return ids
    return np.where(np.arange(len(ids)) == len(ids) // 2 * 2 - 1, mask_id, ids)


def _questions(ids: Ids, predictor: MaskPredictor) -> list[Read]:
    """Return one Read per readout of one text, at every other position from 1 on."""
    positions, ids = np.arange(1, len(ids), 2), _with_mask(ids, predictor)
    mask_id = predictor.info.mask_token_id
    forbidden = () if mask_id is None else (mask_id,)
    tokens = np.minimum(ids, predictor.info.vocab_size - 1)[positions]  # none is hidden
    readouts = (
        TokenLogProbs(tokens),
        TopLogProbs(3),
        Candidates(forbidden=forbidden),
        Candidates(1.0, noise=Noise(5), forbidden=forbidden),
        TopLogProbs(2, (1, 0), tokens, with_entropy=True),
        Distribution(),
    )
    taken = [readout for readout in readouts if type(readout) in predictor.readouts]
    return [Read(ids, positions, readout) for readout in taken]
