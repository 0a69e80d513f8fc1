#!/bin/sh
# broken.sh SOURCE BUILD COMPILER LIBRARY - put each kind of mistake into a page and check that the tests of README.md and
# docs/ fail with a message that names it.
# shellcheck disable=SC2016 # backticks as they are
set -eu
cd "$(dirname "$0")" # no relative arguments
source=$1
build=$2
compiler=$3
library=$4
# shellcheck source=tests/tools/scratch.sh
. ../tools/scratch.sh
for name in "$source"/*; do
    ln -s "$name" "$scratch/"
done
rm "$scratch/README.md" "$scratch/docs"
cp -R "$source/docs" "$scratch/docs"
failed=0
tried=0

# says MESSAGE [TEST ARGUMENT...] - check that the test fails with that message, or that the previous one did.
says() {
    message=$1
    shift
    tried=$((tried + 1))
    if [ $# -gt 0 ] && sh "$@" >"$scratch.out" 2>&1 </dev/null || ! grep -qF -e "$message" "$scratch.out"; then
        echo "no test said '$message' of a README that begins:" >&2
        sed 5q "$scratch/README.md" >&2
        cat "$scratch.out" >&2
        failed=1
    fi
}

begin() { # TEXT... - put it first in README.md
    { printf '%b\n\n' "$@" && cat "$source/README.md"; } >"$scratch/README.md"
}

# block MESSAGE TEXT - check one mistake: the first wrong block ends the test.
block() {
    begin "$2"
    says "$1" readme.sh "$scratch" "$compiler" "$library" "$build/src"
}

# word MESSAGE TEXT - collect a mistake: one run at the end reports all of them.
word() {
    words="$words$2\\n\\n"
    messages="$messages$1
"
}
words=
messages=

no_rule='that no rule in tests/docs/rules.sh knows'
block "$no_rule" '```yaml\nlimit: 5\n```'
block "$no_rule" '```\nlimit 5\n```'
block "$no_rule" '```sh\nls\n```'
block "$no_rule" '```sh\ncmake -S . -B build\nls\n```'
block "$no_rule" '```c\nint a;\n```'
block "$no_rule" '```c\nint main(void) { return 0; }\n```'
block "$no_rule" '```text\nallowed\n```'
block "$no_rule" 'Say\n\n    weir try'
block 'does not end' '````\nlimit 5'
block 'does not compile' '```c\n/* odd.c - is none. */\nint main(void) { return weir(); }\n```'
block 'prints other than' '```sh\necho allowed\n```\n\n```text\ndenied\n```'
block 'exits with 3' '```sh\nexit 3\n```\n\n```text\n```'
block 'cannot be opened with these options' '```c\noptions.mode = WEIR_HYBRID;\n```'
block 'there is no tests/nonsense.sh' '```sh\nsh tests/nonsense.sh\n```'
block 'does not tell of --nonsense' '```sh\nsh tests/run.sh --nonsense\n```'
block 'has another grammar' 'Say\n\n    token_bucket limit=N period=TIME [wait=N]'
block 'logs in without' 'Say\n\n    operator "x" { policy = "write" }'
block 'Redis says' 'Say\n\n    ACL SETUSER weir +nonsense'
block 'there is no src/nonsense.c' 'Say\n\n    programs   src/nonsense.c'

begin 'Say'
printf '# Broken\n\nSay `weir_nonsense()`, [there](../README.md#nonsense)\n\n```sh\nexit 3\n```\n\n```text\n```\n' \
    >"$scratch/docs/broken.md"
says 'docs/broken.md:5: this block exits with 3' readme.sh "$scratch" "$compiler" "$library" "$build/src" docs/broken.md

begin 'Say `weir'
says 'a backtick is left open' words.sh "$scratch" "$build"
word 'there is no script tests/nonsense.sh' '`sh tests/nonsense.sh`'
word 'there is no --nonsense in: sh' '`sh tests/run.sh --nonsense`'
[ ! -x "$build/bench/weir-bench" ] || word 'there is no nonsense' '`sh bench/run.sh --only nonsense`'
[ ! -x "$build/tests/sim" ] || word 'there is no --nonsense in: build' '`build/release/tests/sim --nonsense`'
[ ! -x "$build/bench/weir-bench" ] || word 'there is no nonsense' '`sh bench/run.sh --only modes,nonsense`'
word 'there is no --nonsense in: weir' '`weir replay --nonsense`'
word 'there is no command' '`weir nonsense`'
word 'there is no --nonsense in: --' '`--nonsense`'
word 'no such preset' '`cmake --workflow --preset nonsense`'
word 'that no rule in tests/docs/words.sh knows' '`ctest -R nonsense`'
word 'weir check refuses' '`fixed_window limit=0 period=1s`'
word 'nothing is called' '`weir_nonsense()`'
word 'there is no tests/nonsense.c' '`tests/nonsense.c`'
word 'no heading is' '[here](#nonsense)'
word 'there is no nonsense.md' '[here](nonsense.md)'
word 'two headings' '# weir'
word 'docs/broken.md:3: nothing is called weir_nonsense()' ''
word 'docs/broken.md:3: no heading is ../README.md#nonsense' ''
echo '# rate(weir_nonsense_total[5m])' >"$scratch/docs/alerts.yml"
word 'docs/alerts.yml:1: no metric is called weir_nonsense_total' ''

begin "$words"
set -- words.sh "$scratch" "$build"
while read -r message; do
    says "$message" "$@"
    set --
done <<END
${messages%?}
END
rm -f "$scratch.out"
[ $failed -eq 0 ] || exit 1
echo "$tried mistakes, each found"
