#!/usr/bin/env bash
# The steps of the Containerfile by name. Usage: ci/container.sh system | install [EXTRAS] | user | check
set -euo pipefail
source=$(cd "$(dirname "${BASH_SOURCE[0]}")/.." && pwd)
venv=/opt/lobench/venv

case ${1:-} in
system) # Python; all else comes with pip
  export DEBIAN_FRONTEND=noninteractive
  apt-get update -qq
  apt-get install -qq --yes --no-install-recommends ca-certificates python3 python3-venv > /dev/null
  rm -rf /var/lib/apt/lists/*
  ;;
install) # as root, so that who runs it cannot change it
  extras=${2:+[$2]}
  python3 -m venv "$venv"
  "$venv/bin/pip" install --quiet --no-cache-dir --disable-pip-version-check --constraint "$source/ci/constraints.txt" \
    "$source$extras" "$source/plugins/lobench-tensorboard" "$source/plugins/lobench-flax"
  ;;
user) # who runs it, and where
  useradd --create-home --uid 1000 lobench
  install -d -o lobench -g lobench /work
  ;;
check) # what a user does first, as that user
  [ "$(id -u)" != 0 ] || { echo "check is for the user, and not for root" >&2; exit 2; }
  "$source/ci/first_run.sh"
  ;;
*)
  echo "usage: $0 system | install [EXTRAS] | user | check" >&2
  exit 2
  ;;
esac
