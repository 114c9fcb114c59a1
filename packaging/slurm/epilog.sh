#!/bin/sh
# SPDX-License-Identifier: Apache-2.0
# Epilog of slurmd: writes down what the job has used of the GPUs, ends what still runs in its namespace, and removes
# the namespace. Runs as root on each node of a job, also of one that was cancelled. A failure drains the node: it means
# that a share is left, since the daemon does not answer. See docs/slurm.md.
set -eu
# shellcheck source=packaging/slurm/openmps-slurm.sh
. "${0%/*}/openmps-slurm.sh"

# A line for each GPU of the job that it has used: what all of its programs have, also those that have ended. Fails if
# that can't be read or written, which is said and keeps nobody from the node.
account() {
    totals=$(ask totals --csv) || { say "openmps-control totals: $totals" && return 1; }
    mkdir -p "${accounting%/*}" || return 1
    [ -s "$accounting" ] || echo "end,node,job,uid,user,gpu,programs,gpu_seconds,sm_seconds" >"$accounting" || return 1
    echo "$totals" | awk -F, -v server="${place%/*}" -v group="${place#*/}" \
        -v job="$(date -u +%Y-%m-%dT%H:%M:%SZ),$SLURMD_NODENAME,$SLURM_JOB_ID,$SLURM_JOB_UID,${SLURM_JOB_USER:-}" '
        NR == 1 {
            if ($0 != "SERVER,GROUP,DEVICE,CLIENTS,THERE,GPU SECONDS,SM SECONDS") {
                print "openmps: unknown totals: " $0 >"/dev/stderr"
                exit failed = 1
            }
        }
        $1 == server && $2 == group { print job "," $3 "," $4 "," $6 "," $7; used = 1 }
        END { if (!failed && !used) print job ",-,0,0,0"; exit failed }' >>"$accounting"
}

place=$(namespaces_of_job)
[ -n "$place" ] || [ "$attempt" -gt 1 ] || exit 0
wait_for_daemon
lock
if [ -n "$place" ]; then
    control namespace delete "${place#*/}" "--server=${place%/*}" --force
    if [ -n "$accounting" ] && ! account; then
        say "what it has used is not in $accounting"
    fi
fi
for server in "$CUDA_MPS_PIPE_DIRECTORY/slurm-$SLURM_JOB_UID"-*; do
    end_idle_server "${server##*/}"
done
