#!/bin/sh
# producers.sh WEIR - reads generated logs of about 90 formats, see producers.py. Skipped without python3.
set -eu
[ $# -eq 1 ] || { echo "usage: producers.sh WEIR" >&2; exit 2; }
command -v python3 >/dev/null || { echo "there is no python3 here"; exit 77; }
weir=$(cd "$(dirname "$1")" && pwd)/$(basename "$1")
here=$(cd "$(dirname "$0")" && pwd)
# shellcheck source=tests/tools/scratch.sh
. "$(dirname "$0")/../tools/scratch.sh"
cd "$scratch"
python3 "$here/producers.py" "$weir"
