# setup.sh - what tests/run.sh and bench/run.sh share: where the project is, and the Debian packages they need.
# Sourced by them from the project's root; POSIX sh.
# shellcheck shell=sh
export LC_ALL=C # for the order of sort, ranges such as [a-z] and the words of errors

jobs=$(nproc 2>/dev/null || echo 2)

# What it takes to configure and build everything, the benchmark included.
# shellcheck disable=SC2034 # the sourcing script's
build_packages='gcc libc6-dev cmake ninja-build pkg-config uthash-dev libjansson-dev'

# And distributed mode; without them: -DWEIR_REDIS=OFF.
# shellcheck disable=SC2034
redis_packages='libhiredis-dev libmd-dev libssl-dev'

# And Consul; without them: -DWEIR_CONSUL=OFF.
# shellcheck disable=SC2034
consul_packages='libcurl4-openssl-dev libjansson-dev'

say() {
    printf '\n== %s\n' "$*"
}

# need_packages NAME... - installs those that are missing, or says which they are and ends with status 2. On a system
# without Debian's packages it leaves the search to CMake, whose errors name what is missing.
need_packages() {
    command -v dpkg-query >/dev/null 2>&1 || return 0
    missing=
    for package in "$@"; do
        # shellcheck disable=SC2016 # dpkg-query's own variable
        case $(dpkg-query -W -f '${Status}' "$package" 2>/dev/null) in
        *' ok installed') ;;
        *) missing="$missing $package" ;;
        esac
    done
    [ -n "$missing" ] || return 0

    if [ "$(id -u)" -eq 0 ]; then
        as_root=
    elif command -v sudo >/dev/null 2>&1 && sudo -n true 2>/dev/null; then
        as_root='sudo -n'
    else
        echo "Missing packages. As root, run: apt-get install$missing" >&2
        exit 2
    fi
    say "installing$missing"
    # shellcheck disable=SC2086 # lists of words
    if ! install_packages $missing; then
        say "once more, with fresh lists"
        $as_root apt-get update || true
        if ! install_packages $missing; then
            echo "apt-get could not install:$missing" >&2
            exit 2
        fi
    fi
}

install_packages() {
    # shellcheck disable=SC2086
    $as_root env DEBIAN_FRONTEND=noninteractive apt-get install -y --no-install-recommends "$@"
}

# build_preset PRESET [CMAKE ARGUMENTS...] - configures and builds build/PRESET.
build_preset() {
    configure_preset "$@"
    cmake --build "build/$1" --parallel "$jobs"
}

# configure_preset PRESET [CMAKE ARGUMENTS...] - the first half of it. With CI=true a warning is an error, and so is a
# test that is skipped. Elsewhere neither is: a newer compiler may warn of what ours accepts.
configure_preset() {
    preset=$1
    shift
    say "building build/$preset"
    strict=OFF
    [ "${CI-}" != true ] || strict=ON
    cmake --preset "$preset" -DWEIR_WERROR=$strict -DWEIR_SKIPS_FAIL=$strict "$@" >/dev/null
}
