#!/bin/sh
# scratch_check.sh - tests scratch.sh: with a TMPDIR that is long or lets no program run, a script gets a folder in which
# programs run and sockets have short paths, and nothing of it is left behind. No other script calls mktemp.
set -eu
here=$(cd "$(dirname "$0")" && pwd)
# shellcheck source=tests/tools/scratch.sh
. "$here/scratch.sh"
cd "$scratch"

cat >user.sh <<'TEXT'
set -eu
. "$1/scratch.sh"
[ "${#scratch}" -le 60 ]
[ "$(echo i | tr '[:lower:]' '[:upper:]')" = I ]
printf '#!/bin/sh\necho runs\n' >"$scratch/program"
chmod +x "$scratch/program"
[ "$("$scratch/program")" = runs ]
echo "$scratch" >"$2"
TEXT

# gives WHAT COMMAND... - check what a script gets that the command runs.
gives() {
    what=$1
    shift
    rm -f used
    if ! "$@" >log 2>&1 || [ ! -s used ] || [ -e "$(cat used)" ]; then
        cat log >&2
        echo "scratch.sh fails with $what" >&2
        exit 1
    fi
    echo "ok: $what"
}

gives 'no TMPDIR' env -u TMPDIR sh user.sh "$here" used
gives 'a Turkish locale' env LC_ALL=tr_TR.UTF-8 sh user.sh "$here" used
long=$PWD/$(printf '%061d' 0)
mkdir "$long"
gives 'a long TMPDIR' env TMPDIR="$long" sh user.sh "$here" used
gives 'a TMPDIR that is not there' env TMPDIR=/nonexistent sh user.sh "$here" used

mkdir noexec
if unshare --user --map-root-user --mount true 2>/dev/null; then
    # shellcheck disable=SC2016 # the inner shell's
    gives 'a TMPDIR where no program runs' unshare --user --map-root-user --mount sh -eu -c \
        'mount -t tmpfs -o noexec tmpfs "$1" && TMPDIR=$1 sh user.sh "$2" used' sh "$scratch/noexec" "$here"
else
    echo 'skipped: private mounts are not allowed here'
fi

cd "$here/../.."
if grep -n 'mktemp' ./*/*.sh ./*/*/*.sh | grep -v -e 'tools/scratch'; then
    echo 'these scripts make folders without scratch.sh' >&2
    exit 1
fi
