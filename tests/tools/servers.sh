#!/bin/sh
# servers.sh - gets other Redis and Valkey servers, and Consul, for tests, out of other suites of Debian. See --help.
set -eu
cd "$(dirname "$0")/../.."
. tests/tools/apt.sh

usage() {
    cat <<'TEXT'
usage: sh tests/tools/servers.sh [NAME...]

Unpacks other servers than the system's own into build/servers/NAME/ and prints, for each that there is, its name, a tab
and the command for WEIR_TEST_REDIS_SERVER; the tests on Consul find theirs by themselves. Without names, all of them:

  redis-6.0    Debian bullseye
  redis-8.0    Debian trixie
  valkey-8.1   Debian trixie
  valkey-sid   Debian sid
  consul-1.8   Debian bullseye

apt resolves and downloads the packages with a separate state, so that nothing of the system changes and no root is
needed; each server runs on its own suite's C library. The mirror is the one that the system's apt uses. A server that
cannot be fetched is named on the error output and left out. One that has been fetched stays: delete build/servers to fetch it again.
Exit status: 0, or 2 for wrong arguments.
TEXT
}

# The tools and the server of Redis, and of Valkey, are one program; the name by which it is called selects the tool.
describe() { # NAME - sets suite, package, program, and packed, the name of the program in the package
    case $1 in
    redis-6.0) suite=bullseye package=redis-tools packed=redis-check-rdb program=redis-server ;;
    redis-8.0) suite=trixie package=redis-tools packed=redis-check-rdb program=redis-server ;;
    valkey-8.1) suite=trixie package=valkey-tools packed=valkey-check-rdb program=valkey-server ;;
    valkey-sid) suite=sid package=valkey-tools packed=valkey-check-rdb program=valkey-server ;;
    consul-1.8) suite=bullseye package=consul packed=consul program=consul ;;
    *) return 1 ;;
    esac
}

missing() { # NAME WHY
    printf '\n*** SKIPPED: no server %s: %s ***\n\n' "$1" "$2" >&2
}

# Fetch and unpack the server into $folder/files; false if that fails.
fetch() {
    fetch_package "$suite" "$package" || return 1
    mkdir -p "$folder/files"
    for archive in "$folder"/apt/archives/*.deb; do
        dpkg-deb -x "$archive" "$folder/files" >>"$folder/log" 2>&1 || return 1
    done
    rm -rf "$folder/apt"
    [ "$packed" = "$program" ] || ln -sf "$packed" "$folder/files/usr/bin/$program"
}

# Write $folder/server, which runs what is in $folder/files: by the loader's real file, for links there are absolute.
write_starter() {
    loader=$(find "$folder/files" -type f \( -name 'ld-linux*.so*' -o -name 'ld-[0-9]*.so' \) -print | head -n 1)
    libraries=$(find "$folder"/files/lib "$folder"/files/usr/lib -name 'lib*.so.*' -printf '%h\n' 2>/dev/null |
        sort -u | paste -s -d :)
    cat >"$folder/server" <<TEXT
#!/bin/sh
exec "$loader" --library-path "$libraries" "$folder/files/usr/bin/$program" "\$@"
TEXT
    chmod +x "$folder/server"
}

provide() { # NAME
    name=$1
    place=$PWD/build/servers/$name
    case $place in
    *[[:space:]:\"]*)
        missing "$name" "there is a blank, a colon or a quote in the project's path"
        return
        ;;
    esac
    if ! [ -d "$place/files" ]; then
        if ! command -v apt-get >/dev/null || ! [ -r "$keyring" ]; then
            missing "$name" "this takes apt and Debian's archive keyring"
            return
        fi
        folder=$place.new
        rm -rf "$folder"
        mkdir -p "$folder"
        if ! fetch; then
            missing "$name" "$package of Debian $suite cannot be fetched, see build/servers/$name.new/log"
            return
        fi
        rm -rf "$place" # of an older checkout, which has it otherwise
        mv "$folder" "$place"
    fi
    folder=$place
    write_starter # each time, for the project may have been moved
    if ! "$place/server" --version >/dev/null 2>&1; then
        missing "$name" "it does not start"
        return
    fi
    printf '%s\t%s\n' "$name" "$place/server"
}

case ${1-} in
--help | -h)
    usage
    exit 0
    ;;
esac
[ $# -gt 0 ] || set -- redis-6.0 redis-8.0 valkey-8.1 valkey-sid consul-1.8
for server in "$@"; do
    describe "$server" || {
        usage >&2
        exit 2
    }
done
for server in "$@"; do
    describe "$server"
    provide "$server"
done
