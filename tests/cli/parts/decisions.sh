# Decisions worked out by hand.
# shellcheck shell=sh disable=SC2154 # run.sh reads this and sets the variables used here

by_hand() {
    name="the trace $1 is decided as worked out by hand"
    shift
    run 0 replay --decisions "$@" && [ -s expected ] && diff expected out >>err
    verdict "$name" $?
}
traces by_hand
