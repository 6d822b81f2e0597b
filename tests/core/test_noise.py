"""Noise depends on what is asked, never on who else asks."""

import numpy as np

from dise_core.noise import Noise

POSITIONS = np.array([3, 0, 17])


def test_a_position_draws_the_same_whatever_stands_beside_it() -> None:
    noise = Noise(seed=5, stream=7, step=2)
    together = noise.uniforms(POSITIONS)
    assert together.tolist() == [float(noise.uniforms(np.array([p]))[0]) for p in POSITIONS]


def test_seed_stream_step_and_purpose_all_draw_anew() -> None:
    noise = Noise(1, 1, 1)
    draws = [
        noise.uniforms(POSITIONS),
        Noise(2, 1, 1).uniforms(POSITIONS),
        Noise(1, 2, 1).uniforms(POSITIONS),
        noise.at_step(2).uniforms(POSITIONS),
        noise.uniforms(POSITIONS, purpose=1),
        *(
            Noise(seed, stream).uniforms(POSITIONS)  # 64 bits, none of which is lost
            for seed in (2**64 - 1, 2**64 - 2)
            for stream in (2**64 - 3, 2**64 - 4)
        ),
    ]
    assert len({tuple(draw) for draw in draws}) == len(draws)


def test_another_prompt_or_sample_is_another_stream() -> None:
    streams = {
        Noise.for_request(0, np.array(prompt), sample).stream
        for prompt in ([1], [2], [1, 2])
        for sample in (0, 1)
    }
    assert len(streams) == 6


def test_the_numbers_are_uniform() -> None:
    """Mean and variance of 100,000 draws, each within 6 standard errors: a false alarm in about 1
    of 10^8 seeds.
    """
    draws = np.concatenate([Noise(3, 1, step).uniforms(np.arange(1000)) for step in range(100)])
    assert abs(draws.mean() - 1 / 2) < 6 * np.sqrt(1 / 12 / draws.size)
    assert abs(draws.var() - 1 / 12) < 6 * np.sqrt(1 / 180 / draws.size)
    assert draws.min() >= 0
    assert draws.max() < 1
