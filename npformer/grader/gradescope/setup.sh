#!/usr/bin/env bash
# Gradescope runs this script once, when it builds the image of the autograder. An error stops the build.
set -euo pipefail
root="${AUTOGRADER_ROOT:-/autograder}"

# npformer needs Python 3.11. If the image has an older Python, uv installs a newer one.
apt-get update
apt-get install -y python3-venv
python3 -m venv "$root/uv"
"$root/uv/bin/pip" install uv
"$root/uv/bin/uv" venv --python ">=3.11" "$root/env"
"$root/uv/bin/uv" pip install --python "$root/env" "$root"/source/npformer-*.whl matplotlib ipython
"$root/env/bin/npformer" --version
