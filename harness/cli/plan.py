"""``meshsweep plan``: every legal layout predicted before a GPU is spent."""

from __future__ import annotations

import json
from pathlib import Path

import click

from harness.accelerators import ACCELERATORS
from harness.cli.machine import MachineOptions, given_topology, machine_options
from harness.cli.options import (
    WorkOptions,
    cross_node_tp_option,
    json_option,
    results_option,
    search_current_folder,
    work_options,
)
from harness.cli.values import PngPath, Positive, given
from harness.errors import UsageError
from harness.layout import LayoutRequest, get_strategy
from harness.layout.candidates import default_requests, with_order
from harness.layout.subset import described, first_devices, use_gpus


@click.command()
@work_options
@machine_options
@click.option("--gpu", metavar="NAME", help=f"Accelerator: {', '.join(a.key for a in ACCELERATORS)}.")
@click.option(
    "--precision", type=click.Choice(["bf16", "fp32"]), help="Of every layout; default bf16, of CPU ranks fp32."
)
@click.option(
    "--activation-checkpointing",
    type=click.Choice(["auto", "none", "selective", "full"]),
    default="auto",
    show_default=True,
    help="auto: the cheapest with which a layout fits.",
)
@click.option("--compile", "compiled", is_flag=True, help="Compile blocks in every layout.")
@click.option("--nic-gbit-per-s", type=Positive(), metavar="G", help="Network rate beside each GPU; default by GPU.")
@click.option("--storage-gb-per-s", type=Positive(), metavar="G", help="Of all ranks together, for checkpoints' times.")
@click.option(
    "--bandwidth",
    "bandwidth_file",
    type=click.Path(path_type=Path),
    metavar="FILE",
    help="Measured bandwidth over node counts: CSV with collective, nodes, mean_or_median_GBps.",
)
@click.option(
    "--calibration",
    "calibration_file",
    type=click.Path(path_type=Path),
    metavar="FILE",
    help="What 'meshsweep calibrate' measured; also gives ranks, nodes and workload where these are not given.",
)
@click.option(
    "--measured",
    "sweep",
    metavar="SWEEP",
    help="Grow what this sweep measured to --nodes nodes; without, predict its layouts from its calibration, "
    "or from --calibration, beside what it measured.",
)
@results_option
@cross_node_tp_option
@click.option(
    "--trace",
    "traced",
    is_flag=True,
    help="Also run the best layout's code, or that of all --layouts, on fake tensors.",
)
@click.option("--csv", "as_csv", is_flag=True, help="Print CSV.")
@click.option("--plot", type=PngPath(), metavar="FILE.png", help="Draw step times and memory.")
@json_option
def plan(
    wanted: WorkOptions,
    machine: MachineOptions,
    gpu: str | None,
    precision: str | None,
    activation_checkpointing: str,
    compiled: bool,
    nic_gbit_per_s: float | None,
    storage_gb_per_s: float | None,
    bandwidth_file: Path | None,
    calibration_file: Path | None,
    sweep: str | None,
    results: Path,
    allow_cross_node_tp: bool,
    traced: bool,
    as_csv: bool,
    plot: Path | None,
    as_json: bool,
) -> int:
    """Predict memory, traffic, checkpoint and step time of every legal layout, and say which fit.

    \b
    Examples:
      meshsweep plan --model 70b --nodes 16 --gpus-per-node 8 --gpu h100-sxm
      meshsweep plan --model 8b --nodes 4 --gpus-per-node 8 --gpu a100-80gb --seq-len 8192 --csv
      meshsweep plan --measured 20260102-030405-tiny-w4 --nodes 64
      meshsweep plan --measured 20260102-030405-tiny-w4
      meshsweep plan --calibration results/20260102-030405-calibration/calibration.json
      meshsweep plan --model 70b --topology topo.txt --gpu h100-sxm --layouts hsdp,fsdp_tp --json
      meshsweep plan --model 8b --nodes 16 --gpus-per-node 8 --gpu h100-sxm --layouts hsdp:r16s8 --trace
    """
    from harness.cli.plan_csv import forecast_csv
    from harness.cli.plan_machine import default_nodes, default_workload, make_machine
    from harness.cli.plan_settings import settings_of
    from harness.cli.plan_text import band_lines, forecast_text, settings_line
    from harness.cli.traced import traced_text, with_traces
    from harness.forecast.calibrated import read_calibration
    from harness.forecast.predict import forecast

    if sweep is not None:
        _refuse_others(machine.nodes)
        return _grow(results, sweep, machine.nodes, gpu, nic_gbit_per_s, calibration_file, as_json)
    calibration = read_calibration(calibration_file) if calibration_file else None
    on_cpu = calibration is not None and calibration.device == "cpu"
    if on_cpu and (gpu is not None or wanted.device == "cuda"):
        raise UsageError(f"{calibration_file} is of CPU ranks; leave out --gpu and --device cuda, or calibrate GPUs")
    if wanted.device == "cpu" and not on_cpu:
        raise UsageError(
            "plan predicts accelerators; leave --device out and give --gpu, or give --calibration FILE of CPU ranks"
        )
    search_current_folder()
    topology = given_topology(machine) if machine.described else described(*default_nodes(calibration, wanted.ranks))
    if machine.use_gpus is not None:
        topology = use_gpus(topology, machine.use_gpus)
    topology = first_devices(topology, wanted.ranks or topology.device_count)
    count = topology.device_count
    named = wanted.requests or default_requests(count)
    requests = with_order(_with_options(named, precision or ("fp32" if on_cpu else "bf16"), compiled), machine.order)
    workload = default_workload(calibration, wanted.model, wanted.batch, wanted.seq_len, count)
    cluster = make_machine(topology, gpu, nic_gbit_per_s, storage_gb_per_s, bandwidth_file, calibration_file)
    found = forecast(
        cluster,
        workload,
        requests,
        activation_checkpointing,  # type: ignore[arg-type]
        allow_cross_node_tp=allow_cross_node_tp,
    )
    named_options = given(click.get_current_context())
    chosen = settings_of(named_options, workload, requests, activation_checkpointing, cluster)
    found = found.model_copy(update={"settings": tuple(chosen)})
    if plot is not None:
        from harness.report.forecast import draw_forecast
        from harness.report.picture_file import to_png
        from harness.store import write_atomic

        write_atomic(plot, to_png(draw_forecast(found)))
    click.echo(forecast_csv(found) if as_csv else forecast_text(found), err=as_json)
    if as_csv:
        click.echo("\n".join([settings_line(found), *band_lines(found)]), err=True)
    if traced:
        found = with_traces(found, every=bool(wanted.layout_texts))
        click.echo("\n" + traced_text(found), err=as_json or as_csv)
    if as_json:
        click.echo(found.model_dump_json(indent=1))
    return 0


def _refuse_others(nodes: int | None) -> None:
    """Refuse what --measured would ignore: the sweep says the rest itself."""
    takes = {"sweep", "calibration_file", "results", "as_json"}
    if nodes is not None:
        takes |= {"nodes", "gpu", "nic_gbit_per_s"}
    others = [option for name, option in given(click.get_current_context()).items() if name not in takes]
    if others:
        more = "" if nodes is not None else "; --gpu and --nic-gbit-per-s need --nodes as well"
        raise UsageError(f"--measured takes the sweep's own layouts and does not go with {', '.join(others)}{more}")


def _grow(
    results: Path,
    sweep: str,
    nodes: int | None,
    gpu: str | None,
    nic_gbit: float | None,
    calibration_file: Path | None,
    as_json: bool,
) -> int:
    from harness.cli.plan_measured import scaling, scaling_text

    if nodes is None:
        return _beside_measured(results, sweep, calibration_file, as_json)
    found = scaling(results, sweep, nodes, gpu, nic_gbit, calibration_file)
    click.echo(scaling_text(found), err=as_json)
    if as_json:
        click.echo(found.model_dump_json(indent=1))
    return 0


def _beside_measured(results: Path, sweep: str, calibration_file: Path | None, as_json: bool) -> int:
    from harness.cli.plan_measured import predicted_comparison, predicted_text

    found = predicted_comparison(results, sweep, calibration_file)
    click.echo(predicted_text(found), err=as_json)
    if as_json:
        click.echo(json.dumps([one.model_dump(mode="json") for one in found.predicted], indent=1))
    return 0


def _with_options(requests: tuple[LayoutRequest, ...], precision: str, compiled: bool) -> tuple[LayoutRequest, ...]:
    """The requests with the command's precision and compilation, where they name none themselves."""
    changed = []
    for request in requests:
        own = request.options.model_fields_set  # a layout's text may name a default, such as precision=fp32
        takes = set(get_strategy(request.strategy).options) - own
        options = {"precision": precision, "compile": compiled}
        update = {name: value for name, value in options.items() if name in takes}
        changed.append(request.model_copy(update={"options": request.options.model_copy(update=update)}))
    return tuple(changed)
