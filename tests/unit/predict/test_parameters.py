"""The listed parameters are those of the module that is trained."""

from __future__ import annotations

import pytest
import torch

from harness.predict.parameters import parameters
from harness.train.decoder import Decoder
from harness.workload import PRESETS


@pytest.mark.parametrize("name", PRESETS)
def test_parameters_are_those_of_the_module(name: str) -> None:
    with torch.device("meta"):
        model = Decoder(PRESETS[name])
    built = [(n, tuple(p.shape)) for n, p in model.named_parameters()]
    listed = parameters(PRESETS[name])
    assert [(p.name, p.shape) for p in listed] == built
    assert sum(p.numel for p in listed) == PRESETS[name].param_count


def test_split_takes_the_first_and_largest_part() -> None:
    by_name = {p.name: p for p in parameters(PRESETS["tiny"])}
    assert by_name["embed.weight"].split_shape(3) == (171, 64)
    assert by_name["layers.0.ffn.down.weight"].split_shape(4) == (64, 48)
    assert by_name["layers.0.ffn_norm.weight"].split_shape(4) == (64,)
