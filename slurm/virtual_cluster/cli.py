"""The command line: arguments to calls, results to text."""

from __future__ import annotations

import argparse
import json
import os
import shlex
import signal
import sys
import time
from collections.abc import Sequence
from pathlib import Path

from virtual_cluster import lifecycle
from virtual_cluster.model import DEFAULT_FOLDER, Cluster
from virtual_cluster.system import PATH, ClusterError, require_rights


def main(argv: Sequence[str] | None = None) -> int:
    """Exit code: 0 done, 1 not done (or ``status`` of a cluster that is not up), 2 something is missing or misused."""
    arguments = parser().parse_args(argv)
    signal.signal(signal.SIGTERM, lambda *_: sys.exit(128 + signal.SIGTERM))  # so that an ended 'up' cleans up
    try:
        if arguments.call is not call_status:
            require_rights()
        code = int(arguments.call(arguments))
        sys.stdout.flush()
        return code
    except BrokenPipeError:
        # whoever read the output has seen enough; the interpreter would complain of what is left of it
        os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())
        return 0
    except ClusterError as error:
        print(f"virtual-cluster: {error}", file=sys.stderr)
        return error.exit_code


def parser() -> argparse.ArgumentParser:
    common = argparse.ArgumentParser(add_help=False)
    common.add_argument("--dir", type=absolute, default=DEFAULT_FOLDER, help="the cluster's folder (%(default)s)")
    top = argparse.ArgumentParser(
        prog="virtual-cluster",
        description="A Slurm cluster with accounting, several nodes and fake GPUs on this one machine.",
    )
    commands = top.add_subparsers(required=True, metavar="COMMAND")

    up = commands.add_parser("up", parents=[common], help="bring a cluster up; nothing happens to one that is up")
    up.add_argument("--nodes", type=int, default=Cluster.nodes, help="(%(default)s)")
    up.add_argument("--gpus", type=counts, default=Cluster.gpus, help="fake GPUs a node, or of each node: 4,2 (4)")
    up.add_argument("--rate", default=Cluster.rate, help="of each node's link, such as 1gbit, or none (%(default)s)")
    up.add_argument("--no-accounting", action="store_true", help="no database: sacct is closed, as on some sites")
    up.add_argument("--no-names", action="store_true", help="host names do not resolve, as on some sites")
    up.set_defaults(call=call_up)

    down = commands.add_parser("down", parents=[common], help="take it down and leave nothing behind")
    down.set_defaults(call=call_down)

    status = commands.add_parser("status", parents=[common], help="services, nodes, bytes on their links")
    status.add_argument("--json", action="store_true")
    status.set_defaults(call=call_status)

    execute = commands.add_parser("exec", parents=[common], help="run a command on a node, outside Slurm")
    execute.add_argument("node")
    execute.add_argument("command", nargs=argparse.REMAINDER, metavar="-- COMMAND")
    execute.set_defaults(call=call_exec)

    rate = commands.add_parser("rate", parents=[common], help="change the rate of the links between nodes")
    rate.add_argument("rate")
    rate.set_defaults(call=call_rate)

    kill = commands.add_parser("kill-node", parents=[common], help="end all that runs on a node; its job: NODE_FAIL")
    kill.add_argument("node")
    kill.set_defaults(call=call_kill_node)

    start = commands.add_parser("start-node", parents=[common], help="bring a killed node back")
    start.add_argument("node")
    start.set_defaults(call=call_start_node)
    return top


def absolute(text: str) -> Path:
    return Path(text).resolve()


def counts(text: str) -> tuple[int, ...]:
    return tuple(int(part) for part in text.split(","))


def call_up(arguments: argparse.Namespace) -> int:
    wanted = Cluster(
        folder=arguments.dir,
        nodes=arguments.nodes,
        gpus=arguments.gpus,
        rate=arguments.rate,
        accounting=not arguments.no_accounting,
        names=not arguments.no_names,
    )
    begin = time.monotonic()
    cluster = lifecycle.up(wanted)
    print(usage(cluster, time.monotonic() - begin))
    return 0


def usage(cluster: Cluster, took_s: float) -> str:
    """How to use a cluster that is up."""
    nodes = " ".join(host.name for host in cluster.compute)
    rate = "at full speed" if cluster.rate == "none" else f"at {cluster.rate}"
    each = ",".join(map(str, cluster.gpus))
    gpus = f"{each} GPUs each" if len(cluster.gpus) == 1 else f"{each} GPUs"
    option = "" if cluster.folder == DEFAULT_FOLDER else f" --dir {cluster.folder}"
    return f"""\
cluster {cluster.name}: nodes {nodes}, {gpus}, links {rate}; ready after {took_s:.1f} s
use:        export {shlex.join(f"{name}={value}" for name, value in cluster.env.items())}
            srun --nodes={cluster.nodes} hostname
gloo:       export GLOO_SOCKET_IFNAME=eth0
addresses:  {cluster.network}, on the bridge {cluster.name} of this machine and nowhere else
take down:  virtual-cluster down{option}"""


def call_down(arguments: argparse.Namespace) -> int:
    removed = lifecycle.down(arguments.dir)
    print(f"cluster in {arguments.dir} taken down" if removed else f"no cluster in {arguments.dir}")
    return 0


def call_status(arguments: argparse.Namespace) -> int:
    status = lifecycle.status(arguments.dir)
    if arguments.json:
        print(json.dumps(status, indent=2))
    else:
        print(f"cluster {status['name']} in {status['folder']}: {'up' if status['up'] else 'not complete'}")
        for name, pid in status["pids"].items():
            print(f"  {name:<20} {pid or 'does not run'}")
        for name, node in status["nodes"].items():
            sent, received = node["sent_bytes"], node["received_bytes"]
            print(f"  {name:<20} {node['address']}  {node['state']}  sent {sent} B, received {received} B")
    return 0 if status["up"] else 1


def call_exec(arguments: argparse.Namespace) -> int:
    cluster = lifecycle.load(arguments.dir)
    command = arguments.command[1:] if arguments.command[:1] == ["--"] else arguments.command
    if not command:
        raise ClusterError("exec NODE -- COMMAND: no command given")
    argv = cluster.node(arguments.node).enter(*command)
    os.execvpe(argv[0], argv, {**os.environ, "PATH": os.environ.get("PATH", PATH), **cluster.env})


def call_rate(arguments: argparse.Namespace) -> int:
    cluster = lifecycle.set_rate(arguments.dir, arguments.rate)
    print(f"links of cluster {cluster.name}: {cluster.rate}")
    return 0


def call_kill_node(arguments: argparse.Namespace) -> int:
    print(f"{lifecycle.kill_node(arguments.dir, arguments.node).name} killed")
    return 0


def call_start_node(arguments: argparse.Namespace) -> int:
    print(f"{lifecycle.start_node(arguments.dir, arguments.node).name} is back")
    return 0
