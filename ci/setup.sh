# Sourced by the scripts of this folder: makes or reuses .venv at the root of the checkout.
# Usage: setup_extras=(PIP_ARGUMENTS...); . ci/setup.sh   (packages beyond the demonstration's)
set -euo pipefail
root=$(cd "$(dirname "${BASH_SOURCE[0]}")/.." && pwd)
cd "$root"
started=$SECONDS
python=$(ci/python)
"$python" -c 'import sys; sys.exit(sys.version_info < (3, 11))' || { echo "lobench needs Python 3.11 or newer; set PYTHON" >&2; exit 2; }
# DEPENDENCIES=lowest|highest tries the ends of what pyproject.toml allows.
case ${DEPENDENCIES:-pinned} in
pinned) constraints=ci/constraints.txt ;;
lowest) constraints=$(mktemp) && "$python" ci/lowest.py >"$constraints" ;;
highest) constraints=/dev/null ;;
*) echo "DEPENDENCIES is pinned, lowest or highest, and not '$DEPENDENCIES'" >&2; exit 2 ;;
esac
stamp_file=.venv/stamp-$(echo "$root ${setup_extras[*]}" | sha256sum | cut -c1-8)
stamp=$(cat pyproject.toml plugins/*/pyproject.toml "$constraints" ci/setup.sh ci/python ci/install.py | sha256sum | cut -c1-16)
if [ "$(cat "$stamp_file" 2>/dev/null || true)" != "$stamp" ]; then
  echo "== set-up: .venv with $("$python" --version) of $(command -v "$python"), about half a minute the first time"
  [ -x .venv/bin/python ] || "$python" -m venv .venv
  .venv/bin/python ci/install.py --constraint "$constraints" \
    --editable . --editable plugins/lobench-tensorboard --editable 'plugins/lobench-flax[test]' "${setup_extras[@]}"
  # On all cores, and without large packages that tests hardly import. Some files are templates and no Python.
  unused='/(tests?|databricks|mypyc?|rllib)/|/ray/(data|llm|serve|train|tune)/|/torch/(_inductor|testing)/|/sympy/physics/'
  .venv/bin/python -m compileall -qq -j 0 -x "$unused" .venv/lib >/dev/null 2>&1 || true
  echo "$stamp" > "$stamp_file"
fi
export PATH="$root/.venv/bin:$PATH"
echo "== set-up took $((SECONDS - started)) s"
