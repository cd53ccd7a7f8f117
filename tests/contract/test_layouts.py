"""What every registered layout must keep to, on real gloo ranks: equivalence, checkpoint round trip, memory."""

from __future__ import annotations

import pytest

from harness.execute.ranks import RankError
from harness.gate import judge
from harness.layout import STRATEGIES
from harness.layout.legality import check_layout, meshes
from harness.predict.checkpoint import checkpoint_size
from harness.record import GateSamples
from harness.workload import make_workload
from tests.contract.conftest import GetGroup
from tests.contract.specs import REMOTE, layout, make_spec

pytestmark = pytest.mark.distributed

# Every strategy of the registry that fits on 4 ranks, on its first mesh: a new one is tested without a word here.
REGISTERED = [
    f"{s.name}:{found[0].short}" for s in STRATEGIES.values() if (found := meshes(s, 4)) and s.name != "single"
]
WITH_OPTIONS = [
    "fsdp:s4+reshard_after_forward=false",
    "fsdp:s4+reshard_after_forward=2",
    "hsdp:r2s2+reshard_after_forward=false",
    "fsdp1:s4+reshard_after_forward=false",
    "fsdp1_hybrid:r2s2+reshard_after_forward=false",
    "fsdp:s4+cpu_offload=true",
    "ddp:r4+activation_checkpointing=full",
    "fsdp:s4+activation_checkpointing=selective",
    "fsdp_tp:s2t2+activation_checkpointing=full",
    "tp:t4+sequence_parallel=true",
    "tp:t4+loss_parallel=true",
    "fsdp_tp:s2t2+sequence_parallel=true+loss_parallel=true",
    "ddp_tp:r2t2+sequence_parallel=true",
    "ddp:r4+precision=bf16",
    "fsdp:s4+precision=bf16",
    "tp:t4+precision=bf16",
    "ddp_tp:r2t2+precision=bf16",
    "fsdp1:s4+precision=bf16",
]


@pytest.fixture(scope="module")
def reference(rank_group: GetGroup) -> GateSamples:
    samples: GateSamples = rank_group(1).call(f"{REMOTE}:gate", make_spec("single"))[0]
    return samples


@pytest.mark.parametrize("text", [*REGISTERED, *WITH_OPTIONS])
def test_losses_and_norms_follow_the_single_process(text: str, rank_group: GetGroup, reference: GateSamples) -> None:
    everyone = rank_group(4).call(f"{REMOTE}:gate", make_spec(text))
    assert len(set(map(repr, everyone))) == 1, "ranks disagree"
    verdict = judge(everyone[0], reference, layout(text).options.precision)
    assert verdict.passed, verdict
    assert verdict.steps == 10


def test_three_axes_on_eight_ranks(rank_group: GetGroup, reference: GateSamples) -> None:
    samples = rank_group(8).call(f"{REMOTE}:gate", make_spec("hsdp_tp:r2s2t2"))[0]
    assert judge(samples, reference, "fp32").passed


def test_manual_groups_give_the_very_numbers_of_init_device_mesh(rank_group: GetGroup) -> None:
    by_hand, by_mesh = (
        rank_group(4).call(f"{REMOTE}:gate", make_spec(text))[0] for text in ("manual_hsdp:r2s2", "hsdp:r2s2")
    )
    assert by_hand == by_mesh


def test_training_moves_the_loss(reference: GateSamples) -> None:
    """A gate on losses that do not move would prove nothing."""
    assert max(reference.losses) - min(reference.losses) > 1e-3 * reference.losses[0]
    assert min(reference.grad_norms) > 0.1


@pytest.mark.parametrize("text", REGISTERED)
def test_a_checkpoint_restores_every_tensor_into_a_fresh_model(text: str, rank_group: GetGroup) -> None:
    spec = make_spec(text)
    checkpoint = rank_group(4).call(f"{REMOTE}:checkpoint", spec)[0]
    assert checkpoint.equal
    assert checkpoint.folder == f"step2-{spec.layout.mesh.signature}"
    expected = checkpoint_size(spec.workload.model, spec.layout.mesh)
    (save,) = checkpoint.parts.saves
    assert save.sizes.bytes_by_kind == expected.bytes_by_kind
    assert save.sizes.duplicate_bytes == 0
    assert checkpoint.total_bytes == expected.unique_bytes + save.sizes.metadata_bytes
    # fsdp1 cuts its flat parameter, and not each tensor, over ranks: more of them may hold a part
    assert checkpoint.files == expected.files + 1
    assert sum(size > 0 for size in save.written_bytes) == expected.files
    for restored in checkpoint.parts.restores:
        assert sum(restored.storage_bytes) <= checkpoint.total_bytes, "each byte is read once"
    assert checkpoint.save_time_s > 0
    assert checkpoint.restore_time_s > 0


def test_sharding_needs_less_memory_than_replication(rank_group: GetGroup) -> None:
    """Model state a rank: DDP holds parameters, gradients and two moments whole, fsdp a quarter of them."""
    whole = 4 * 4 * make_spec("ddp:r4").workload.model.param_count
    peaks = {}
    for text in ("ddp:r4", "fsdp:s4"):
        peaks[text] = rank_group(4).call(f"{REMOTE}:open_session", make_spec(text))
        rank_group(4).call(f"{REMOTE}:close_session")
    assert min(peaks["ddp:r4"]) > whole
    assert max(peaks["fsdp:s4"]) < min(peaks["ddp:r4"]) - whole / 2


def test_a_tied_head_stays_tied_in_every_layout(rank_group: GetGroup) -> None:
    workload = make_workload("tests.contract.models:tied", 8, 32)
    expected = rank_group(1).call(f"{REMOTE}:gate", make_spec("single", workload))[0]
    for text in ("ddp:r4", "fsdp:s4", "tp:t4", "fsdp_tp:s2t2", "fsdp1:s4", "ddp_tp:r2t2"):
        samples = rank_group(4).call(f"{REMOTE}:gate", make_spec(text, workload))[0]
        assert judge(samples, expected, "fp32").passed, text


def test_a_users_model_without_init_starts_from_the_same_weights(rank_group: GetGroup) -> None:
    workload = make_workload("tests.contract.models:plain", 8, 32)
    expected = rank_group(1).call(f"{REMOTE}:gate", make_spec("single", workload))[0]
    for text in ("ddp:r4", "hsdp:r2s2", "fsdp1:s4"):
        samples = rank_group(4).call(f"{REMOTE}:gate", make_spec(text, workload))[0]
        assert judge(samples, expected, "fp32").passed, text


def test_compiled_blocks_pass_the_gate(rank_group: GetGroup, reference: GateSamples) -> None:
    samples = rank_group(2).call(f"{REMOTE}:gate", make_spec("fsdp:s2+compile=true"), timeout_s=200)[0]
    assert judge(samples, reference, "fp32").passed


def test_all_tested_layouts_are_legal() -> None:
    for text in [*REGISTERED, *WITH_OPTIONS]:
        check_layout(layout(text), make_workload("tiny", 8, 32), 4)


def test_another_order_of_axes_trains_the_same(rank_group: GetGroup, reference: GateSamples) -> None:
    for text in ("hsdp:r2s2", "fsdp_tp:s2t2", "manual_hsdp:r2s2"):
        samples = rank_group(4).call(f"{REMOTE}:gate", make_spec(f"{text}+order=tp/dp_shard/dp_replicate"))[0]
        assert judge(samples, reference, "fp32").passed, text


@pytest.mark.parametrize(
    ("name", "message"),
    [
        ("no_blocks", "block_pattern: 'blocks.*' matches no module of the model; its modules are embed, layers"),
        ("no_split", "tp_plan: 'layers.*.q' matches no module"),
        ("small_embedding", "shape.vocab_size is 128 and the model's embedding holds 64 tokens"),
    ],
)
def test_a_definition_that_does_not_speak_of_its_model_is_refused(
    name: str, message: str, rank_group: GetGroup
) -> None:
    workload = make_workload(f"tests.contract.models:{name}", 8, 32)
    with pytest.raises(RankError) as caught:
        rank_group(1).call(f"{REMOTE}:gate", make_spec("single", workload))
    assert message in str(caught.value)
