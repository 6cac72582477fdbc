#!/bin/bash
# Many evolutions (seeds x cases) as one SLURM submission: each task of the array runs a share, and goes on after a requeue.
# Usage: sbatch --array=0-19 examples/cluster/evolve_array.sh CONFIG.gin STORE SHARES --seeds 10 --cases a --cases b
#        (from the checkout, with its .venv; without SLURM it runs all of them here)
# SHARES is how many shares there are, 20 here. The task ID runs share ID mod SHARES: any 20 ids in a row run them all
# (--array=1-20 too), and one that is submitted again, alone, runs what it ran before (--array=7).
#SBATCH --job-name=lobench-evolve
#SBATCH --ntasks=1
#SBATCH --cpus-per-task=8
#SBATCH --time=12:00:00
#SBATCH --requeue
set -euo pipefail
config=${1:?CONFIG.gin is missing} store=${2:?STORE is missing} shares=${3:?SHARES, the number of shares, is missing}
shift 3

if ! [[ $shares =~ ^[1-9][0-9]*$ ]]; then
  echo "SHARES must be a number of shares >= 1, not '$shares'" >&2
  exit 2
fi
shard=0/1 # without an array: all of them
if [[ -n ${SLURM_ARRAY_TASK_ID:-} ]]; then
  if ((${SLURM_ARRAY_TASK_MAX:-0} - ${SLURM_ARRAY_TASK_MIN:-0} >= shares)); then
    echo "array ids $SLURM_ARRAY_TASK_MIN to $SLURM_ARRAY_TASK_MAX for $shares shares: two tasks would run one share" >&2
    exit 2
  fi
  shard=$((SLURM_ARRAY_TASK_ID % shares))/$shares
fi

# shellcheck disable=SC1091  # made by ci/test or pip
source "${LOBENCH_VENV:-${SLURM_SUBMIT_DIR:-$PWD}/.venv}/bin/activate"
exec lobench evolve "$config" --store "$store" --workers "${SLURM_CPUS_PER_TASK:-0}" --shard "$shard" "$@"
