#!/bin/sh
# SPDX-License-Identifier: Apache-2.0
# Prolog of slurmd (Prolog= in slurm.conf, with PrologFlags=Alloc): makes the job's namespace, with the share of the GPU
# that the job has been given. Runs as root on each node of a job. A failure drains the node and queues the job again,
# so only what would let a job run without its share is one; a job without GPUs never fails here. See docs/slurm.md.
set -eu
# shellcheck source=packaging/slurm/openmps-slurm.sh
. "${0%/*}/openmps-slurm.sh"

[ -n "${SLURM_JOB_GPUS:-}" ] || exit 0
case $SLURM_JOB_GPUS,${CUDA_VISIBLE_DEVICES:-} in
*MIG*) fail "MIG instances are not shared by these scripts" ;;
esac
case $SLURM_JOB_GPUS in
*[!0-9,]*) fail "SLURM_JOB_GPUS=$SLURM_JOB_GPUS are no numbers of GPUs" ;;
esac

# --- The share: percentage of SMs, memory of each GPU in MiB; empty: no limit

# The job's record, and in it the GRES of this node: "shard:3(IDX:0)", "gpu:h200:2(IDX:0-1),shard:h200:4(4/8,0/8)".
gres_on_this_node() {
    shown=$(scontrol -o -d show job "$SLURM_JOB_ID" 2>&1) || fail "scontrol show job: $shown"
    # Of an array whose first job this is, all jobs are shown.
    echo "$shown" | sed -n "/^JobId=$SLURM_JOB_ID /s/ Nodes=/\n&/gp" |
        sed -n 's/^ Nodes=\([^ ]*\) .*GRES=\([^ ]*\).*/\1 \2/p' |
        while read -r nodes gres; do
            if scontrol show hostnames "$nodes" | grep -qxF "$SLURMD_NODENAME"; then
                echo "$gres"
            fi
        done
}

# The number behind $1 in a list of GRES, whatever its type: 16 of "gpu:h200:2,shard:16(S:0)".
count_of() {
    tr ',' '\n' | sed -n "s/^$1\(:[^:(]*\)*:\([0-9][0-9]*\).*/\2/p" | awk '{ sum += $1 } END { print sum + 0 }'
}

shards_of_gpu() {
    if [ -n "$shards_per_gpu" ]; then
        echo "$shards_per_gpu"
        return
    fi
    gres=$(scontrol -o show node "$SLURMD_NODENAME" | sed -n 's/.* Gres=\([^ ]*\) .*/\1/p')
    shards=$(echo "$gres" | count_of shard)
    gpus=$(echo "$gres" | count_of gpu)
    if [ "$shards" -eq 0 ] || [ "$gpus" -eq 0 ] || [ $((shards % gpus)) -ne 0 ]; then
        fail "can't tell how many shards a GPU has from Gres=$gres: set shards_per_gpu in openmps-slurm.conf"
    fi
    echo $((shards / gpus))
}

# The least memory of the job's GPUs, in MiB.
memory_of_gpu() {
    devices=$(ask device_query --json) || fail "openmps-control device_query: $devices"
    echo "$devices" | tr -d ' \n' | tr '{' '\n' |
        sed -n 's/.*"ordinal":\([0-9]*\),.*"memory_bytes":\([0-9]*\).*/\1 \2/p' |
        awk -v gpus="$SLURM_JOB_GPUS" '
            BEGIN { count = split(gpus, list, ","); for (i = 1; i <= count; i++) wanted[list[i]] }
            $1 in wanted { found++; if (found == 1 || $2 < least) least = $2 }
            END { if (found == count) printf "%d\n", least / 1048576 }'
}

percentage=
memory_mib=
if [ -n "${CUDA_MPS_ACTIVE_THREAD_PERCENTAGE:-}" ]; then
    percentage=$CUDA_MPS_ACTIVE_THREAD_PERCENTAGE
    case $percentage in
    *[!0-9]* | 0) fail "a share of $percentage % can't be given" ;;
    esac
    [ "$percentage" -le 100 ] ||
        fail "Slurm gives a share of $percentage %: does the node have both gres/mps and gres/shard?"
elif grep -Eiq '^[[:space:]]*(include|GresTypes[[:space:]]*=.*shard)' "$slurm_conf"; then
    gres=$(gres_on_this_node)
    [ -n "$gres" ] || fail "scontrol show job does not say which GRES it has on $SLURMD_NODENAME"
    shards=$(echo "$gres" | sed 's/([^)]*)//g' | count_of shard)
fi

wait_for_daemon
if [ "${shards:-0}" -gt 0 ]; then
    total=$(shards_of_gpu)
    # Of several GPUs, each is taken to have an equal part of them.
    total=$((total * $(echo "$SLURM_JOB_GPUS" | tr ',' '\n' | wc -l)))
    [ "$shards" -le "$total" ] || fail "$shards shards of $total can't be given"
    whole_mib=$(memory_of_gpu)
    [ -n "$whole_mib" ] || fail "the daemon of OpenMPS does not have all of the GPUs $SLURM_JOB_GPUS"
    # Rounded up: a third of 132 SMs is 44, 33.3333 % is less.
    percentage=$(awk -v part="$shards" -v whole="$total" 'BEGIN { printf "%.4f", 100 * part / whole + 0.00005 }')
    memory_mib=$((whole_mib * shards / total))
fi

# --- The namespace

server=slurm-$SLURM_JOB_UID-$(echo "$SLURM_JOB_GPUS" | tr ',' '_')
lock
# If there is no socket, the daemon has gone, and the next command begins anew.
[ "$close_socket" != yes ] || chmod -f 0600 "$CUDA_MPS_PIPE_DIRECTORY/openmps.control" || :
# Of this job, if it was here before and its epilog could not run.
for left in $(namespaces_of_job); do
    control namespace delete "${left#*/}" "--server=${left%/*}" --force
    end_idle_server "${left%/*}"
done

trap 'end_idle_server "$server"' EXIT
if ! ask server list "$server" >/dev/null; then
    control server create "$server" "--uid=$SLURM_JOB_UID" "--allowed-devices=$SLURM_JOB_GPUS"
fi
# Who comes by the server's own directory, instead of a job's, gets nothing.
control server set "$server" --active-thread-percentage=1 --pinned-memory-limit=1M
restarts=${SLURM_JOB_RESTART_COUNT:-0}
[ "$restarts" -gt 0 ] || restarts=
control namespace create "job-$SLURM_JOB_ID${restarts:+-$restarts}" "--server=$server" "--uid=$SLURM_JOB_UID" \
    ${percentage:+"--active-thread-percentage=$percentage"} ${memory_mib:+"--pinned-memory-limit=${memory_mib}M"}
trap - EXIT
