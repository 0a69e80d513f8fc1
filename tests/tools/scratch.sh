# scratch.sh - gives a script the folder $scratch, which is removed when the script ends, and a fixed locale.
# Sourced; POSIX sh. A script with another trap for EXIT calls scratch_remove in it.
#
# Programs can run in the folder, and the path of a socket in it fits into its 107 bytes. So a TMPDIR that is long, or on
# a file system mounted noexec, is passed over. Where no short folder lets programs run, $scratch is a link to a long one.
# shellcheck shell=sh
export LC_ALL=C # for the order of sort, ranges such as [a-z] and the words of errors

scratch='' scratch_folder=''

scratch_remove() {
    rm -rf "$scratch" "$scratch_folder"
}

# Make the folder in PARENT. False if that fails, or if no program runs in it.
scratch_in() { # PARENT
    scratch_folder=$(mktemp -d "$1/weir-XXXXXX" 2>/dev/null) || return 1
    scratch=$scratch_folder
    printf '#!/bin/sh\n' >"$scratch/program"
    chmod +x "$scratch/program"
    if (exec "$scratch/program") 2>/dev/null; then
        rm "$scratch/program"
        return 0
    fi
    scratch_remove
    return 1
}

scratch_make() {
    for parent in "${TMPDIR:-/tmp}" /tmp /var/tmp /dev/shm; do
        [ ${#parent} -gt 40 ] || ! scratch_in "$parent" || return 0
    done
    for parent in "${TMPDIR:-/tmp}" "$PWD"; do
        scratch_in "$parent" || continue
        for short in /tmp /var/tmp /dev/shm; do
            scratch=$(mktemp -u "$short/weir-XXXXXX")
            ! ln -s "$scratch_folder" "$scratch" 2>/dev/null || return 0
        done
        scratch=$scratch_folder
        return 0
    done
    echo "no folder for temporary files lets programs run: set TMPDIR to one that does" >&2
    exit 2
}

trap scratch_remove EXIT
scratch_make
