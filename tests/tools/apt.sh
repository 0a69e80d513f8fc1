# apt.sh - packages of other suites of Debian, for tests/tools/servers.sh and tests/tools/debian13.sh: by an apt with a
# separate state, so that nothing of the system changes. The mirror is the one that the system's apt uses.
# Sourced by them from the project's root; they set `folder`, where the state and a log are. POSIX sh.
# shellcheck shell=sh disable=SC2154 # folder

keyring=/usr/share/keyrings/debian-archive-keyring.gpg

# The mirrors from which the system itself is installed: of other archives the signature will not be Debian's.
mirrors() {
    # shellcheck disable=SC1091
    codename=$(. /etc/os-release && echo "${VERSION_CODENAME-}")
    apt-get update --print-uris 2>/dev/null | sed -n "s|^'\(.*\)/dists/$codename/InRelease'.*|\1|p"
}

# apt-get with nothing of the system's but its proxies and the like.
private_apt() {
    apt-get -qq -c "$folder/apt/apt.conf" "$@" </dev/null >>"$folder/log" 2>&1
}

prepare_apt() { # MIRROR SUITE
    mkdir -p "$folder/apt/lists/partial" "$folder/apt/archives/partial" "$folder/apt/parts"
    : >"$folder/apt/status"
    printf 'deb [signed-by=%s] %s %s main\n' "$keyring" "$1" "$2" >"$folder/apt/sources.list"
    cat >"$folder/apt/apt.conf" <<TEXT
#clear APT::Update::Post-Invoke;
#clear APT::Update::Post-Invoke-Success;
Dir::State "$folder/apt";
Dir::State::status "$folder/apt/status";
Dir::Cache "$folder/apt";
Dir::Etc::sourcelist "$folder/apt/sources.list";
Dir::Etc::sourceparts "$folder/apt/parts";
Dir::Etc::preferences "$folder/apt/preferences";
Dir::Etc::preferencesparts "$folder/apt/parts";
APT::Sandbox::User "root";
APT::Install-Recommends "false";
Acquire::Languages "none";
Acquire::Retries "2";
Acquire::http::Timeout "10";
Acquire::https::Timeout "10";
TEXT
}

# Fetch a package and what it needs into $folder/apt/archives, from the first mirror that has them, which `mirror` is
# then; false if none has.
fetch_package() { # SUITE PACKAGE
    for mirror in $(mirrors); do
        prepare_apt "$mirror" "$1"
        if private_apt update -o APT::Update::Error-Mode=any &&
            private_apt install --download-only -y "$2"; then
            return 0
        fi
    done
    return 1
}
