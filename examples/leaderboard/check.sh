#!/usr/bin/env bash
# Audits bundles and makes the pages of all: what a pull request with a bundle is checked by.
#
#   SAMPLE=5% BEACON="drand 5216384 9f0c51d2" examples/leaderboard/check.sh FOLDER OUTPUT [BUNDLE...]
#
# FOLDER holds the bundles, each with its audit beside it. BUNDLE... are those to be audited now; with none, those
# whose audit is missing. A bundle that fails ends it, before any page is written.
set -euo pipefail

folder=$1 output=$2
shift 2
sample=${SAMPLE:-5%} beacon=${BEACON:-}

if [ $# -eq 0 ]; then
  for bundle in "$folder"/*.lobench; do
    [ -e "$bundle.audit.json" ] || set -- "$@" "$bundle"
  done
fi
for bundle in "$@"; do
  echo "auditing $bundle"
  code=0
  lobench audit "$bundle" --sample "$sample" --beacon "$beacon" --format json > "$bundle.audit.json.new" || code=$?
  if [ "$code" -ne 0 ]; then
    rm -f "$bundle.audit.json.new"
    echo "$bundle failed its audit (exit code $code); lobench audit '$bundle' --sample '$sample' --beacon '$beacon' says why" >&2
    exit "$code"
  fi
  mv "$bundle.audit.json.new" "$bundle.audit.json"
done
lobench site "$folder"/*.lobench --output "$output"
