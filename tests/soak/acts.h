/* acts.h - how the soak's faults begin and end; each tells the judge what it allows. */
#ifndef SOAK_ACTS_H
#define SOAK_ACTS_H

#include "faults.h"

/* 0, or -1 with a sentence in faults->place->error. */
typedef int fault_act(struct faults *faults);

/* acts_redis.c: Redis, the connections to it, a cluster's nodes. */
fault_act redis_killed, redis_returns, redis_returns_empty, redis_stopped, redis_goes_on, scripts_flushed, flushed,
    clients_killed, redis_full, redis_has_room, redis_busy, states_overwritten, states_removed, wire_is_well, slow,
    too_slow, cut, frozen, thawed, refused, let_in, node_killed, node_returns, node_stopped, node_goes_on,
    wire_goes_bad;

/* acts_others.c: Consul, policies, clocks, processes. */
fault_act consul_gone, consul_back, consul_empty, consul_flaps, consul_noise, consul_is_well, policies_smaller,
    policies_broken, policies_as_before, clock_steps, clock_is_right, process_killed, process_returns, process_stopped,
    process_goes_on, reopened, process_dies_owing, process_sleeps_owing;

/* Allow more for these modes and limits (a bit each; no limit: all) until the fault is over. */
void faults_allow(struct faults *faults, enum allowance_kind kind, uint32_t modes, uint32_t limits);

#endif
