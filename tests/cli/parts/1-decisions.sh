# Decisions worked out by hand: each line of a trace is `time,key,cost -> what --decisions prints   why`.
# shellcheck shell=sh disable=SC2154 # run.sh reads this and sets what is used here

for trace in "$here"/traces/*.trace; do
    sed -n 's/ -> .*//p' "$trace" >in
    sed -n 's/.* -> \([-0-9,]*\).*/\1/p' "$trace" >expected
    set --
    while IFS= read -r policy; do
        set -- "$@" -p "$policy"
    done <<END
$(sed -n 's/^policy: //p' "$trace")
END
    options=$(sed -n 's/^options: //p' "$trace")
    # shellcheck disable=SC2086 # options are words
    run 0 replay --decisions $options "$@" && [ -s expected ] && diff expected out >>err
    verdict "the trace $(basename "$trace" .trace) is decided as worked out by hand" $?
done
