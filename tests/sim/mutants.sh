#!/bin/sh
# mutants.sh - breaks the code on purpose, one promise at a time, and checks that the simulator reports it. See --help.
set -eu
cd "$(dirname "$0")/../.."

if [ $# -gt 0 ]; then
    cat <<'TEXT'
usage: sh tests/sim/mutants.sh

Copies the sources to a temporary folder, changes one line of them at a time, and runs the simulator's scenario that
holds the broken promise. Takes about a minute. CC is the compiler, default cc.

Exit status: 0 every mutant was found, 1 one was not, 2 one could not be made, or its program not be built.
TEXT
    [ "$1" = --help ] && exit 0
    exit 2
fi

. tests/tools/scratch.sh
work=$scratch
mkdir "$work/src" "$work/tests" "$work/objects"
cp -R src/core src/backends "$work/src"
cp -R tests/sim tests/support "$work/tests"
cp -R include "$work"
sources="src/core/*/*.c src/backends/hybrid/*.c src/backends/memory/*.c src/backends/shared/huge.c src/backends/shared/readers.c src/backends/shared/slab.c src/backends/shared/slots.c tests/sim/main.c tests/sim/sim_*.c"
links="-Wl,--wrap=clock_gettime -Wl,--wrap=ticks_are_steady -Wl,--wrap=getrandom -pthread -lm"

compile() { # SOURCE OBJECT
    (cd "$work" && ${CC:-cc} -std=c11 -O1 -w -DNDEBUG -D_GNU_SOURCE -Isrc -Iinclude -Itests/support -c "$1" -o "$2")
}
object_of() { # SOURCE
    echo "objects/$(echo "$1" | tr / _).o"
}
for source in $sources; do
    compile "$source" "$(object_of "$source")"
done

missed=0
# The mutation is a sed script; the simulator's report must contain WORD.
mutant() { # PROMISE WORD SCENARIO FILE SED
    cp "$work/$4" "$work/kept"
    sed "$5" "$work/kept" >"$work/$4"
    if cmp -s "$work/kept" "$work/$4"; then
        echo "mutants.sh: nothing to change in $4: $5" >&2
        exit 2
    fi
    object=$(object_of "$4")
    mv "$work/$object" "$work/kept.o"
    compile "$4" "$object"
    # shellcheck disable=SC2086 # a list of words
    ${CC:-cc} "$work"/objects/*.o $links -o "$work/sim"
    "$work/sim" --scenario "$3" --seeds 1..1000 --asks 800 --until-broken >"$work/log" 2>&1 || true
    found=$(sed -n 's/^VIOLATION in [^,]*, \(seed [0-9]*\), at [0-9]* us: \(.*\)/\1: \2/p' "$work/log" | head -n 1)
    case $found in
    *"$2"*) verdict=found ;;
    '') verdict='NOT FOUND' missed=1 ;;
    *) verdict='FOUND AS ANOTHER' missed=1 ;;
    esac
    printf '%-9s %-9s %s: %s\n          %s\n' "$1" "$verdict" "$4" "$5" "$found"
    mv "$work/kept" "$work/$4"
    mv "$work/kept.o" "$work/$object"
}

lease=src/core/algorithm/lease.c
back=src/core/algorithm/lease_back.c
call=src/backends/hybrid/lease_answer.c
mutant H1 H1: hoard $lease 's/max_of(max_of(asked_us, lease->idle_us), lease->busy_us) - aged_us/(is_greedy(plan) ? now_us : asked_us)/'
mutant H1 H1: hoard $lease 's/if (left > 0 && now_us >= end_us) {/if (left < 0) {/'
mutant H1 H1: calm $lease 's/\.left = granted,/.left = 2 * granted,/'
mutant H1 H1: hoard src/core/policy/plan.c 's/plan->size -= permits;/;/'
mutant H1 H1: hoard $lease 's/div_down(plan->q, plan->p) \* plan->tick_us : 0/4 * div_down(plan->q, plan->p) * plan->tick_us : 0/'
mutant H2 H2: hoard src/backends/hybrid/beside.c 's/request.ahead = charged_us;/request.ahead = 0;/'
mutant H4 H4: hoard src/core/algorithm/sliding_window.c 's/first = state\[0\] - div_down(since_us, plan->period_us);/first = 0 * since_us;/'
mutant H3 H3: hoard $lease 's/case WEIR_FIXED_WINDOW: return decision->reset_after_us;/case WEIR_FIXED_WINDOW: return plan->period_us;/'
mutant H4 ' used' hoard $lease 's/ + min_of(lease->life_us, good_us)/ + (plan->algorithm == WEIR_SLIDING_WINDOW ? 3 : 1) * min_of(lease->life_us, good_us)/'
mutant H5 H5: hoard $lease 's/return decision->reset_after_us - max_of.*/return decision->reset_after_us + WEIR_MINUTE;/'
mutant H6 H6: hoard $lease 's/if (now_us <= slot_at_us(plan, batch, batch->next))/if (now_us)/'
mutant H6 H6: hoard $lease 's/\.next = direct,/.next = 0,/'
mutant H7 H7: calm src/core/algorithm/lease_order.c 's/const int64_t room = max_of.*/const int64_t room = WEIR_MAX_PERMITS;/'
mutant H7 H7: calm $call 's/out->ahead = out->age_us = 0;/out->allowed = false;/'
mutant calls calls: reserve $call 's/call->deadline_us = INT64_MAX;/call->deadline_us = 0;/'
mutant H8 H1: loss $call 's/if (status == WEIR_OK) {/if (status == WEIR_OK || status == WEIR_ETIME) {/'
mutant H9 ' used' flush tests/sim/sim_store.c 's/if (lost > 0)/if (lost < 0)/'
mutant H10 H10: outage src/backends/memory/state.c 's/plan->size - min_of(request->cold_left, plan->size)/0/'
mutant H10 ' used' flap src/core/outage/settle.c '/^bool settle_admitted/,/^{/s/^{/{ return false;/'
mutant H10 ' used' flap src/backends/memory/debt.c 's/return div_up(max_of(0, level.used - none.used), plan->q);/return div_up(max_of(0, level.used - none.used), 2 * plan->q);/'
mutant H10 H10: elastic-outage src/core/outage/settle.c 's/return state_fresh_at_us(plan, state) <= now_us;/return true;/'
mutant H10 'is denied limit' day src/core/policy/plan.c 's/plan_at_share(&bucket, share, out)/plan_at_share(policy, share, out)/'
mutant H10 'the outage may end' day src/core/outage/failure.c 's/min_of(out->retry_after_us, limiter->outage->retry_us)/max_of(out->retry_after_us, limiter->outage->retry_us)/'
mutant H10 'H10: an instance in an outage' day src/core/outage/outage.c 's/ \* local\.size \/ size;/;/'
mutant H10 'is denied limit' day src/core/outage/outage.c 's/if (left == 0)/if (left >= 0)/'
mutant H10 ' used' flap src/backends/memory/debt.c 's/missing.cold_left = state.2.;/missing.cold_left = 0;/'
mutant H11 'H10: an instance in an outage' partition src/core/limiter/targets.c 's/plan_for_fallback(policy, &limiter->share/plan_for_fallback(policy, \&share_whole/'
mutant H11 'late ones included' late src/core/outage/failure.c 's/ || arrears_forbid(limiter, request)//'
mutant H11 'late ones included' late src/core/outage/arrears.c 's/atomic_store_explicit(counted_of.*/;/'
mutant H11 'late ones included' late src/core/outage/arrears.c 's/max_of(noted - made_in(&share, decision->age_us), owed + rest)/owed + rest/'
mutant H11 'late ones included' late tests/sim/sim_store.c 's/from_us < now_us ? now_us - max_of(from_us, since_us) : 0/now_us - since_us/'
mutant H12 H12: calm $lease 's/const int64_t until_us = asked_us + min_of(wait_us,/const int64_t until_us = asked_us + min_of(2 * wait_us,/'
mutant H12 H12: calm $lease 's/return lease->denied_cost > 0 \&\& now_us/return lease->denied_cost > WEIR_MAX_PERMITS \&\& now_us/'
mutant H13 H10: elastic-outage src/core/outage/outage_span.c 's/if (!limiter->fallback)/if (true)/'
mutant liveness liveness: calm $call 's/struct hybrid_waiter \*next = waiter->next;/struct hybrid_waiter *next = NULL;/'
mutant H5 H5: reserve $back 's/charged_us >= batch->from_us \&\& lease_is_one_block/charged_us >= 0 \&\& lease_is_one_block/'
mutant H1 ' used' reserve $back '/^bool lease_settle/,/^}/s/batch->left += fits;/batch->left += 2 * fits;/'
mutant H2 ' used' reserve $back '/^bool lease_settle/,/^}/s/return true;/return false;/'
mutant H1 ' used' reserve src/backends/hybrid/hybrid.c 's/return request->cost - covered.cost;/return 0;/'
mutant H1 ' used' reserve src/backends/hybrid/hybrid.c '/^static int64_t hybrid_charge_lease/,/^}/s/if (covered.cost > 0)/if (covered.cost < 0)/'
mutant H1 ' used' reserve src/core/algorithm/algorithm.c 's/level_return(plan, state, since_us, cost)/level_return(plan, state, WEIR_MAX_TIME_US, cost)/'
mutant H1 ' used' reserve $back 's/lease_rest_add(lease, cost - fits,/lease_rest_add(lease, 2 * (cost - fits),/'
mutant H2 ' used' reserve src/backends/hybrid/beside.c 's/const int64_t permits = lease_take_rest/const int64_t permits = 2 * lease_take_rest/'
mutant R1 R1: renew src/core/algorithm/algorithm.c '/^bool state_renew/,/^}/s/if (cost <= plan->size.*/if (true) {/'
mutant R2 R3: renew src/core/algorithm/algorithm.c '/^bool state_renew/,/^}/s/state_return(plan, next, now_us, since_us, cost, out);/;/'
mutant R2 R2: renew src/core/api/submit.c 's/^            request.ahead = op->reservation.at_us;/            request.ahead = 1;/'
mutant R3 R3: renew-storm src/core/algorithm/algorithm.c '/^bool state_renew/,/^}/s/const bool changed = /memcpy(state, next, size); const bool changed = /'
mutant R4 R4: renew src/core/api/reserve.c '/^void renewal_finish/,/^}/s/if (reservation_is_made(decision))/if (true)/'
mutant R4 R4: renew-storm src/core/outage/failure.c 's/requests\[0\].verb == WEIR_RESET || requests\[0\].verb == WEIR_RENEW ||/requests[0].verb == WEIR_RESET ||/'
exit $missed
