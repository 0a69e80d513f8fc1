# rules.sh - says how each block of code in README.md and docs/ is tested. Sourced, with $here the folder of this file,
# $source the project's and $scratch one to work in. A block without a rule is a failure (readme.sh).
#
#     rule      block                                            test
#     program   ```c that begins with "/* NAME.c - "             readme.sh: compiles it to ./NAME for later blocks
#     output    ```c with a main(), or ```sh, and ```text next   readme.sh: runs it and compares what it prints
#     text      the ```text after such a block
#     options   ```c without a main() that sets `options`        readme.sh: compiles it and opens a limiter with them
#     scripts   ```sh, only lines `sh SCRIPT [OPTION...]`        readme.sh: each script exists and knows these options
#     rights    indented, only `ACL SETUSER ...`                 readme.sh: Redis accepts them
#     token     indented, only rules of a Consul token           readme.sh: test_consul_real.c uses the same rules
#     grammar   indented, the grammar of policies                readme.sh: weir check accepts all of it
#     layers    indented, begins with `programs`                 readme.sh: the files that it names exist
#     install   ```sh, only cmake and apt-get install            install.sh: runs it with a folder in place of /
#     consumer  ```cmake                                         install.sh: builds and runs a project with it
#     nginx     ```nginx                                         tests/nginx/run.sh: nginx accepts it
#     haproxy   ```haproxy                                       examples/haproxy.sh: HAProxy limits requests by it
#     recording ```console, what `weir watch` shows              readme.sh: these are its lines and its words
#     drawing   ```text or indented, in docs/design/              none
# shellcheck shell=sh disable=SC2154 # the sourcing script sets them

blocks=$scratch/blocks

# pages - print each page of the manual, relative to $source: README.md first.
pages() (
    cd "$source" || exit
    echo README.md
    find docs/ -name '*.md' | sort
)

# take PAGE - take a page apart into $blocks; false if that fails.
take() {
    rm -rf "$blocks"
    mkdir "$blocks"
    awk -v out="$blocks" -f "$here/take.awk" "$1"
}

# all_lines PATTERN FILE - true if each line of the file matches; a line that ends with \ continues in the next one.
all_lines() {
    ! sed -e ':more' -e '/\\$/{N; s/\\\n *//; b more' -e '}' "$2" | grep -qv -e "$1"
}

# rule_of NUMBER - print the rule of a block of $page, or nothing.
rule_of() (
    it=$blocks/$1
    after=$blocks/$(($1 + 1)).text
    if [ -e "$it.c" ]; then
        if sed 1q "$it.c" | grep -q '^/\* [a-z_]*\.c - '; then
            echo program
        elif ! grep -q '^int main(' "$it.c"; then
            ! grep -q '^options\.' "$it.c" || echo options
        elif [ -e "$after" ]; then
            echo output
        fi
    elif [ -e "$it.sh" ]; then
        if [ -e "$after" ]; then
            echo output
        elif all_lines '^sh [a-z/0-9]*\.sh' "$it.sh"; then
            echo scripts
        elif all_lines '^\(sudo \)\{0,1\}\(cmake\|apt-get install\) ' "$it.sh"; then
            echo install
        fi
    elif [ -e "$it.text" ]; then
        case $page/$(rule_of $(($1 - 1))) in
        */output) echo text ;;
        docs/design/*) echo drawing ;;
        esac
    elif [ -e "$it.cmake" ]; then
        echo consumer
    elif [ -e "$it.nginx" ]; then
        echo nginx
    elif [ -e "$it.haproxy" ]; then
        echo haproxy
    elif [ -e "$it.console" ]; then
        echo recording
    elif [ -e "$it.indented" ]; then
        if all_lines '^ACL SETUSER ' "$it.indented"; then
            echo rights
        elif all_lines '^[a-z_]* ".*" *{ policy = "[a-z]*" }' "$it.indented"; then
            echo token
        elif all_lines '^[a-z_]* *limit=N \(period\|hold\)=TIME' "$it.indented"; then
            echo grammar
        elif sed 1q "$it.indented" | grep -q '^programs '; then
            echo layers
        else
            case $page in docs/design/*) echo drawing ;; esac
        fi
    fi
)
