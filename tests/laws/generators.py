"""What the laws are tried on: shared generators of texts, selectors and requests."""

import numpy as np
from hypothesis import strategies as st

from dise_core import RenoisingPolicy, SamplingParams, TokenSequence
from dise_core.plugins.discovery import installed_catalog
from dise_core.testing.toy_model import END, SPECIAL, LetterTokenizer

token_ids = st.integers(0, END)

sequences = st.builds(
    lambda prompt, response, block_length: TokenSequence.of(
        prompt, response, SPECIAL, block_length, spell=LetterTokenizer().spell
    ),
    st.lists(token_ids, max_size=12),
    st.lists(token_ids, max_size=20),
    st.integers(1, 9),
)

counts = st.integers(1, 25)

prompts = st.lists(st.integers(0, END), min_size=1, max_size=10)

scorers = st.sampled_from(
    [
        {"scorer": "dise"},
        {"scorer": "interleaved"},
        {"scorer": "mc", "scorer_settings": {"num_samples": 5}},
        {"scorer": "mc", "scorer_settings": {"num_samples": 5, "estimator": "dream"}},
    ]
)

CONTROLLERS = sorted(installed_catalog().length_controllers)
POLICIES = [
    name
    for name, entry in sorted(installed_catalog().unmasking_policies.items())
    if not issubclass(entry.load(), RenoisingPolicy)
]
"""Those for models of masks."""

LOOKING_AHEAD = ("cal", "rho-eos")
"""Controllers that block-causal models refuse."""

_settings = {
    "max_tokens": st.integers(1, 12),
    "tokens_per_step": st.integers(1, 5),
    "temperature": st.sampled_from([0.0, 0.7, 2.0]),
    "top_p": st.sampled_from([1.0, 0.6]),
    "top_k": st.sampled_from([0, 3]),
    "seed": st.integers(0, 2**64 - 1),
    "unmasking_settings": st.sampled_from([{}, {"eps": 1e-3}]),
    "unmasking": st.sampled_from(POLICIES),
    "cfg_scale": st.sampled_from([0.0, 1.0]),
    "reviser": st.sampled_from([None, "remask"]),
    "selector": st.sampled_from(["full", "last-3", "response-text"]),
}

sampling_params = st.builds(
    lambda scorer, **settings: SamplingParams(**scorer, **settings),
    scorers,
    block_length=st.integers(1, 12),
    length=st.sampled_from([name for name in CONTROLLERS if name != "until-end"]),
    **_settings,
)

block_causal_params = st.builds(
    lambda scorer, **settings: SamplingParams(**scorer, **settings),
    scorers,
    length=st.sampled_from([None, *CONTROLLERS]).filter(lambda name: name not in LOOKING_AHEAD),
    cache=st.sampled_from(["exact", "none"]),
    **_settings,
)
"""For models with blocks of their own."""

logits = st.integers(0, 2**32 - 1).map(
    lambda seed: 4 * np.random.default_rng(seed).normal(size=(5, 12))
)
