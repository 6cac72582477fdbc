#!/bin/bash
# A watch on a SLURM allocation: one Ray over its nodes, the chief on the first of them.
# Usage: sbatch examples/cluster/slurm.sh CKPT_DIR SUITE [WATCH_OPTIONS]     (from the checkout, with its .venv)
#SBATCH --job-name=lobench
#SBATCH --nodes=4
#SBATCH --ntasks-per-node=1
#SBATCH --cpus-per-task=16
#SBATCH --time=24:00:00
#SBATCH --requeue
set -euo pipefail
checkpoints=${1:?CKPT_DIR is missing} suite=${2:?SUITE is missing}
shift 2

# shellcheck disable=SC1091  # made by ci/demo or pip
source "${LOBENCH_VENV:-$SLURM_SUBMIT_DIR/.venv}/bin/activate"

head=$(scontrol show hostnames "$SLURM_JOB_NODELIST" | head -n 1)
head_ip=$(srun --nodes=1 --ntasks=1 --nodelist="$head" hostname -I | awk '{print $1}')
port=$((20000 + SLURM_JOB_ID % 20000)) # two jobs may share a node

# Whoever reaches a Ray without a token runs code on it; srun hands the environment on to every node.
RAY_AUTH_TOKEN=$(python -c 'import secrets; print(secrets.token_hex(32))')
export RAY_AUTH_TOKEN RAY_AUTH_MODE=token RAY_USAGE_STATS_ENABLED=0

srun --nodes="$SLURM_NNODES" --ntasks="$SLURM_NNODES" \
  ray symmetric-run --address "$head_ip:$port" --min-nodes "$SLURM_NNODES" \
  --num-cpus="${SLURM_CPUS_PER_TASK:-1}" --include-dashboard=false -- \
  lobench watch "$checkpoints" --suite "$suite" --executor ray --ray-address "$head_ip:$port" "$@"
