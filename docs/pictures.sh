#!/usr/bin/env bash
# Makes docs/images/ anew, from real runs: a meta-training with `lobench watch` beside it on a terminal, the viewer and
# TensorBoard on what came of it, and three experiments for the figures that need stores of their own kind. Needs
# Chromium and the set-up of ci/test; some four minutes.
# Usage: docs/pictures.sh [WORK_FOLDER]   one that is given stays, and what it holds is not computed again
set -euo pipefail
cd "$(dirname "${BASH_SOURCE[0]}")/.."
export PATH="$PWD/.venv/bin:$PATH"
work=${1:-$(mktemp -d)/lobench}
mkdir -p "$work"
work=$(realpath "$work")
export LOBENCH_CACHE_DIR="$work/cache"  # empty at first, so that the terminal shows what is compiled
training=
trap '[ -z "$training" ] || kill "$training" 2>/dev/null || true' INT TERM
if [ ! -f "$work/terminal" ]; then
  python examples/meta_train.py "$work/run" --outer-steps 160 --checkpoints 8 >"$work/train.log" 2>&1 &
  training=$!
  # A terminal of 110 columns, kept with all that was written over.
  script --quiet --return --flush --command "stty cols 110 rows 40; cd '$work' && lobench watch run --suite demo --store store --checkpoints all --until-step 160 --sink tensorboard" "$work/typescript" >/dev/null || [ $? = 1 ]
  wait "$training"
  for rate in 0.01 0.001; do
    lobench_optimizer="adam(); adam.learning_rate = $rate"
    pytest -q -p no:cacheprovider --rootdir "$work" demo --lobench-optimizer "$lobench_optimizer" --lobench-store "$work/store" >"$work/adam.log" || [ $? = 1 ]
  done
  mv "$work/typescript" "$work/terminal"
fi
if [ ! -d "$work/matrix" ]; then
  cat >"$work/tuned.gin" <<'GIN'
Experiment.suites = ["demo"]
adam/Method.optimizer = @adam()
adam/Method.label = "Adam"
adam/Method.search = @auto_ic_grid()
adam/Method.num_trials = 24
adam/adam.learning_rate = @rate/Real()
adam/adam.b1 = @decay/Discrete()
rate/Real.low = 1e-5
rate/Real.high = 1.0
rate/Real.scale = "log"
rate/Real.num_values = 5
decay/Discrete.values = [0.8, 0.9, 0.95, 0.99]
GIN
  experiment() { lobench run "$@" --gin-param 'Experiment.num_sessions = 3' >"$work/experiment.log" 2>&1; }
  experiment "$work/tuned.gin" --case relu32 --store "$work/search"
  experiment examples/multitask/experiment.gin --case two_scales --method plain --method gradnorm --method slaw --method uncertainty --store "$work/tasks"
  experiment examples/continual/experiment.gin --case none --case separate --method sgd --method agem --store "$work/matrix"
fi
python docs/generate/pictures.py "$work" docs/images
ls -l docs/images
