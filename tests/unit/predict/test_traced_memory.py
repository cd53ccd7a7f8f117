"""Moments of few blocks extended to many, against moments of a made-up model in which all is known."""

from __future__ import annotations

import pytest

from harness.predict.traced_memory import TracedMoment, extend_moments, peak_of
from harness.traffic import StepPhase

STATE, KEPT, GATHERED, GRADIENT = 70, 30, 11, 17  # bytes of a block


def moments(blocks: int, gradient: int = GRADIENT) -> list[TracedMoment]:
    """A step of ``blocks`` blocks: forward keeps KEPT of each, backward turns them into gradients, last block first."""
    state = blocks * STATE
    found = []

    def at(phase: StepPhase, module: str | None, live: int) -> None:
        found.append(TracedMoment(phase=phase, module=module, peak_bytes=state + live))

    at("forward", "embed", 5)
    for block in range(blocks):
        at("forward", f"layers.{block}.attention", block * KEPT + GATHERED)
        at("forward", f"layers.{block}", block * KEPT + KEPT)
        at("forward", "", block * KEPT + KEPT)  # between two blocks
    at("backward", "head", blocks * KEPT + 9)
    for block in reversed(range(blocks)):
        at("backward", f"layers.{block}", (block + 1) * KEPT + (blocks - 1 - block) * gradient + GATHERED)
    at("optimizer", None, blocks * gradient + 100)
    return found


@pytest.mark.parametrize("gradient", [GRADIENT, 3 * KEPT])
@pytest.mark.parametrize("layers", [5, 6, 80])
def test_the_peak_of_many_blocks_is_that_of_the_whole_step(layers: int, gradient: int) -> None:
    """Whether blocks' gradients are smaller than what they free, so that the peak is early in backward, or larger."""
    found = extend_moments(moments(3, gradient), moments(4, gradient), 4, layers)
    assert found is not None
    assert peak_of(found) == peak_of(moments(layers, gradient))
    known = set(moments(layers, gradient))
    assert set(found) <= known
    names = {one.module for one in found if one.module and one.module.startswith("layers")}
    assert {f"layers.{at}" for at in (0, 1, layers - 2, layers - 1)} <= names


def test_traces_that_differ_in_more_than_bytes_say_nothing() -> None:
    odd = [*moments(4), TracedMoment(phase="optimizer", module="norm", peak_bytes=1)]
    assert extend_moments(moments(3), odd, 4, 80) is None


def test_a_moment_in_words() -> None:
    texts = [TracedMoment(phase="backward", module=m, peak_bytes=1).text for m in ("layers.3.ffn", "", None)]
    assert texts == ["backward, layers.3.ffn", "backward, model", "backward"]
