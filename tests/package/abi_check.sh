#!/bin/sh
# abi_check.sh - tests abi.sh on a small repository whose library is one file: without a tag, without a change, with
# compatible changes and with incompatible ones. Exit status 77 without abidiff.
set -eu
here=$(cd "$(dirname "$0")" && pwd)
command -v abidiff >/dev/null 2>&1 || {
    echo 'no abidiff: Debian has it in abigail-tools'
    exit 77
}
# shellcheck source=tests/tools/scratch.sh
. "$(dirname "$0")/../tools/scratch.sh"
cd "$scratch"
failed=0

mkdir -p tests/package tests/tools src include/weir
cp "$here/abi.sh" "$here/abi.ini" tests/package
sed '/^need_packages()/,/^}/d' "$here/../tools/setup.sh" >tests/tools/setup.sh # what is here is all that it takes
echo 'need_packages() { :; }' >>tests/tools/setup.sh
echo build >.gitignore
cat >CMakeLists.txt <<'TEXT'
cmake_minimum_required(VERSION 3.22)
project(weir LANGUAGES C)
add_subdirectory(src)
TEXT
cat >src/CMakeLists.txt <<'TEXT'
add_library(weir_shared SHARED weir.c)
target_include_directories(weir_shared PRIVATE ../include)
set_target_properties(weir_shared PROPERTIES OUTPUT_NAME weir SOVERSION 0)
TEXT
cat >include/weir/weir.h <<'TEXT'
struct weir_decision { int allowed; long limit; };
struct weir_stats { unsigned long size; long allowed; };
int weir_try(long cost, struct weir_decision *out);
int weir_stats_read(struct weir_stats *out);
TEXT
cat >src/weir.c <<'TEXT'
#include <weir/weir.h>
int weir_try(long cost, struct weir_decision *out) { out->allowed = cost > 0; return 0; }
int weir_stats_read(struct weir_stats *out) { out->allowed = 0; return 0; }
TEXT
git init -q .
git add .
git -c user.name=weir -c user.email=weir@localhost commit -qm 'all of it'

# says NAME STATUS TEXT [ARGUMENT]: check that abi.sh ends with STATUS and prints TEXT; then restore the repository.
says() {
    name=$1 expected=$2 text=$3
    shift 3
    status=0
    sh tests/package/abi.sh "$@" >build.out 2>&1 || status=$?
    if [ "$status" -eq "$expected" ] && grep -qF -- "$text" build.out; then
        echo "ok   $name"
    else
        echo "FAIL $name: status $status"
        sed 's/^/     /' build.out
        failed=1
    fi
    git checkout -q .
}

says nothing_is_compared_without_a_tag 0 'nothing to compare with'
says an_unknown_tag_is_an_error 2 'there is no v9.9' v9.9
says an_unknown_option_is_refused 2 'usage:' --tga
git tag v0.0.1
says an_unchanged_library_is_compatible 0 'compatible: programs linked with v0.0.1'

echo 'int weir_more(void) { return 1; }' >>src/weir.c
says a_new_function_is_compatible 0 'compatible: programs linked with v0.0.1'
sed -i 's/long allowed; };/long allowed; long denied; };/' include/weir/weir.h
says a_struct_with_a_size_field_may_grow_at_its_end 0 'compatible: programs linked with v0.0.1'
sed -i 's/size; long/size; long denied; long/' include/weir/weir.h
says a_struct_with_a_size_field_may_not_grow_before_that_field 1 'incompatible with v0.0.1'
sed -i 's/int allowed; long limit;/int allowed; long limit, remaining;/' include/weir/weir.h
says a_struct_without_a_size_field_may_not_grow 1 'incompatible with v0.0.1'
sed -i 's/long cost/int cost/' include/weir/weir.h src/weir.c
says a_parameter_of_another_type_is_incompatible 1 "parameter 1 of type 'long int' changed"
sed -i '/weir_stats_read/d' include/weir/weir.h src/weir.c
says a_missing_function_is_incompatible 1 'revert the change, or raise SOVERSION'
sed -i '/weir_stats_read/d' include/weir/weir.h src/weir.c
sed -i 's/SOVERSION 0/SOVERSION 1/' src/CMakeLists.txt
says a_new_soname_permits_an_incompatible_change 0 'named libweir.so.1 instead of libweir.so.0'
echo 'int weir_broken( {' >>src/weir.c
says a_tree_that_does_not_build_is_an_error 2 'cannot be built'
exit $failed
