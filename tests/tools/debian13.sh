#!/bin/sh
# debian13.sh - builds weir and runs its tests in a private Debian 13, beside the system. See --help.
set -eu
cd "$(dirname "$0")/../.."
. tests/tools/apt.sh

usage() {
    cat <<'TEXT'
usage: sh tests/tools/debian13.sh [--fresh | --remove]

Installs Debian 13 (trixie) into build/debian13/root, copies this checkout into it, and runs sh tests/run.sh there, with
gcc 14, hiredis 1.2 and Debian 13's other packages. Needs to be root, and the packages wget, gpgv,
iproute2 and util-linux. The script downloads debootstrap from the mirror that apt uses. It does not change the system:
mounts and processes live in private namespaces, which end with this script, however it ends. Only the installation of
packages has a network; the tests have a loopback device.

The next run uses the same root again, with the builds in it.

  --fresh      make the root anew
  --remove     remove it, and do nothing else
  --help       print this text

WEIR_TEST_CI=true sets CI=true for tests/run.sh there: a test that cannot run fails.
Exit status: 0 all tests passed, 1 something failed, 2 no test ran: wrong arguments, not root, or a missing package.
TEXT
}

suite=trixie
folder=$PWD/build/debian13
root=$folder/root

cannot() {
    echo "debian13.sh: $*" >&2
    exit 2
}

# Run a command in the root. Its mounts and processes end with it. With `lonely` it has no network.
inside() { # open|lonely COMMAND
    net=
    [ "$1" = open ] || net=--net
    # shellcheck disable=SC2016 # the inner shell's
    setpriv --pdeathsig KILL unshare --mount --pid --fork --kill-child $net sh -eu -c '
        [ -z "$3" ] || ip link set lo up
        mount -t proc proc "$1/proc"
        mount --rbind /dev "$1/dev"
        mount -t tmpfs tmpfs "$1/dev/shm"
        mount -t tmpfs tmpfs "$1/tmp"
        exec chroot "$1" /usr/bin/env -i HOME=/root LANG=C.UTF-8 PATH=/usr/sbin:/usr/bin:/sbin:/bin \
            CI="${WEIR_TEST_CI-}" DEBIAN_FRONTEND=noninteractive http_proxy="${http_proxy-}" \
            https_proxy="${https_proxy-}" sh -eu -c "cd /srv/checkout && $2"
    ' sh "$root" "$2" "$net"
}

# debootstrap uses the proxy that apt is configured with.
use_proxy() {
    proxy=$(apt-config dump --format '%v' Acquire::http::Proxy)
    if [ -n "$proxy" ] && [ "$proxy" != DIRECT ] && [ -z "${http_proxy-}" ]; then
        http_proxy=$proxy
        export http_proxy
    fi
}

make_root() {
    rm -rf "$folder"
    mkdir -p "$folder/tools"
    echo "making a root of Debian $suite, log in build/debian13/log"
    fetch_package $suite debootstrap || cannot "debootstrap of $suite cannot be fetched, see build/debian13/log"
    dpkg-deb -x "$folder"/apt/archives/debootstrap_*.deb "$folder/tools"
    rm -rf "$folder/apt"
    DEBOOTSTRAP_DIR=$folder/tools/usr/share/debootstrap unshare --mount sh "$folder/tools/usr/sbin/debootstrap" \
        --variant=minbase --keyring="$keyring" $suite "$root.new" "$mirror" >>"$folder/log" 2>&1 ||
        cannot "no root of $suite, see build/debian13/log"
    printf '#!/bin/sh\nexit 101\n' >"$root.new/usr/sbin/policy-rc.d" # no package starts what it brings
    chmod +x "$root.new/usr/sbin/policy-rc.d"
    mv "$root.new" "$root"
}

# Copy the checkout with its changes. Earlier builds in the root stay.
copy_checkout() {
    mkdir -p "$root/srv/checkout"
    find "$root/srv/checkout" -mindepth 1 -maxdepth 1 ! -name build -exec rm -rf {} +
    tar -c --exclude=./build --exclude=./.git . | tar -x -C "$root/srv/checkout"
    cat /etc/resolv.conf >"$root/etc/resolv.conf"
    printf '127.0.0.1 localhost\n::1 localhost\n' >"$root/etc/hosts"
}

fresh=false
case ${1-} in
'') ;;
--fresh) fresh=true ;;
--remove)
    rm -rf "$folder"
    exit 0
    ;;
--help | -h)
    usage
    exit 0
    ;;
*)
    usage >&2
    exit 2
    ;;
esac
if [ $# -gt 1 ]; then
    usage >&2
    exit 2
fi

[ "$(id -u)" -eq 0 ] || cannot "this takes root"
for program in apt-get dpkg-deb wget gpgv setpriv unshare ip chroot; do
    command -v $program >/dev/null || cannot "there is no $program"
done
[ -r "$keyring" ] || cannot "there is no $keyring, Debian's archive keyring"
unshare --mount --pid --fork --net true || cannot "namespaces cannot be made here"
use_proxy
if $fresh || ! [ -d "$root" ]; then
    make_root
fi
copy_checkout
inside open 'sh tests/run.sh --packages' || cannot "not all packages could be installed"
inside open 'sh tests/tools/servers.sh consul-1.8 >/dev/null' # a test without is skipped
inside lonely 'sh tests/run.sh' || exit 1
