#!/bin/bash
# A watch on a SLURM allocation: one Ray over its nodes, the chief on the first of them.
# Usage: sbatch examples/cluster/slurm.sh CKPT_DIR SUITE [WATCH_OPTIONS]     (from the checkout, with its .venv)
#SBATCH --job-name=lobench
#SBATCH --nodes=4
#SBATCH --ntasks-per-node=1
#SBATCH --cpus-per-task=16
#SBATCH --time=24:00:00
#SBATCH --requeue
#SBATCH --open-mode=append
#SBATCH --exclusive
#SBATCH --no-kill
set -euo pipefail
# --exclusive: symmetric-run refuses a node where a Ray runs, and in the end stops every Ray of yours there.
# --no-kill: a node that fails takes its slots with it, and nothing else.
checkpoints=${1:?CKPT_DIR is missing} suite=${2:?SUITE is missing}
shift 2

# shellcheck disable=SC1091  # made by ci/demo or pip
source "${LOBENCH_VENV:-$SLURM_SUBMIT_DIR/.venv}/bin/activate"

address="$(hostname -I | awk '{print $1}'):6379" # this script runs on the first node, the head to be

# Whoever reaches a Ray without a token runs code on it; srun hands the environment on to every node.
RAY_AUTH_TOKEN=$(python -c 'import secrets; print(secrets.token_hex(32))')
export RAY_AUTH_TOKEN RAY_AUTH_MODE=token RAY_USAGE_STATS_ENABLED=0
export RAY_SYMMETRIC_RUN_CLUSTER_WAIT_TIMEOUT=600 # seconds for Ray to start, from a cold shared disk too

# srun does not take over sbatch's --cpus-per-task.
each=(srun --nodes="$SLURM_NNODES" --ntasks="$SLURM_NNODES" --cpus-per-task="${SLURM_CPUS_PER_TASK:-1}" --no-kill)

# A try that was pre-empted may have left its Ray behind where SLURM does not track processes by cgroup.
"${each[@]}" ray stop --force >/dev/null 2>&1 || true

# The watch begins when the head is up; slots follow the nodes.
"${each[@]}" ray symmetric-run --address "$address" --num-cpus="${SLURM_CPUS_PER_TASK:-1}" -- \
  lobench watch "$checkpoints" --suite "$suite" --executor ray --ray-address "$address" "$@"
