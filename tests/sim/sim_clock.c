/* sim_clock.c - events, clocks, chance and memory of a run. */
#include "sim.h"

#include <stdlib.h>
#include <string.h>
#include <sys/random.h>
#include <time.h>

/* ---- Events: a heap, the earliest first ---- */

static bool is_earlier(const struct event *a, const struct event *b)
{
    return a->at_us != b->at_us ? a->at_us < b->at_us : a->order < b->order;
}

static void push(struct sim *sim, struct event event)
{
    if (sim->event_count == sim->event_room) {
        sim->event_room = sim->event_room ? 2 * sim->event_room : 256;
        sim->events = realloc(sim->events, sim->event_room * sizeof *sim->events);
        if (!sim->events)
            abort();
    }
    size_t at = sim->event_count++;
    while (at > 0 && is_earlier(&event, &sim->events[(at - 1) / 2])) {
        sim->events[at] = sim->events[(at - 1) / 2];
        at = (at - 1) / 2;
    }
    sim->events[at] = event;
}

static struct event pop(struct sim *sim)
{
    const struct event first = sim->events[0];
    const struct event last = sim->events[--sim->event_count];
    size_t at = 0;
    for (;;) {
        size_t child = 2 * at + 1;
        if (child >= sim->event_count)
            break;
        if (child + 1 < sim->event_count && is_earlier(&sim->events[child + 1], &sim->events[child]))
            child++;
        if (!is_earlier(&sim->events[child], &last))
            break;
        sim->events[at] = sim->events[child];
        at = child;
    }
    sim->events[at] = last;
    return first;
}

void events_add(struct sim *sim, int64_t at_us, struct instance *whose, void (*run)(struct sim *sim, void *what),
                void *what)
{
    const int64_t at_least_us = max_of(at_us, sim->now_us);
    push(sim, (struct event){ at_least_us, sim->order++, whose, run, what });
}

bool events_step(struct sim *sim, int64_t until_us)
{
    if (sim->event_count == 0 || sim->events[0].at_us > until_us) {
        sim->now_us = until_us;
        return false;
    }
    struct event event = pop(sim);
    sim->now_us = event.at_us;
    sim->steps++;
    if (event.whose && event.whose->is_dead)
        return true;
    if (event.whose && event.whose->resumes_us > sim->now_us) { /* later, in the same order */
        event.at_us = event.whose->resumes_us;
        push(sim, event);
        return true;
    }
    event.run(sim, event.what);
    clocks_of(sim, NULL);
    return true;
}

/* ---- Chance: SplitMix64 (Steele, Lea, Flood, 2014) ---- */

uint64_t random_bits(struct sim *sim)
{
    uint64_t z = sim->random += UINT64_C(0x9e3779b97f4a7c15);
    z = (z ^ z >> 30) * UINT64_C(0xbf58476d1ce4e5b9);
    z = (z ^ z >> 27) * UINT64_C(0x94d049bb133111eb);
    return z ^ z >> 31;
}

int64_t random_in(struct sim *sim, int64_t least, int64_t most)
{
    assert(least <= most);
    return least + (int64_t)(random_bits(sim) % (uint64_t)(most - least + 1));
}

bool random_chance(struct sim *sim, int64_t permille)
{
    return random_in(sim, 0, 999) < permille;
}

/* ---- Memory ---- */

struct chunk {
    struct chunk *next;
    size_t used, size;
    _Alignas(16) unsigned char bytes[];
};

void *sim_take(struct sim *sim, size_t size)
{
    size = (size + 15) & ~(size_t)15;
    if (!sim->chunks || sim->chunks->size - sim->chunks->used < size) {
        const size_t room = size > 262144 ? size : 262144;
        struct chunk *chunk = malloc(sizeof *chunk + room);
        if (!chunk)
            abort();
        *chunk = (struct chunk){ .next = sim->chunks, .size = room };
        sim->chunks = chunk;
    }
    void *taken = sim->chunks->bytes + sim->chunks->used;
    sim->chunks->used += size;
    return memset(taken, 0, size);
}

void sim_free_all(struct sim *sim)
{
    while (sim->chunks) {
        struct chunk *next = sim->chunks->next;
        free(sim->chunks);
        sim->chunks = next;
    }
    free(sim->events);
    sim->events = NULL;
}

/* ---- Clocks ---- */

int64_t instance_clock_us(const struct instance *instance, int64_t true_us)
{
    const int64_t passed_us = true_us - SIM_EPOCH_US;
    return instance->clock_zero_us + passed_us + passed_us * instance->drift_ppm / 1000000;
}

int64_t instance_true_us(const struct sim *sim, const struct instance *instance, int64_t clock_us)
{
    const int64_t ahead_us = clock_us - instance_clock_us(instance, sim->now_us);
    if (ahead_us <= 0)
        return sim->now_us;
    int64_t true_us = sim->now_us + ahead_us - ahead_us / 1000; /* no clock deviates that much */
    while (instance_clock_us(instance, true_us) < clock_us) {
        const int64_t lacks_us = clock_us - instance_clock_us(instance, true_us);
        true_us += max_of(1, lacks_us - lacks_us / 1000);
    }
    return true_us;
}

static struct sim *clock_sim;
static struct instance *clock_instance;

void clocks_of(struct sim *sim, struct instance *instance)
{
    clock_sim = sim;
    clock_instance = instance;
}

/* The linker redirects the library's calls here (tests/CMakeLists.txt). */
int __real_clock_gettime(clockid_t id, struct timespec *out);
int __wrap_clock_gettime(clockid_t id, struct timespec *out);
int __wrap_clock_gettime(clockid_t id, struct timespec *out)
{
    if (!clock_instance)
        return __real_clock_gettime(id, out);
    const int64_t now_us = instance_clock_us(clock_instance, clock_sim->now_us);
    out->tv_sec = (time_t)(now_us / 1000000);
    out->tv_nsec = (long)(now_us % 1000000 * 1000);
    return 0;
}

/* A run's clock must not use the processor's counter. */
bool __wrap_ticks_are_steady(void);
bool __wrap_ticks_are_steady(void)
{
    return false;
}

ssize_t __wrap_getrandom(void *buffer, size_t length, unsigned flags);
ssize_t __wrap_getrandom(void *buffer, size_t length, unsigned flags)
{
    (void)flags;
    unsigned char *bytes = buffer;
    for (size_t i = 0; i < length; i++)
        bytes[i] = (unsigned char)random_bits(clock_sim);
    return (ssize_t)length;
}
