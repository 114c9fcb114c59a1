#!/bin/sh
# SPDX-License-Identifier: Apache-2.0
# TaskProlog of slurmstepd: prints the variables by which a task reaches its job's namespace. Runs as the job's user for
# each task and batch script. What a task does to its variables afterwards gives it no more than its share: that is the
# namespace's. See docs/slurm.md.
set -eu
# shellcheck source=packaging/slurm/openmps-slurm.sh
. "${0%/*}/openmps-slurm.sh"

place=$(namespaces_of_job)
if [ -z "$place" ]; then
    [ -n "${SLURM_JOB_GPUS:-}${SLURM_STEP_GPUS:-}${CUDA_MPS_ACTIVE_THREAD_PERCENTAGE:-}" ] || exit 0
    say "there is no share of OpenMPS for it on this node, and its CUDA programs fail: see slurmd's log"
    place=none
fi

# The server counts the job's GPUs from 0, in Slurm's order. Those of a task may be some of them.
server=${place%/*}
visible=$(echo "${server##*-}" | tr '_' '\n' | awk -v of_task="${SLURM_STEP_GPUS:-}" '
    BEGIN { count = split(of_task, list, ","); for (i = 1; i <= count; i++) wanted[list[i]] }
    count == 0 || $1 in wanted { printf "%s%d", separator, NR - 1; separator = "," }')

echo "export CUDA_MPS_PIPE_DIRECTORY=$CUDA_MPS_PIPE_DIRECTORY/$place"
echo "export OPENMPS_REQUIRED=1"
echo "export CUDA_VISIBLE_DEVICES=$visible"
echo "export LD_LIBRARY_PATH=$(readlink -f "$openmps_library")${LD_LIBRARY_PATH:+:$LD_LIBRARY_PATH}"
# The namespace has the percentage; here it would keep the job from a larger one that it is given while it runs.
echo "unset CUDA_MPS_ACTIVE_THREAD_PERCENTAGE"
