/* faults.c - the soak's faults and their order: see faults.h. */
#include "acts.h"

#include <string.h>

struct fault {
    const char *name;
    fault_act *begin, *end;
    enum fproxy_fault wire; /* for faults on the wire: the fault, and one in how many requests */
    int64_t every;
};

void faults_allow(struct faults *faults, enum allowance_kind kind, uint32_t modes, uint32_t limits)
{
    const struct allowance allowance = { .start_us = now_us(),
                                         .end_us = INT64_MAX,
                                         .kind = kind,
                                         .modes = modes,
                                         .limits = limits,
                                         .process = faults->victim };
    judge_allow(faults->place->judge, &allowance);
}

static int nothing(struct faults *faults)
{
    (void)faults;
    return 0;
}

static const struct fault all[] = {
    { "Redis is killed, and keeps its data", redis_killed, redis_returns, 0, 0 },
    { "Redis is killed, and loses its data", redis_killed, redis_returns_empty, 0, 0 },
    { "Redis stands still", redis_stopped, redis_goes_on, 0, 0 },
    { "Redis pauses its clients", redis_busy, nothing, 0, 0 },
    { "Redis is full", redis_full, redis_has_room, 0, 0 },
    { "FLUSHALL", flushed, nothing, 0, 0 },
    { "SCRIPT FLUSH", scripts_flushed, nothing, 0, 0 },
    { "CLIENT KILL", clients_killed, nothing, 0, 0 },
    { "states are overwritten", states_overwritten, states_removed, 0, 0 },
    { "requests are slow", slow, wire_is_well, 0, 0 },
    { "requests are too slow", too_slow, wire_is_well, 0, 0 },
    { "connections are cut", cut, cut, 0, 0 },
    { "the network falls silent", frozen, thawed, 0, 0 },
    { "connections are refused", refused, let_in, 0, 0 },
    { "replies are lost", wire_goes_bad, wire_is_well, FPROXY_DROP_REPLY, 50 },
    { "requests are lost", wire_goes_bad, wire_is_well, FPROXY_LOSE_REQUEST, 50 },
    { "requests are cut", wire_goes_bad, wire_is_well, FPROXY_CUT_REQUEST, 50 },
    { "requests are reset", wire_goes_bad, wire_is_well, FPROXY_RESET_REQUEST, 50 },
    { "replies are cut", wire_goes_bad, wire_is_well, FPROXY_CUT_REPLY, 50 },
    { "replies are closed", wire_goes_bad, wire_is_well, FPROXY_CLOSE_REPLY, 50 },
    { "replies are garbage", wire_goes_bad, wire_is_well, FPROXY_GARBAGE, 50 },
    { "replies stall", wire_goes_bad, wire_is_well, FPROXY_STALL, 50 },
    { "replies drip", wire_goes_bad, wire_is_well, FPROXY_DRIP, 20 },
    { "Consul is gone", consul_gone, consul_back, 0, 0 },
    { "Consul says that nobody is there", consul_empty, consul_is_well, 0, 0 },
    { "Consul's counts flap", consul_flaps, consul_is_well, 0, 0 },
    { "Consul talks nonsense", consul_noise, consul_is_well, 0, 0 },
    { "policies change", policies_smaller, policies_as_before, 0, 0 },
    { "the policy file is broken", policies_broken, policies_as_before, 0, 0 },
    { "a clock steps", clock_steps, clock_is_right, 0, 0 },
    { "a process is killed", process_killed, process_returns, 0, 0 },
    { "a process stands still", process_stopped, process_goes_on, 0, 0 },
    { "a process dies while Redis is gone", redis_killed, process_dies_owing, 0, 0 },
    { "a process sleeps as Redis returns", redis_killed, process_sleeps_owing, 0, 0 },
    { "limiters are closed and opened", reopened, nothing, 0, 0 },
    { "a node of the cluster is killed", node_killed, node_returns, 0, 0 },
    { "a node of the cluster stands still", node_stopped, node_goes_on, 0, 0 },
};
#define FAULTS ((int)(sizeof all / sizeof *all))
_Static_assert(FAULTS <= FAULTS_MOST, "there is room for all");

int faults_count(void)
{
    return FAULTS;
}

const char *fault_name(int fault)
{
    return all[fault].name;
}

void faults_init(struct faults *faults, struct place *place, uint64_t seed)
{
    *faults = (struct faults){ .place = place, .chance = seed, .running = -1, .last = -1, .at = FAULTS, .victim = -1 };
    for (int i = 0; i < FAULTS; i++)
        faults->order[i] = i;
}

/* Without a cluster its faults are skipped. */
static bool can_be(const struct faults *faults, int fault)
{
    return faults->place->with_cluster || (all[fault].begin != node_killed && all[fault].begin != node_stopped);
}

bool faults_only(struct faults *faults, const char *name)
{
    for (int i = 0; i < FAULTS; i++)
        if (strcmp(all[i].name, name) == 0 && can_be(faults, i)) {
            for (int j = 0; j < FAULTS; j++)
                faults->order[j] = i;
            return true;
        }
    return false;
}

static void shuffle(struct faults *faults)
{
    for (int i = FAULTS - 1; i > 0; i--) {
        const int j = draw_below(&faults->chance, i + 1), other = faults->order[j];
        faults->order[j] = faults->order[i];
        faults->order[i] = other;
    }
    faults->at = 0;
}

static int next(struct faults *faults)
{
    do {
        if (faults->at == FAULTS)
            shuffle(faults);
    } while (!can_be(faults, faults->order[faults->at++]));
    return faults->order[faults->at - 1];
}

int faults_begin(struct faults *faults)
{
    struct ledger *ledger = faults->place->ledger;
    faults->running = next(faults);
    faults->counts[faults->running]++;
    atomic_store(&ledger->overwritten, false);
    atomic_store(&ledger->trouble_until_us, INT64_MAX);
    faults->wire = all[faults->running].wire;
    faults->wire_every = all[faults->running].every;
    if (all[faults->running].begin(faults) == 0)
        return 0;
    faults->running = -1;
    return -1;
}

int faults_end(struct faults *faults)
{
    const int fault = faults->running;
    if (fault < 0)
        return 0;
    faults->running = -1;
    faults->last = fault;
    const int failed = all[fault].end(faults);
    judge_over(faults->place->judge, now_us());
    place_calms_down(faults->place);
    return failed;
}
