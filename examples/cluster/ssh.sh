#!/bin/bash
# One Ray over this machine and others that ssh reaches; `lobench watch --executor ray` then runs here.
# Usage: examples/cluster/ssh.sh up HOST...      then: RAY_AUTH_MODE=token lobench watch ... --executor ray
#        examples/cluster/ssh.sh down HOST...
# Every host has lobench and lobench-ray, of the same versions, in LOBENCH_VENV (default: the path of this checkout's .venv).
set -euo pipefail
action=${1:?up or down is missing}
shift
venv=${LOBENCH_VENV:-$(cd "$(dirname "$0")/../.." && pwd)/.venv}
port=${RAY_PORT:-6379}
export RAY_AUTH_MODE=token RAY_USAGE_STATS_ENABLED=0

case $action in
  up)
    token=$("$venv/bin/ray" get-auth-token --generate)
    "$venv/bin/ray" start --head --port="$port" --include-dashboard=false
    address="$(hostname -I | awk '{print $1}'):$port"
    for host in "$@"; do
      # The token goes through ssh's pipe: a command line is everybody's to read. Homes may be one and the same.
      echo "$token" | ssh "$host" 'umask 077 && mkdir -p ~/.ray && cat > ~/.ray/auth_token'
      join="RAY_AUTH_MODE=token RAY_USAGE_STATS_ENABLED=0 '$venv/bin/ray' start --address='$address'"
      # shellcheck disable=SC2029  # expanded here is what is meant
      ssh "$host" "$join" || echo "$host has not joined; at any time: ssh $host \"$join\"" >&2
    done
    ;;
  down)
    for host in "$@"; do
      # shellcheck disable=SC2029
      ssh "$host" "'$venv/bin/ray' stop" || echo "$host: not all of its Ray has ended" >&2
    done
    "$venv/bin/ray" stop
    ;;
  *)
    echo "up or down, not '$action'" >&2
    exit 2
    ;;
esac
