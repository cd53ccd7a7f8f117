"""The classifier of job output: real texts where they are present, short ones of our own, and properties."""

from __future__ import annotations

import json
import re
import time
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from harness.execute.classify import _PROBES, Verdict, classify_exit, classify_text
from harness.failure import FailureClass as F

SHARED = Path(__file__).parents[3].parent / "shared" / "inputs" / "topology"
EXPECTED: dict[str, dict[str, Any]] = json.loads((SHARED / "EXPECTED.json").read_text()) if SHARED.is_dir() else {}
REAL = sorted(name for name in EXPECTED if re.match(r"[ec]\d", name))
OUR_NAME = {
    "gpu_oom": F.DEVICE_OOM,
    "nccl_timeout": F.COLLECTIVE_TIMEOUT,
    "gpu_hardware": F.HARDWARE,
    "slurm_request": F.BAD_REQUEST,
}


@pytest.mark.parametrize("name", REAL or [pytest.param("", marks=pytest.mark.skip("no shared inputs here"))])
def test_real_texts_read_as_stated(name: str) -> None:
    text, stated = (SHARED / name).read_text(), EXPECTED[name]
    verdict = classify_text(text)
    failure = stated.get("failure")
    assert verdict.failure == (F.NONE if failure is None else OUR_NAME.get(failure, failure))
    assert verdict.fatal is stated.get("fatal", failure is not None)
    assert verdict.line is None or verdict.line in text
    if "node" in stated:
        assert verdict.host == stated["node"]
    if "rank" in stated:
        assert verdict.rank == stated["rank"]
    if stated.get("fragmentation"):
        assert verdict.detail == "fragmentation"
    if stated.get("external"):
        assert verdict.detail == "memory held by another process"


TEXTS: tuple[tuple[F, str], ...] = (
    (F.DEVICE_OOM, "RuntimeError: CUDA error: out of memory\n"
                   "CUDA kernel errors might be asynchronously reported"),
    (F.DEVICE_OOM, "RuntimeError: HIP error: out of memory"),
    (F.DEVICE_OOM, "RuntimeError: CUDA error: CUBLAS_STATUS_ALLOC_FAILED when calling `cublasCreate(handle)`"),
    (F.DEVICE_OOM, "a1:77:99 [0] misc/strongstream.cc:53 NCCL WARN Cuda failure 'out of memory'"),
    (F.DEVICE_OOM, "a1:77:99 [0] enqueue.cc:73 NCCL WARN Cuda failure 2 'out of memory'"),
    (F.DEVICE_OOM, "hipErrorOutOfMemory"),
    (F.DEVICE_OOM, "torch.cuda.OutOfMemoryError: CUDA out of memory. Tried to allocate 2.00 GiB"),
    (F.DEVICE_OOM, "torch.AcceleratorError: CUDA error: out of memory"),
    (F.DEVICE_OOM, "[rank2]: torch.OutOfMemoryError: CUDA out of memory.\n"
                   "[rank3]: Connection closed by peer"),
    (F.DEVICE_OOM, "torch.cuda.OutOfMemoryError: HIP out of memory. Tried to allocate 256.00 MiB (GPU "
                   "0; 63.98 GiB total capacity; 60.94 GiB already allocated; 0 bytes free; 63.20 GiB "
                   "reserved in total by PyTorch)"),
    (F.DEVICE_OOM, "RuntimeError: NCCL Error 1: unhandled cuda error\n"
                   "n1:1:2 [0] NCCL WARN Cuda failure 'out of memory'"),
    (F.HOST_OOM, "slurmstepd: error: Detected 1 oom_kill event in StepId=12.0. Some of the step tasks "
                 "have been OOM Killed."),
    (F.HOST_OOM, "srun: error: n1: task 3: Killed\n"
                 "srun: error: n1: task 2: Out Of Memory"),
    (F.HOST_OOM, "slurmstepd: error: Job 41176 exceeded memory limit (3940736 > 2068480), being killed\n"
                 "slurmstepd: error: *** JOB 41176 ON n1 CANCELLED AT 2016-11-30T10:21:37 ***"),
    (F.HOST_OOM, "slurmstepd: error: Exceeded step memory limit at some point."),
    (F.HOST_OOM, "kernel: Memory cgroup out of memory: Killed process 4242 (python) total-vm:90kB"),
    (F.HOST_OOM, "python invoked oom-killer: gfp_mask=0xcc0, order=0, oom_score_adj=0"),
    (F.HOST_OOM, "terminate called after throwing an instance of 'std::bad_alloc'\n"
                 "  what():  std::bad_alloc"),
    (F.HOST_OOM, "Traceback (most recent call last):\n"
                 '  File "t.py", line 1, in <module>\n'
                 "    x()\n"
                 "MemoryError"),
    (F.HOST_OOM, "RuntimeError: [enforce fail at alloc_cpu.cpp:118] err == 0. DefaultCPUAllocator: "
                 "can't allocate memory: you tried to allocate 80 bytes. Error code 12 (Cannot "
                 "allocate memory)"),
    (F.HOST_OOM, "OSError: [Errno 12] Cannot allocate memory"),
    (F.HOST_OOM, "numpy.core._exceptions._ArrayMemoryError: Unable to allocate 74.5 GiB for an array "
                 "with shape (9,)"),
    (F.HOST_OOM, "srun: error: n1: task 0: Killed\n"
                 "slurmstepd: error: *** STEP 3.0 ON n1 CANCELLED AT 2024-01-01T00:00:00 ***\n"
                 "slurmstepd: error: Detected 2 oom_kill events in StepId=3.0. Some of the step tasks "
                 "have been OOM Killed."),
    (F.HOST_OOM, "JobId=5 JobState=OUT_OF_MEMORY Reason=OutOfMemory"),
    (F.HOST_OOM, "1234.batch  batch  OUT_OF_ME+    0:125 \n"),
    (F.HOST_OOM, "RuntimeError: unable to mmap 68 bytes from file </torch_1_2>: Cannot allocate memory (12)"),
    (F.HOST_OOM, "slurmstepd: error: Detected 3 oom_kill events in StepId=1.batch. Some of the step "
                 "tasks have been OOM Killed.\n"
                 "srun: error: n1: task 0: Out Of Memory"),
    (F.HOST_OOM, "[1] Out of memory: Killed process 1234 (python3)"),
    (F.HOST_OOM, "slurmstepd: error: Detected 1 oom-kill event(s) in StepId=1.0 cgroup. Some of your "
                 "processes may have been killed by the cgroup out-of-memory handler.\n"
                 "slurmstepd: error: *** STEP 1.0 ON n1 CANCELLED AT 2024-05-05T01:01:01 ***"),
    (F.COLLECTIVE_TIMEOUT, "RuntimeError: [../third_party/gloo/gloo/transport/tcp/unbound_buffer.cc:81] Timed "
                           "out waiting 1800000ms for recv operation to complete"),
    (F.COLLECTIVE_TIMEOUT, "[E ProcessGroupNCCL.cpp:828] [Rank 1] Watchdog caught collective operation timeout: "
                           "WorkNCCL(SeqNum=7, OpType=ALLREDUCE, Timeout(ms)=1800000) ran for 1800116 "
                           "milliseconds before timing out.\n"
                           "[E ProcessGroupNCCL.cpp:455] Some NCCL operations have failed or timed out.\n"
                           "terminate called after throwing an instance of 'std::runtime_error'\n"
                           "srun: error: n1: task 1: Aborted (core dumped)\n"
                           "srun: error: n1: task 0: Killed"),
    (F.COLLECTIVE_TIMEOUT, "torch.distributed.DistStoreError: Timed out after 301 seconds waiting for clients. "
                           "1/2 clients joined."),
    (F.COLLECTIVE_TIMEOUT, "torch.distributed.DistStoreError: wait timeout after 300000ms, keys: "
                           "/default_pg/0//cuda//0"),
    (F.COLLECTIVE_TIMEOUT, "RuntimeError: Timed out initializing process group in store based barrier on rank: "
                           "1, for key: k"),
    (F.COLLECTIVE_TIMEOUT, "RuntimeError: Rank 0: Ranks 3 failed to pass monitoredBarrier in 30000 ms"),
    (F.COLLECTIVE_TIMEOUT, "RuntimeError: Detected mismatch between collectives on ranks. Rank 1 is running "
                           "collective: X"),
    (F.COLLECTIVE_TIMEOUT, "RuntimeError: Socket Timeout"),
    (F.COLLECTIVE_TIMEOUT, "torch.distributed.elastic.rendezvous.api.RendezvousTimeoutError"),
    (F.COLLECTIVE_TIMEOUT, "[pair.cc:161] Application timeout caused pair closure"),
    (F.COLLECTIVE_TIMEOUT, "[rank0]:[E1015 12:00:00.1 ProcessGroupNCCL.cpp:616] [Rank 0] Watchdog caught "
                           "collective operation timeout\n"
                           "slurmstepd: error: *** JOB 5 ON n1 CANCELLED AT 2024-01-01T00:00:00 DUE TO TIME LIMIT ***"),
    (F.COLLECTIVE_TIMEOUT, "RuntimeError: NCCL communicator was aborted on rank 0.  Original reason for failure "
                           "was: [Rank 0] Watchdog caught collective operation timeout: WorkNCCL(SeqNum=5)"),
    (F.COLLECTIVE_TIMEOUT, "RuntimeError: [1] is setting up NCCL communicator and retrieving ncclUniqueId from "
                           "[0] via c10d key-value store by key '0', but store->get('0') got error: Socket Timeout"),
    (F.COLLECTIVE_TIMEOUT, "[rank3]:[E1120 08:00:00.1 ProcessGroupNCCL.cpp:1785] [PG ID 0 PG GUID 0(default_pg) "
                           "Rank 3] Exception (either an error or timeout) detected by watchdog at work: 12, "
                           "last enqueued NCCL work: 13, last completed NCCL work: 11."),
    (F.COLLECTIVE_TIMEOUT, "[rank5]:[E ProcessGroupNCCL.cpp:1537] [PG 0 Rank 5] Received a timeout signal from "
                           "this local rank and will start to dump the debug info."),
    (F.COLLECTIVE_TIMEOUT, "torch.distributed.DistBackendError: Timed out waiting 600000ms for send operation "
                           "to complete"),
    (F.NETWORK, "RuntimeError: [../third_party/gloo/gloo/transport/tcp/pair.cc:598] Connection "
                "closed by peer [192.0.2.1]:3391"),
    (F.NETWORK, "RuntimeError: Connection reset by peer"),
    (F.NETWORK, "wandb: Connection refused, retrying\nRuntimeError: Connection refused"),
    (F.NETWORK, "ncclRemoteError: A call failed possibly due to a network error or a remote process "
                "exiting prematurely."),
    (F.NETWORK, "torch.distributed.DistNetworkError: The client socket has timed out after 60000ms "
                "while trying to connect to (n1, 1)"),
    (F.NETWORK, "ssh: Could not resolve hostname n7: Name or service not known"),
    (F.NETWORK, "a1:7:9 [1] transport/net_ib.cc:93 NCCL WARN NET/IB : mlx5_0:1 Got async event : port error"),
    (F.NETWORK, "a1:7:9 [1] ibvwrap.cc NCCL WARN Got completion from peer with "
                "status=IBV_WC_RETRY_EXC_ERR(12) opcode=0\n"
                "[Rank 1] Watchdog caught collective operation timeout"),
    (F.NETWORK, "a1:7:9 [1] misc/socket.cc:50 NCCL WARN socketStartConnect: Connect to 192.0.2.4<4> "
                "failed : Connection refused"),
    (F.NETWORK, "sbatch: error: Batch job submission failed: Socket timed out on send/recv operation"),
    (F.NETWORK, "sbatch: error: Batch job submission failed: Unable to contact slurm controller "
                "(connect failure)"),
    (F.NETWORK, "slurm_load_jobs error: Zero Bytes were transmitted or received"),
    (F.NETWORK, "srun: error: Unable to create step for job 7: Socket timed out on send/recv operation"),
    (F.NETWORK, "RuntimeError: Gloo connectFullMesh failed with "
                "[/pytorch/gloo/transport/tcp/pair.cc:144] no error"),
    (F.NETWORK, "[Rank 3] NCCL watchdog thread terminated with exception: NCCL error: remote process "
                "exited or there was a network error, NCCL version 2.18.1\n"
                "ncclRemoteError: A call failed possibly due to a network error or a remote process "
                "exiting prematurely.\n"
                "Last error:\n"
                "socketProgressOpt: Call to recv from 10.0.0.3<40532> failed : Connection reset by peer"),
    (F.NETWORK, "RuntimeError: NCCL error in: "
                "../torch/csrc/distributed/c10d/ProcessGroupNCCL.cpp:1275, internal error, NCCL "
                "version 2.14.3\n"
                "ncclInternalError: Internal check failed.\n"
                "Last error:\n"
                "Net : Connect to 10.1.1.1<3> failed : No route to host"),
    (F.NETWORK, "2024 ucx_worker.c:1 UCX  ERROR Transport retry count exceeded on mlx5_0:1/RoCE "
                "(synd 0x15 vend 0x81 hw_synd 0/0)"),
    (F.NETWORK, "torch.distributed.DistNetworkError: The client socket has failed to connect to any "
                "network address of (node1, 29500). The IPv6 network addresses of (node1, 29500) "
                "cannot be retrieved (gai error: -2 - Name or service not known)."),
    (F.NETWORK, "srun: error: Unable to confirm allocation for job 1: Unable to contact slurm "
                "controller (connect failure)"),
    (F.NETWORK, "RuntimeError: Connection refused"),
    (F.NETWORK, "nid1:1:2 [0] NCCL WARN NET/OFI Request 0x1 completed with error. RC: 5. Error: "
                "Input/output error"),
    (F.NETWORK, "TimeoutError: The client socket has timed out after 900s while trying to connect to "
                "(n1, 29500)."),
    (F.NETWORK, "[E socket.cpp:860] [c10d] The client socket has timed out after 60s while trying to "
                "connect to (n1, 29400)."),
    (F.NODE_FAILURE, "slurmstepd: error: *** JOB 9 ON n7 CANCELLED AT 2024-01-01T00:00:00 DUE TO NODE "
                     "FAILURE, SEE SLURMCTLD LOG ***"),
    (F.NODE_FAILURE, "srun: error: Nodes n7 are still not ready\n"
                     "srun: error: Something is wrong with the boot of the nodes."),
    (F.NODE_FAILURE, "srun: error: Task launch for StepId=3.0 failed on node n4: Invalid job credential"),
    (F.NODE_FAILURE, "JobId=5 JobState=NODE_FAIL Reason=NodeDown Dependency=(null)"),
    (F.NODE_FAILURE, "srun: error: Node failure on gpu[03-04]\n"
                     "Traceback (most recent call last):\n"
                     "RuntimeError: CUDA error: unknown error"),
    (F.HARDWARE, "NVRM: Xid (PCI:0000:3b:00): 79, pid=1234, GPU has fallen off the bus."),
    (F.HARDWARE, "NVRM: Xid (PCI:0000:3b:00): 48, pid=1, DBE\n"
                 "RuntimeError: CUDA error: unspecified launch failure"),
    (F.HARDWARE, "[12.3] NVRM: Xid (PCI:0000:B3:00): 94, Contained: SM (0x1). RST: No, D-RST: No"),
    (F.HARDWARE, "RuntimeError: CUDA error: uncorrectable NVLink error detected during the execution"),
    (F.HARDWARE, "Unable to determine the device handle for GPU 0000:3B:00.0: GPU is lost.  Reboot "
                 "the system to recover"),
    (F.HARDWARE, "HW Exception by GPU node-4 (Agent handle: 0x55) reason :GPU Hang"),
    (F.HARDWARE, "[ 12.3] NVRM: Xid (PCI:0000:b5:00): 74, pid='<unknown>', name=<unknown>, NVLink: "
                 "fatal error detected on link 6(0x10000, 0x0)"),
    (F.HARDWARE, "[Thu Nov 10] NVRM: Xid (PCI:0000:41:00): 119, pid=1, Timeout waiting for RPC from GSP!"),
    (F.HARDWARE, "torch.AcceleratorError: CUDA error: unspecified launch failure\n"
                 "[1.2] NVRM: Xid (PCI:0000:41:00): 95, pid=1, Uncontained: LTC TAG"),
    (F.HARDWARE, "nvidia-nvswitch3: SXid (PCI:0000:c4:00.0): 22013, Fatal, Link 40 Minion Link DLREQ "
                 "interrupt"),
    (F.HARDWARE, "NVRM: Xid (0000:03:00): 79, GPU has fallen off the bus."),
    (F.HARDWARE, "x/nvls.cc:254 NCCL WARN Cuda failure 802 'system not yet initialized'"),
    (F.TIME_LIMIT, "slurmstepd: error: *** JOB 9 ON n7 CANCELLED AT 2024-01-01T00:00:00 DUE TO TIME "
                   "LIMIT ***\n"
                   "Received SIGTERM, exiting\n"
                   "srun: error: n7: task 0: Terminated\n"
                   "RuntimeError: Connection closed by peer"),
    (F.TIME_LIMIT, "slurmstepd: error: *** JOB 9 ON n7 CANCELLED AT 2024-01-01T00:00:00\n"
                   "    DUE TO TIME LIMIT ***"),
    (F.TIME_LIMIT, "submitit WARNING (2024-01-01) - Caught signal SIGUSR2 on n1: this job is timed-out."),
    (F.TIME_LIMIT, "=>> PBS: job killed: walltime 3602 exceeded limit 3600"),
    (F.TIME_LIMIT, "JobId=5 JobState=TIMEOUT Reason=TimeLimit"),
    (F.TIME_LIMIT, "1234.batch  batch  TIMEOUT      0:15 \n"),
    (F.TIME_LIMIT, "[rank0]: Traceback (most recent call last):\n"
                   '[rank0]:   File "x.py", line 1, in f\n'
                   "slurmstepd: error: *** JOB 3 ON n1 CANCELLED AT 2024-05-05T01:01:01 DUE TO TIME "
                   "LIMIT ***\n"
                   "[rank0]: torch.distributed.elastic.multiprocessing.api.SignalException: Process 3 "
                   "got signal: 15"),
    (F.TIME_LIMIT, "10763191_3  TIMEOUT  00:02:09  0:0"),
    (F.TIME_LIMIT, "slurmstepd: error: *** STEP 4.0 ON n1 CANCELLED AT 2024-01-01T00:00:00 DUE TO TIME "
                   "LIMIT ***\n"
                   "srun: error: n1: task 0: Killed"),
    (F.PREEMPTED, "slurmstepd: error: *** JOB 9 ON n7 CANCELLED AT 2024-01-01T00:00:00 DUE TO "
                  "PREEMPTION ***\n"
                  "Killed"),
    (F.PREEMPTED, "slurmstepd: error: *** JOB 9 ON n7 CANCELLED AT 2024-01-01T00:00:00 DUE TO JOB REQUEUE ***"),
    (F.PREEMPTED, "slurmstepd: error: *** STEP 7.0 ON n1 CANCELLED AT 2024-05-05T01:01:01 DUE TO "
                  "PREEMPTION ***\n"
                  "srun: Job step aborted: Waiting up to 32 seconds for job step to finish.\n"
                  "srun: error: n1: task 0: Terminated\n"
                  "srun: error: n1: task 1: Killed"),
    (F.CANCELLED, "srun: Force Terminated job 17\n"
                  "srun: error: n1: task 0: Terminated"),
    (F.CANCELLED, "torch.distributed.elastic.multiprocessing.api.SignalException: Process 16 got signal: 15"),
    (F.CANCELLED, "Traceback (most recent call last):\n"
                  '  File "a.py", line 3, in f\n'
                  "    g()\n"
                  "KeyboardInterrupt"),
    (F.CANCELLED, "slurmstepd: error: *** STEP 1.0 ON n1 CANCELLED AT 2024-01-02T03:04:05 DUE to "
                  "SIGNAL Terminated ***"),
    (F.CANCELLED, "srun: error: n1: tasks 0-3: Terminated\n"
                  "srun: Job step aborted: Waiting up to 32 seconds for job step to finish."),
    (F.CANCELLED, "1234  wrap  CANCELLED by 1001  0:0"),
    (F.BAD_REQUEST, "sbatch: error: Batch job submission failed: Requested node configuration is not available"),
    (F.BAD_REQUEST, "sbatch: error: Batch job submission failed: Invalid account or account/partition "
                    "combination specified"),
    (F.BAD_REQUEST, "sbatch: error: QOSMaxSubmitJobPerUserLimit\n"
                    "sbatch: error: Batch job submission failed: Job violates accounting/QOS policy (job "
                    "submit limit, user's size and/or time limits)"),
    (F.BAD_REQUEST, "srun: error: Unable to allocate resources: Requested time limit is invalid (missing "
                    "or exceeds some limit)"),
    (F.BAD_REQUEST, "  17  gpu  run  me PD  0:00  4 (PartitionTimeLimit)"),
    (F.BAD_REQUEST, "sbatch: error: invalid partition specified: gpuu\n"
                    "sbatch: error: Batch job submission failed: Invalid partition name specified"),
    (F.BAD_REQUEST, "srun: fatal: SLURM_MEM_PER_CPU, SLURM_MEM_PER_GPU, and SLURM_MEM_PER_NODE are "
                    "mutually exclusive."),
    (F.BAD_REQUEST, "sbatch: unrecognized option '--gpu-per-node=4'"),
    (F.BAD_REQUEST, "salloc: error: Job submit/allocate failed: Invalid qos specification"),
    (F.BAD_REQUEST, "srun: error: Unable to allocate resources: Requested node configuration is not available"),
    (F.BAD_REQUEST, "sbatch: error: Batch job submission failed: Job violates accounting/QOS policy (job "
                    "submit limit, user's size and/or time limits)"),
    (F.BAD_REQUEST, "sbatch: error: AssocMaxSubmitJobLimit"),
    (F.BAD_REQUEST, 'srun: error: Invalid numeric value "x" for --cpus-per-task.'),
    (F.BAD_REQUEST, "sbatch: error: This does not look like a batch script.  The first\n"
                    "sbatch: error: line must start with #! followed by the path to an interpreter."),
    (F.BAD_REQUEST, "srun: error: Unable to create step for job 1: Invalid Trackable RESource (TRES) "
                    "specification"),
    (F.BAD_REQUEST, "srun: error: Only allocated 1 nodes asked for 2\n"
                    "srun: error: Unable to create step for job 2: More processors requested than permitted"),
    (F.CONFIG, "Traceback (most recent call last):\n"
               '  File "t.py", line 1, in <module>\n'
               "ModuleNotFoundError: No module named 'x'"),
    (F.CONFIG, "ImportError: libcuda.so.1: cannot open shared object file: No such file or directory"),
    (F.CONFIG, "train.py: error: unrecognized arguments: --batchsize 4\n"
               "srun: error: n1: task 0: Exited with exit code 2"),
    (F.CONFIG, "Traceback (most recent call last):\n"
               '  File "t.py", line 1, in f\n'
               "ValueError: heads (3) not divisible by tp (2)"),
    (F.CONFIG, "RuntimeError: CUDA error: invalid device ordinal"),
    (F.CONFIG, "/var/spool/slurmd/job7/slurm_script: line 12: conda: command not found"),
    (F.CONFIG, "OSError: [Errno 28] No space left on device"),
    (F.CONFIG, "[E socket.cpp:435] [c10d] The server socket has failed to bind to [::]:29500 "
               "(errno: 98 - Address already in use)."),
    (F.CONFIG, "slurmstepd: error: execve(): train.sh: No such file or directory"),
    (F.CONFIG, "a1:7:9 [0] init.cc:1 NCCL WARN Duplicate GPU detected : rank 1 and rank 0 both on "
               "CUDA device 1000\n"
               "ncclInvalidUsage: This usually reflects invalid usage of NCCL library."),
    (F.CONFIG, "RuntimeError: No CUDA GPUs are available"),
    (F.CONFIG, 'Lmod has detected the following error: The following module(s) are unknown: "cuda/99"'),
    (F.CONFIG, "ImportError: cannot import name 'x' from 'y'"),
    (F.CONFIG, "torch.distributed.DistNetworkError: The server socket has failed to listen on any "
               "local network address. port: 29500, useIpv6: false, code: -98, name: EADDRINUSE, "
               "message: address already in use"),
    (F.CONFIG, "RuntimeError: unable to open shared memory object </torch_1_2> in read-write mode: "
               "No space left on device (28)"),
    (F.CONFIG, "usage: train.py [-h] --x X\n"
               "train.py: error: the following arguments are required: --x"),
    (F.CONFIG, "RuntimeError: Found no NVIDIA driver on your system. Please check that you have an "
               "NVIDIA GPU"),
    (F.CONFIG, "/lib64/libstdc++.so.6: version `GLIBCXX_3.4.29' not found (required by x.so)"),
    (F.CONFIG, "FileNotFoundError: [Errno 2] No such file or directory: '/data/x'"),
    (F.CONFIG, "pydantic_core._pydantic_core.ValidationError: 1 validation error for Spec"),
    (F.CONFIG, "[error] ValueError: Error initializing torch.distributed using env:// rendezvous: "
               "environment variable RANK expected, but not set"),
    (F.CRASH, "RuntimeError: CUDA error: an illegal memory access was encountered"),
    (F.CRASH, "RuntimeError: CUDA error: device-side assert triggered\n"
              "[Rank 1] Watchdog caught collective operation timeout"),
    (F.CRASH, "Memory access fault by GPU node-4 (Agent handle: 0x1) on address 0x7f. Reason: Unknown."),
    (F.CRASH, "srun: error: n1: task 2: Segmentation fault (core dumped)\n"
              "RuntimeError: Connection closed by peer [192.0.2.1]:1"),
    (F.CRASH, "Fatal Python error: Segmentation fault"),
    (F.CRASH, "bash: line 1: 4242 Killed                  python train.py"),
    (F.CRASH, "srun: error: n1: task 2: Killed\n"
              "[Rank 1] Watchdog caught collective operation timeout: ran for 9 milliseconds"),
    (F.CRASH, "torch.multiprocessing.spawn.ProcessExitedException: process 0 terminated with "
              "signal SIGKILL"),
    (F.CRASH, "RuntimeError: DataLoader worker (pid 7) is killed by signal: Bus error. It is "
              "possible that ..."),
    (F.CRASH, "Traceback (most recent call last):\n"
              '  File "t.py", line 1, in f\n'
              "KeyError: 'x'\n"
              "[rank1]: RuntimeError: Connection closed by peer"),
    (F.CRASH, "NVRM: Xid (PCI:0000:3b:00): 31, pid=7, MMU Fault"),
    (F.CRASH, "srun: error: n1: task 0: Exited with exit code 1"),
    (F.CRASH, "srun: error: n1: task 2: Exited with exit code 1\n"
              "srun: Terminating StepId=1.0\n"
              "slurmstepd: error: *** STEP 1.0 ON n1 CANCELLED AT 2024-01-02T03:04:05 ***\n"
              "srun: error: n2: tasks 4-7: Terminated"),
    (F.CRASH, "[n1:12345] *** Process received signal ***\n"
              "[n1:12345] Signal: Segmentation fault (11)\n"
              "[n1:12345] Signal code: Address not mapped (1)"),
    (F.CRASH, "mpirun noticed that process rank 3 with PID 0 on node n2 exited on signal 9 (Killed)."),
    (F.CRASH, "[ 1.2] NVRM: Xid (PCI:0000:41:00): 13, pid=9, Graphics SM Warp Exception on (GPC 0, "
              "TPC 0, SM 0): Out Of Range Address"),
    (F.CRASH, "torch.distributed.elastic.multiprocessing.errors.ChildFailedError: \n"
              " train.py FAILED\n"
              "Root Cause (first observed failure):\n"
              "[0]:\n"
              "  time      : 2025\n"
              "  host      : h3\n"
              "  rank      : 4 (local_rank: 4)\n"
              "  exitcode  : 1 (pid: 9)\n"
              "  error_file: <N/A>\n"
              "  traceback : To enable traceback see: https://pytorch.org/docs/stable/elastic/errors.html"),
    (F.CRASH, "E failed (exitcode: -6) local_rank: 0 (pid: 1) of binary: /usr/bin/python"),
    (F.CRASH, "Signal 11 (SIGSEGV) received by PID 4242"),
    (F.CRASH, "ncclInternalError: Internal check failed."),
    (F.CRASH, "RuntimeError: NCCL Error 1: unhandled cuda error (run with NCCL_DEBUG=INFO for details)"),
    (F.CRASH, "srun: error: gpu3: task 5: Aborted (core dumped)"),
    (F.CRASH, "Fatal Python error: Aborted\n"
              "\n"
              "Thread 0x1 (most recent call first):"),
    (F.CRASH, "RuntimeError: DataLoader worker (pid(s) 12, 13) exited unexpectedly"),
    (F.CRASH, "[2024-01-01 00:00:00,000] [ERROR] [launch.py:321:sigkill_handler] ['python', "
              "'x.py'] exits with return code = -9"),
    (F.CRASH, "died with <Signals.SIGKILL: 9>."),
    (F.CRASH, "Process finished with exit code 137 (interrupted by signal 9: SIGKILL)"),
    (F.CRASH, "hipErrorLaunchFailure"),
    (F.CRASH, "RuntimeError: HIP error: invalid argument"),
    (F.CRASH, ":0:rocdevice.cpp:2660: Device::callbackQueue aborting with error : "
              "HSA_STATUS_ERROR_MEMORY_APERTURE_VIOLATION: code: 0x29"),
    (F.CRASH, "AssertionError: Expected throughput to be at least 5.0\n"
              "srun: error: n1: task 0: Exited with exit code 1\n"
              "srun: Terminating job step 3.0\n"
              "slurmstepd: error: *** STEP 3.0 ON n1 CANCELLED AT 2024-04-03T09:40:00 ***\n"
              "srun: error: n1: tasks 1,3-5: Terminated\n"
              "srun: error: n1: tasks 2,6-7: Killed\n"
              "srun: Force Terminated job step 3.0"),
    (F.LOST, ""),
    (F.LOST, " \n"
             "\t\n"),
    (F.NONE, "step 10 loss 2.31 tokens/s 5100"),
    (F.NONE, "Config(timeout=1800, error_if_nonfinite=True, on_oom='skip', kill_on_bad_exit=1, "
             "NCCL_TIMEOUT=600)"),
    (F.NONE, "done: 100 steps, 0 errors, 0 warnings"),
    (F.NONE, "a1:7:9 [0] NCCL INFO Call to connect returned Connection refused, retrying"),
    (F.NONE, "[W socket.cpp:601] [c10d] The client socket has failed to connect to [::]:29500 "
             "(errno: 99 - Cannot assign address)."),
    (F.NONE, "[rank0]:[W1015 12:00:00.1 TCPStore.cpp:106] [c10d] sendBytes failed on "
             "SocketImpl(fd=5): Broken pipe"),
    (F.NONE, "/x/a.py:3: FutureWarning: `torch.cuda.amp.autocast(args...)` is deprecated.\n"
             "  with autocast():"),
    (F.NONE, "UserWarning: CUDA initialization: CUDA out of memory is possible later"),
    (F.NONE, "srun: Job 7 step creation temporarily disabled, retrying (Requested nodes are busy)\n"
             "step 1 loss 2.0"),
    (F.NONE, "wandb: ERROR Network error (ConnectionError: Connection refused), entering retry loop."),
    (F.NONE, "oom_kill 0\n"
             "oom 0\n"
             "memory.max 1"),
    (F.NONE, "Volatile Uncorrectable ECC errors: 0"),
    (F.NONE, "val_error: 0.25\n"
             "train_error: 0.5\n"
             "Error: 0.3"),
    (F.NONE, "Exception ignored in: <function f at 0x7f>\n"
             "Traceback (most recent call last):\n"
             '  File "a.py", line 1, in f\n'
             "AttributeError: 'NoneType' object has no attribute 'x'"),
    (F.NONE, "NVRM: loading NVIDIA UNIX x86_64 Kernel Module  535.104.05"),
    (F.NONE, "ERROR: ld.so: object '/x/libx.so' from LD_PRELOAD cannot be preloaded (cannot open "
             "shared object file): ignored."),
    (F.NONE, "n1:1:2 [0] NCCL WARN NET/IB : No device found."),
    (F.NONE, "1234.batch  batch  COMPLETED   0:0"),
    (F.NONE, "srun: job 123 queued and waiting for resources\n"
             "srun: job 123 has been allocated resources\n"
             "hello"),
    (F.NONE, "salloc: Granted job allocation 12\n"
             "salloc: Relinquishing job allocation 12"),
    (F.NONE, "srun: Warning: can't run 1 processes on 2 nodes, setting nnodes to 1"),
    (F.NONE, "[2024-01-01 00:00:00,000] torch.distributed.run: [WARNING] Setting OMP_NUM_THREADS "
             "environment variable for each process to be 1 in default, to avoid your system "
             "being overloaded"),
    (F.NONE, "INFO: grad_norm=inf skipped=0 failed=0 timeouts=0 killed=0"),
    (F.NONE, "terminating training normally; saved checkpoint, exit code: 0"),
    (F.NONE, "[rank0]:[W1120 ProcessGroupNCCL.cpp:4115] [PG ID 0 PG GUID 0 Rank 0]  using GPU 0 "
             "to perform barrier as devices used by this process are currently unknown. This can "
             "potentially cause a hang if this rank to GPU mapping is incorrect."),
    (F.NONE, "nvidia-nvswitch3: SXid (PCI:0000:c4:00.0): 12028, Non-fatal, Link 40"),
    (F.NONE, "[W socket.cpp:697] [c10d] The client socket has failed to connect to [n1]:3442\n"
             "(errno: 101 - Network is unreachable).\n"
             "Epoch: 1"),
)  # fmt: skip


@pytest.mark.parametrize(("failure", "text"), TEXTS)
def test_short_texts(failure: F, text: str) -> None:
    verdict = classify_text(text)
    assert verdict.failure is failure, verdict
    assert (verdict.line is None) == (failure in (F.NONE, F.LOST))


@pytest.mark.parametrize(("failure", "text"), [pair for pair in TEXTS if pair[0] not in (F.NONE, F.LOST)])
def test_labels_and_terminal_colours_change_nothing(failure: F, text: str) -> None:
    training = "step 1 loss 2.0\n" * 3
    assert classify_text(training + text + "\n" + training).failure is failure
    assert classify_text("\n".join(f"0: {line}" for line in text.split("\n"))).failure is failure
    assert classify_text("\n".join(f"\x1b[31m{line}\x1b[0m" for line in text.split("\n"))).failure is failure


def test_torchrun_summary_names_rank_host_and_signal() -> None:
    verdict = classify_text(
        "E0325 20:57:27 2606 torch/distributed/elastic/multiprocessing/api.py:869] failed (exitcode: -9)\n"
        "torch.distributed.elastic.multiprocessing.errors.ChildFailedError: \n"
        "train.py FAILED\nFailures:\n  <NO_OTHER_FAILURES>\n"
        "Root Cause (first observed failure):\n[0]:\n  time      : 2025-05-21_15:43:03\n  host      : worker-3\n"
        "  rank      : 13 (local_rank: 5)\n  exitcode  : -9 (pid: 14750)\n  error_file: <N/A>\n"
        "  traceback : Signal 9 (SIGKILL) received by PID 14750\n"
    )
    assert (verdict.failure, verdict.rank, verdict.host) == (F.CRASH, 13, "worker-3")
    assert verdict.rule == "killed by signal 9 (SIGKILL)"


@pytest.mark.parametrize(
    ("frame", "phase"),
    [
        ("    loss.backward()", "in backward"),
        ("    self.optimizer.step()", "in optimizer"),
        ('  File "m.py", line 4, in forward', "in forward"),
        ("    start()", None),
    ],
)
def test_out_of_memory_names_its_phase(frame: str, phase: str | None) -> None:
    text = f'Traceback (most recent call last):\n  File "t.py", line 9, in main\n{frame}\n'
    assert classify_text(text + "torch.OutOfMemoryError: CUDA out of memory. Tried to allocate").detail == phase


def test_out_of_memory_tells_fragmentation_in_the_recent_wording() -> None:
    verdict = classify_text(
        "torch.OutOfMemoryError: CUDA out of memory. Tried to allocate 1.00 GiB. GPU 0 has a total capacity of "
        "79.15 GiB of which 500.00 MiB is free. Including non-PyTorch memory, this process has 78.00 GiB memory in "
        "use. Of the allocated memory 60.00 GiB is allocated by PyTorch, and 17.00 GiB is reserved by PyTorch "
        "but unallocated."
    )
    assert verdict.detail == "fragmentation"


def test_rank_comes_from_the_deciding_line() -> None:
    assert classify_text("[rank3]: torch.OutOfMemoryError: CUDA out of memory.").rank == 3
    assert classify_text("srun: error: n2: task 5: Segmentation fault").rank == 5
    assert classify_text("srun: error: n2: task 5: Segmentation fault").host == "n2"


CLOSED = "RuntimeError: [../gloo/transport/tcp/pair.cc:598] Connection closed by peer [192.0.2.1]:33"
TIMED_OUT = "RuntimeError: Timed out waiting 30000ms for recv operation to complete"
TRACEBACK = "Traceback (most recent call last):\n  File 'a.py', line 1, in f\nKeyError: 'x'"
OOM = "torch.OutOfMemoryError: CUDA out of memory. Tried to allocate 1.00 GiB"


@pytest.mark.parametrize(
    ("codes", "texts", "failure", "rank"),
    [
        ({0: 0, 1: 0}, {0: "step 1", 1: ""}, F.NONE, None),
        ({0: 1, 1: -9, 2: 1}, {0: CLOSED, 2: CLOSED}, F.CRASH, 1),
        ({0: 1, 1: -9}, {0: TIMED_OUT, 1: "step 4 loss 2.0"}, F.CRASH, 1),
        ({0: 1, 1: -11}, {0: TIMED_OUT}, F.CRASH, 1),
        ({0: 1, 1: 1}, {0: CLOSED, 1: TRACEBACK}, F.CRASH, 1),
        ({0: -15, 1: 1, 2: -15}, {1: TRACEBACK}, F.CRASH, 1),
        ({0: -15, 1: 3}, {0: "", 1: ""}, F.CRASH, 1),
        ({0: 1, 1: 1}, {0: TIMED_OUT, 1: TIMED_OUT}, F.COLLECTIVE_TIMEOUT, 0),
        ({0: -15, 1: -6}, {1: "Watchdog caught collective operation timeout"}, F.COLLECTIVE_TIMEOUT, 1),
        ({0: 1, 1: 1, 2: -15}, {0: CLOSED, 1: OOM}, F.DEVICE_OOM, 1),
        ({0: 1, 1: 1}, {0: CLOSED, 1: CLOSED}, F.NETWORK, 0),
        ({0: 1, 1: None}, {0: CLOSED}, F.LOST, 1),
        ({0: -15, 1: -15}, {}, F.CANCELLED, 0),
        ({0: 137}, {}, F.CRASH, 0),
        ({}, {}, F.LOST, None),
    ],
)
def test_the_root_rank(codes: dict[int, int | None], texts: dict[int, str], failure: F, rank: int | None) -> None:
    verdict = classify_exit(codes, texts)
    assert (verdict.failure, verdict.rank) == (failure, rank), verdict


def test_a_killed_rank_is_named_with_its_signal() -> None:
    assert classify_exit({0: 0, 1: -9}, {}).rule == "killed by signal 9 (SIGKILL)"
    assert classify_exit({0: 250}, {}).rule == "exited with code 250"
    assert classify_exit({0: -9}, {0: "std::bad_alloc"}).failure is F.HOST_OOM


PIECES = st.one_of(
    st.text(max_size=40),
    st.sampled_from([probe.literal for _, probes in _PROBES for probe in probes]),
    st.sampled_from([text for _, text in TEXTS]),
    st.sampled_from(
        ["\n", "\r\n", "\x1b[1m", "\x85", "\u2028", "\ud800", "İ", "[rank1]: ", "Traceback (most recent call last):\n"]
    ),
)


@given(st.lists(PIECES, max_size=12).map("".join))
@settings(max_examples=150)
def test_any_text_has_a_verdict_that_can_be_stored(text: str) -> None:
    verdict = classify_text(text)
    assert Verdict.model_validate_json(verdict.model_dump_json()) == verdict
    assert verdict.fatal or verdict.failure in (F.NONE, F.HARDWARE, F.CRASH)


@given(
    st.dictionaries(st.integers(0, 7), st.one_of(st.none(), st.integers(-70, 300)), max_size=4),
    st.dictionaries(st.integers(0, 7), PIECES, max_size=4),
)
@settings(max_examples=60)
def test_any_exit_has_a_verdict(codes: dict[int, int | None], texts: dict[int, str]) -> None:
    verdict = classify_exit(codes, texts)
    assert (verdict.failure is F.NONE) <= all(code == 0 for code in codes.values())


@pytest.mark.parametrize(
    "unit",
    [
        "[rank0]: step 12 loss 2.3124 grad_norm 1.2 error 0 tokens/s 5120 comm 0x7f01ab rank 3 nranks 4\n",
        "[W socket.cpp:601] [c10d] The client socket has failed to connect, Connection refused, retrying\n",
        "srun: error: x: task 0 exit code 0 cancelled at signal xid Error ",
        "aaaa.bbbb.Cccc" * 8 + " ",
        "Traceback (most recent call last):\n  File\n",
    ],
)
def test_the_time_is_linear(unit: str) -> None:
    small, large = (unit * (size // len(unit)) for size in (100_000, 400_000))
    started = time.process_time()
    classify_text(small)
    between = time.process_time()
    classify_text(large)
    assert time.process_time() - between < 10 * (between - started) + 0.1
