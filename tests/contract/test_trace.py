"""Traces on one process against closed formulas: two independent ways to the same bytes."""

from __future__ import annotations

import json

import pytest
from torch.distributed.fsdp._fully_shard import _fsdp_common

from harness.errors import UsageError
from harness.layout import Layout
from harness.layout.candidates import candidates
from harness.predict.collectives import step_collectives
from harness.predict.memory import predict_memory
from harness.predict.trace import LONG, SHORT, Trace, extend, trace, trace_blocks
from harness.traffic import Collective
from harness.workload import PRESETS, Workload
from tests.contract.conftest import GetGroup
from tests.contract.specs import REMOTE, make_spec, retaken
from tests.unit.factories import layout


def work(model: str, place: Layout, micro_batch: int = 2, seq_len: int = 64) -> Workload:
    return Workload(model=PRESETS[model], global_batch=place.mesh.dp * micro_batch, seq_len=seq_len)


def default_layouts(ranks: int) -> tuple[Layout, ...]:
    return candidates((), Workload(model=PRESETS["tiny"], global_batch=16, seq_len=64), ranks).layouts


MEASURED = [
    "fsdp:s4",
    "ddp:r4",
    *(pytest.param(text, marks=pytest.mark.thorough) for text in ("hsdp:r2s2", "fsdp_tp:s2t2", "ddp_tp:r2t2", "tp:t4")),
]
THOROUGH = [pytest.param(place, marks=pytest.mark.thorough) for place in default_layouts(8)]


@pytest.mark.parametrize(
    "place", [*default_layouts(4), layout("hsdp_tp:r2s2t2"), *THOROUGH], ids=lambda place: place.text
)
def test_what_is_traced_is_what_the_formula_says(place: Layout) -> None:
    workload = work("tiny", place)
    traced, expected = trace(place, workload), predict_memory(place, workload, kernels="cpu")
    assert traced.collectives == step_collectives(place, workload)
    assert traced.parameters_bytes == expected.parameters_bytes
    assert traced.optimizer_bytes == expected.optimizer_bytes


def ends(model: str, ranks: int) -> list[Layout]:
    """Of the default layouts of each strategy and tp, those with the longest and the shortest dp_shard."""
    found: dict[tuple[str, int], list[Layout]] = {}
    for one in candidates((), Workload(model=PRESETS[model], global_batch=ranks, seq_len=4096), ranks).layouts:
        found.setdefault((one.strategy, one.mesh.tp), []).append(one)
    return list(dict.fromkeys(layouts[at] for layouts in found.values() for at in (0, -1)))


LARGE = [(m, one.text) for m in ("8b", "70b", "405b") for ranks in (128, 1024, 16384) for one in ends(m, ranks)]
ALWAYS = [("70b", "hsdp:r512s2"), ("8b", "fsdp:s16384")]


@pytest.mark.parametrize(
    ("model", "text"),
    [
        *ALWAYS,
        *(pytest.param(*case, marks=pytest.mark.thorough) for case in LARGE if case not in ALWAYS),
        pytest.param("70b", "fsdp_tp:s16t8+activation_checkpointing=full+precision=bf16", marks=pytest.mark.thorough),
    ],
)
def test_the_formula_holds_for_large_models_and_worlds(model: str, text: str) -> None:
    place = layout(text)
    workload = work(model, place, 1, 4096)
    traced, expected = trace(place, workload), predict_memory(place, workload, kernels="cpu")
    assert traced.collectives == step_collectives(place, workload)
    assert traced.parameters_bytes == expected.parameters_bytes
    assert traced.optimizer_bytes == expected.optimizer_bytes
    assert traced.peak is not None
    assert traced.peak.peak_bytes == pytest.approx(expected.peak_bytes, rel=0.05)  # as of a measured peak


@pytest.mark.parametrize(
    "text", ["fsdp:s4", *(pytest.param(x, marks=pytest.mark.thorough) for x in ("hsdp_tp:r2s2t2", "ddp_tp:r2t2"))]
)
def test_each_further_block_adds_the_same(text: str) -> None:
    """The second difference is zero: what 3 and 4 blocks say of 6 is what 6 blocks say, also of the peak."""
    place = layout(text)
    workload = work("small", place)
    short, long, six = trace_blocks(place, workload, SHORT, LONG, 6)
    found = extend(short, long, 6)
    assert found.peak == six.peak
    assert found.model_copy(update={"moments": ()}) == six.model_copy(update={"moments": ()})


@pytest.mark.distributed
@pytest.mark.parametrize("text", MEASURED)
def test_the_peak_is_what_a_rank_measures(text: str, rank_group: GetGroup) -> None:
    """Without what a rank's process holds besides the step: of ``other`` only the batch is the step's."""
    spec = make_spec(text)
    batch = 2 * 8 * spec.workload.global_batch // spec.layout.mesh.dp * spec.workload.seq_len
    found = trace(spec.layout, spec.workload).peak
    assert found is not None

    def measure() -> tuple[str | None, str | None, int]:
        peak = rank_group(4).call(f"{REMOTE}:memory", spec)[0].step_peak
        return peak.phase, peak.module, peak.peak_bytes - peak.bytes_by_kind["other"] + batch

    expected = (found.phase, found.module, found.peak_bytes)
    assert retaken(measure, lambda measured: measured == expected) == expected


def test_fsdp_of_the_tiny_model_by_hand() -> None:
    # a block: 4 x 64^2 of attention with half as many kv heads, 3 x 64 x 192, 2 norms; the root: 2 x 512 x 64, a norm
    place = layout("fsdp:s4")
    found = {(c.operation, c.phase, c.size_bytes): c.count for c in trace(place, work("tiny", place)).collectives}
    block, root = 4 * (2 * 64 * 64 + 2 * 64 * 32 + 3 * 64 * 192 + 2 * 64), 4 * (2 * 512 * 64 + 64)
    assert found == {
        ("all_gather", "forward", root): 1,
        ("all_gather", "forward", block): 2,
        ("all_gather", "backward", block): 2,
        ("reduce_scatter", "backward", block): 2,
        ("reduce_scatter", "backward", root): 1,
        ("all_reduce", "clipping", 4 * 21): 1,  # the norm of each of 2 x 9 + 3 gradients
    }


@pytest.mark.parametrize(
    "text",
    [
        "fsdp:s6+reshard_after_forward=3",
        *(pytest.param(x, marks=pytest.mark.thorough) for x in ("fsdp:s128", "hsdp:r2s48")),
    ],
)
def test_chunks_made_on_demand_are_those_that_fully_shard_makes(text: str, monkeypatch: pytest.MonkeyPatch) -> None:
    """Also where a dim does not divide, or has fewer rows than there are ranks."""
    place = layout(text)
    few = trace(place, work("tiny", place))
    monkeypatch.setattr("harness.predict.fakes.Chunks", _fsdp_common._chunk_with_empty)
    assert trace(place, work("tiny", place)) == few


def test_a_step_that_is_not_linear_in_blocks_is_refused() -> None:
    gather = Collective(
        operation="all_gather",
        axis="dp_shard",
        group_size=4,
        dtype="float32",
        phase="forward",
        size_bytes=8,
        count=2,
    )
    short = Trace(collectives=(gather,), parameters_bytes=1, gradients_bytes=1, optimizer_bytes=1)
    more = gather.model_copy(update={"operation": "all_reduce"})
    with pytest.raises(UsageError, match="do not follow"):
        extend(short, short.model_copy(update={"collectives": (gather, more)}), 80)


def test_layouts_that_cannot_be_traced_say_why() -> None:
    place = layout("fsdp1:s4")
    with pytest.raises(UsageError, match="cuts real tensors"):
        trace(place, work("tiny", place))


def test_plan_shows_traces_beside_formulas(capsys: pytest.CaptureFixture[str]) -> None:
    from harness.cli import _run

    words = (
        "plan --model tiny --nodes 1 --gpus-per-node 4 --gpu h100-sxm --batch 8 --seq-len 64 --layouts fsdp:s4 --trace"
    )
    assert _run([*words.split(), "--json"]) == 0
    out, err = capsys.readouterr()
    (traced,) = json.loads(out)["traced"]
    assert traced["equal"]
    assert traced["state_bytes"] == traced["formula_state_bytes"]
    assert [axis["axis"] for axis in traced["axes"]] == ["dp_shard"]
    assert "equal" in err
