# SPDX-License-Identifier: Apache-2.0
# What prolog.sh, epilog.sh and task-prolog.sh have in common: the settings, and the names that a job has in the
# daemon. A job's namespace is called job-ID, or job-ID-N if it was queued again N times, because the
# daemon's totals are by name. Its server is called slurm-UID-GPUS, such as slurm-1000-0 or slurm-1000-2_3: it belongs
# to the job's user and serves these GPUs alone, so that a job reaches no other ones, and so that the jobs of a user on a
# GPU share one CUDA context.
# shellcheck shell=sh disable=SC2034

# The settings. A file openmps-slurm.conf beside slurm.conf may set them; it is read by sh.
CUDA_MPS_PIPE_DIRECTORY=/run/openmps
# The folder of OpenMPS's libcuda.so.1; here of the installation that these scripts belong to.
openmps_library=${0%/*}/../../../lib/openmps
# A file to which the epilog appends what a job has used; empty: nowhere.
accounting=/var/log/openmps/slurm-accounting.csv
# yes: the daemon's own socket, by which programs have no share, is for root alone.
close_socket=yes
# How many shards a GPU has; empty: as slurmctld says.
shards_per_gpu=
# How long a daemon may take to answer, as one that is started again does, before a script fails.
daemon_limit_s=30

slurm_conf=${SLURM_CONF:-/etc/slurm/slurm.conf}
if [ -r "${slurm_conf%/*}/openmps-slurm.conf" ]; then
    # shellcheck source=/dev/null
    . "${slurm_conf%/*}/openmps-slurm.conf"
fi
export CUDA_MPS_PIPE_DIRECTORY PATH

say() { echo "openmps: job ${SLURM_JOB_ID:-?}: $*" >&2; }

# A prolog or epilog that fails drains the node.
fail() {
    say "$*"
    exit 1
}

# One command for the daemon, which does not answer before it has its servers back from one that was killed.
ask() { timeout "$daemon_limit_s" openmps-control "$@" 2>&1; }

# That, with the answer in `said`. If it fails, the daemon may just have been killed: what a script does it can do again,
# from its beginning, where it waits for the next daemon.
control() {
    said=$(ask "$@") && return
    [ "$attempt" -lt 3 ] || fail "openmps-control $*: $said"
    sleep 1
    OPENMPS_SLURM_ATTEMPT=$((attempt + 1)) exec "$0"
}
attempt=${OPENMPS_SLURM_ATTEMPT:-1}

wait_for_daemon() {
    command -v openmps-control >/dev/null || fail "there is no openmps-control in $PATH"
    begun_s=$(date +%s)
    until said=$(ask server list); do
        [ $(($(date +%s) - begun_s)) -lt "$daemon_limit_s" ] ||
            fail "no daemon of OpenMPS answers in $CUDA_MPS_PIPE_DIRECTORY within $daemon_limit_s s: $said"
        sleep 1
    done
}

# Jobs that begin and end at once take turns, or a job could lose its server to the last one of another.
lock() {
    umask 077
    exec 9>"$CUDA_MPS_PIPE_DIRECTORY/openmps-slurm.lock"
    flock 9
    umask 022
}

# The namespaces of the job on this node, as SERVER/NAMESPACE: one, or none.
namespaces_of_job() {
    for place in "$CUDA_MPS_PIPE_DIRECTORY"/slurm-*/"job-$SLURM_JOB_ID" \
        "$CUDA_MPS_PIPE_DIRECTORY"/slurm-*/"job-$SLURM_JOB_ID"-*; do
        [ ! -d "$place" ] || echo "${place#"$CUDA_MPS_PIPE_DIRECTORY/"}"
    done
}

# Ends a server in which there are no jobs: $1.
end_idle_server() {
    [ -d "$CUDA_MPS_PIPE_DIRECTORY/$1" ] || return 0
    control namespace list "--server=$1" --format=csv,noheader
    case $said in
    job-* | *"
job-"*) ;;
    *) control server delete "$1" --force ;;
    esac
}
