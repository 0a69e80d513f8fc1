#!/bin/sh
# broken.sh SOURCE BUILD COMPILER LIBRARY - the tests of README.md tell of each mistake that they are there for: a README
# with one fails, and the message says what it is.
# shellcheck disable=SC2016 # backticks as they are
set -eu
cd "$(dirname "$0")" # no relative arguments
source=$1
build=$2
compiler=$3
library=$4
scratch=$(mktemp -d)
trap 'rm -rf "$scratch"' EXIT
for name in "$source"/*; do
    ln -s "$name" "$scratch/"
done
rm "$scratch/README.md"
failed=0
tried=0

# broken MESSAGE TEST TEXT - with the text first in README.md.
broken() {
    { printf '%b\n\n' "$3" && cat "$source/README.md"; } >"$scratch/README.md"
    tried=$((tried + 1))
    case $2 in
    blocks) set -- "$1" readme.sh "$scratch" "$compiler" "$library" "$build/src" ;;
    words) set -- "$1" words.sh "$scratch" "$build" ;;
    esac
    message=$1
    shift
    if sh "$@" >"$scratch.out" 2>&1 || ! grep -qF -e "$message" "$scratch.out"; then
        echo "$1 did not say '$message' of this README, but:" >&2
        sed 5q "$scratch/README.md" >&2
        cat "$scratch.out" >&2
        failed=1
    fi
    rm -f "$scratch.out"
}

no_rule='that no rule in tests/docs/rules.sh knows'
broken "$no_rule" blocks '```yaml\nlimit: 5\n```'
broken "$no_rule" blocks '```\nlimit 5\n```'
broken "$no_rule" blocks '```sh\nls\n```'
broken "$no_rule" blocks '```sh\ncmake -S . -B build\nls\n```'
broken "$no_rule" blocks '```c\nint a;\n```'
broken "$no_rule" blocks '```c\nint main(void) { return 0; }\n```'
broken "$no_rule" blocks '```text\nallowed\n```'
broken "$no_rule" blocks 'Say\n\n    weir try'
broken 'does not end' blocks '````\nlimit 5'
broken 'does not compile' blocks '```c\n/* odd.c - is none. */\nint main(void) { return weir(); }\n```'
broken 'prints other than' blocks '```sh\necho allowed\n```\n\n```text\ndenied\n```'
broken 'exits with 3' blocks '```sh\nexit 3\n```\n\n```text\n```'
broken 'cannot be opened with these options' blocks '```c\noptions.mode = WEIR_HYBRID;\n```'
broken 'there is no tests/nonsense.sh' blocks '```sh\nsh tests/nonsense.sh\n```'
broken 'does not tell of --nonsense' blocks '```sh\nsh tests/run.sh --nonsense\n```'
broken 'has another grammar' blocks 'Say\n\n    token_bucket limit=N period=TIME [wait=N]'
broken 'logs in without' blocks 'Say\n\n    operator "x" { policy = "write" }'
broken 'Redis says' blocks 'Say\n\n    ACL SETUSER weir +nonsense'
broken 'there is no src/nonsense.c' blocks 'Say\n\n    programs   src/nonsense.c'

broken 'a backtick is left open' words 'Say `weir'
broken 'there is no script tests/nonsense.sh' words '`sh tests/nonsense.sh`'
broken 'there is no --nonsense' words '`sh tests/run.sh --nonsense`'
[ ! -x "$build/bench/weir-bench" ] || broken 'there is no nonsense' words '`sh bench/run.sh --only nonsense`'
[ ! -x "$build/tests/sim" ] || broken 'there is no --nonsense' words '`build/release/tests/sim --nonsense`'
broken 'there is no --nonsense' words '`weir replay --nonsense`'
broken 'there is no command' words '`weir nonsense`'
broken 'there is no --nonsense' words '`--nonsense`'
broken 'no such preset' words '`cmake --workflow --preset nonsense`'
broken 'that no rule in tests/docs/words.sh knows' words '`ctest -R nonsense`'
broken 'weir check refuses' words '`fixed_window limit=0 period=1s`'
broken 'nothing is called' words '`weir_nonsense()`'
broken 'there is no tests/nonsense.c' words '`tests/nonsense.c`'
broken 'no heading is' words '[here](#nonsense)'
broken 'there is no nonsense.md' words '[here](nonsense.md)'
broken 'two headings' words '# weir'

[ $failed -eq 0 ] || exit 1
echo "$tried mistakes, each found"
