#!/bin/bash
# Many evolutions (seeds x cases) as one SLURM submission: each task of the array runs a share, and goes on after a requeue.
# Usage: sbatch --array=0-19 examples/cluster/evolve_array.sh CONFIG.gin STORE --seeds 10 --cases a --cases b
#        (from the checkout, with its .venv; without SLURM it runs all of them here)
#SBATCH --job-name=lobench-evolve
#SBATCH --ntasks=1
#SBATCH --cpus-per-task=8
#SBATCH --time=12:00:00
#SBATCH --requeue
set -euo pipefail
config=${1:?CONFIG.gin is missing} store=${2:?STORE is missing}
shift 2

# shellcheck disable=SC1091  # made by ci/test or pip
source "${LOBENCH_VENV:-${SLURM_SUBMIT_DIR:-$PWD}/.venv}/bin/activate"
exec lobench evolve "$config" --store "$store" --workers "${SLURM_CPUS_PER_TASK:-0}" \
  --shard "${SLURM_ARRAY_TASK_ID:-0}/${SLURM_ARRAY_TASK_COUNT:-1}" "$@"
