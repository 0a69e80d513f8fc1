#!/bin/sh
# nginx.sh - gets Debian's nginx and its headers, for building and testing the nginx module. See --help.
set -eu
cd "$(dirname "$0")/../.."
. tests/tools/apt.sh

if [ $# -gt 0 ]; then
    cat <<'TEXT'
usage: sh tests/tools/nginx.sh

Unpacks the packages nginx and nginx-dev of this Debian release into build/servers/nginx/ and prints that folder. It
installs nothing and starts no service. What is there already is not fetched again: delete the folder for that. Without
apt, or if the packages cannot be downloaded, it prints the reason on stderr and nothing else. Exit status: 0, or 2 for
wrong arguments.
TEXT
    [ "$1" = --help ] || exit 2
    exit 0
fi

missing() { # WHY
    printf '\n*** SKIPPED: the nginx module: %s ***\n\n' "$1" >&2
    exit 0
}

# Fetch and unpack both into $folder/files, from the first mirror that has them.
fetch() {
    # shellcheck disable=SC1091
    codename=$(. /etc/os-release && echo "${VERSION_CODENAME-}")
    for mirror in $(mirrors); do
        prepare_apt "$mirror" "$codename"
        if private_apt update -o APT::Update::Error-Mode=any &&
            (cd "$folder/apt/archives" && private_apt download nginx nginx-dev); then
            for archive in "$folder"/apt/archives/*.deb; do
                dpkg-deb -x "$archive" "$folder/files" >>"$folder/log" 2>&1 || return 1
            done
            rm -rf "$folder/apt"
            return 0
        fi
    done
    return 1
}

place=$PWD/build/servers/nginx
case $place in
*[[:space:]:\"]*) missing "there is a blank, a colon or a quote in the project's path" ;;
esac
if ! [ -d "$place/files" ]; then
    if ! command -v apt-get >/dev/null || ! [ -r "$keyring" ]; then
        missing "this takes apt and Debian's archive keyring"
    fi
    folder=$place.new
    rm -rf "$folder"
    mkdir -p "$folder/files"
    fetch || missing "nginx and nginx-dev cannot be downloaded, see build/servers/nginx.new/log"
    mv "$folder" "$place"
fi
"$place/files/usr/sbin/nginx" -v >/dev/null 2>&1 || missing "its nginx does not start"
echo "$place/files"
