#!/usr/bin/env bash
# What a user does first, with the `lobench` that PATH finds, in a folder of its own.
set -euo pipefail
work=$(mktemp -d)
trap 'rm -rf "$work"' EXIT
cd "$work"
lobench --version
lobench doctor
lobench new suite first
python -m pytest -q -p no:cacheprovider first --lobench-optimizer 'adam(); adam.learning_rate = 0.01' --lobench-store store
lobench results --store store
