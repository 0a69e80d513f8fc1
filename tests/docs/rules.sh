# rules.sh - what tests README.md's blocks. Sourced, with $here the folder of this file and $scratch one to work in. A
# block that no rule knows is a failure (readme.sh), so none can come in that is not tested.
#
#     rule      block                                            test
#     program   ```c that begins with "/* NAME.c - "             readme.sh: compiled to ./NAME for those after it
#     output    ```c with a main() or ```sh, and ```text next    readme.sh: run; it prints that text
#     text      that ```text
#     options   ```c without a main() that sets `options`        readme.sh: compiled, and a limiter opened with them
#     scripts   ```sh, all of it lines `sh SCRIPT [OPTION...]`   readme.sh: they are there, and tell of these options
#     rights    indented, all of it `ACL SETUSER ...`            readme.sh: Redis takes them
#     token     indented, all of it rules of a Consul token      readme.sh: test_consul_real.c has the same
#     grammar   indented, the grammar of policies                readme.sh: weir check reads all of it
#     layers    indented, begins with `programs`                 readme.sh: the files named are there
#     install   ```sh, all of it cmake and apt-get install       install.sh: done, into a folder of its own
#     consumer  ```cmake                                         install.sh: a project with it is built and run
# shellcheck shell=sh disable=SC2154 # the sourcing script sets them

blocks=$scratch/blocks

# take README - into $blocks; false if it cannot be taken apart.
take() {
    rm -rf "$blocks"
    mkdir "$blocks"
    awk -v out="$blocks" -f "$here/take.awk" "$1"
}

# all_lines PATTERN FILE - whether each line of the file matches; one that \ ends goes on in the next.
all_lines() {
    ! sed -e ':more' -e '/\\$/{N; s/\\\n *//; b more' -e '}' "$2" | grep -qv -e "$1"
}

# rule_of NUMBER - prints the rule of a block, or nothing.
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
        [ "$(rule_of $(($1 - 1)))" != output ] || echo text
    elif [ -e "$it.cmake" ]; then
        echo consumer
    elif [ -e "$it.indented" ]; then
        if all_lines '^ACL SETUSER ' "$it.indented"; then
            echo rights
        elif all_lines '^[a-z_]* ".*" *{ policy = "[a-z]*" }' "$it.indented"; then
            echo token
        elif all_lines '^[a-z_]* *limit=N period=TIME' "$it.indented"; then
            echo grammar
        elif sed 1q "$it.indented" | grep -q '^programs '; then
            echo layers
        fi
    fi
)
