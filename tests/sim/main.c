/* main.c - the simulator's command line: many seeds, one seed, or the utilisation matrix. */
#ifdef SIM_LUA
#include "redis_store.h"
#else
#include "sim.h"
#endif

#include <stdlib.h>
#include <string.h>

static const char usage[] =
    "usage: sim [--seeds A..B | --seed N] [--scenario NAME] [--asks N] [--lua] [--trace] [--until-broken]\n"
    "       sim --matrix | --loads | --loads-all | --late | --calls\n"
    "       sim --scale N\n"
    "       sim --list\n"
    "\n"
    "Simulates instances in hybrid mode over a store and a network with faults, in virtual time, and holds all that\n"
    "was admitted against exact meters. Without --scenario seeds take the scenarios in turn.\n"
    "\n"
    "  --seeds A..B      run the seeds from A to B; default 1..1000\n"
    "  --seed N          run one\n"
    "  --scenario NAME   run every seed in this scenario; --list names them\n"
    "  --asks N          about so many requests a run; default 1000\n"
    "  --trace           print every event\n"
    "  --lua             ask the real scripts in a private Redis server as well\n"
    "  --until-broken    stop at the first broken promise\n"
    "  --matrix          print what is admitted against one ideal bucket, over rates, instances, lives and demands\n"
    "  --loads           print it for regular loads over periods of a second and an hour, for each algorithm\n"
    "  --calls           print how often the store is asked for 100,000 users of very different demand\n"
    "  --late            print what outages of some instances admit beyond the limit\n"
    "  --scale N         print it for 1, 2, 5, 10, ... N instances, with calls, tab-separated\n"
    "  --loads-all       the same with more periods, instances and demands\n"
    "\n"
    "Exit status: 0 no promise was broken, 1 one was, 2 wrong arguments.\n";

static const struct scenario *scenario_find(const char *name)
{
    for (size_t i = 0; i < scenario_count; i++)
        if (strcmp(scenarios[i].name, name) == 0)
            return &scenarios[i];
    return NULL;
}

static int list(void)
{
    for (size_t i = 0; i < scenario_count; i++)
        printf("%-16s %s\n", scenarios[i].name, scenarios[i].what);
    return 0;
}

struct seeds {
    uint64_t first, last;
};

static bool seeds_read(const char *text, struct seeds *out)
{
    char *end;
    out->first = out->last = strtoull(text, &end, 10);
    if (end != text && strncmp(end, "..", 2) == 0)
        out->last = strtoull(end + 2, &end, 10);
    return end != text && *end == '\0' && out->first <= out->last;
}

static int run(const struct seeds *seeds, const struct scenario *only, const struct run_settings *settings)
{
    struct run_result sum = { .good = true };
    uint64_t broken = 0;
    for (uint64_t seed = seeds->first; seed <= seeds->last; seed++) {
        const struct scenario *scenario = only ? only : &scenarios[seed % scenario_count];
        const struct run_result result = run_seed(scenario, seed, settings);
        broken += !result.good;
        if (broken && settings->until_broken)
            break;
        sum.asked += result.asked;
        sum.steps += result.steps;
        sum.used += result.used;
        sum.ideal += result.ideal;
        sum.store_calls += result.store_calls;
        sum.lease_hits += result.lease_hits;
        sum.denial_hits += result.denial_hits;
        sum.fallbacks += result.fallbacks;
    }
    printf(
        "%llu runs, %llu broke a promise: %lld requests, %lld calls to the store, %lld lease hits, %lld denial hits, "
        "%lld fallbacks, %lld events; %lld permits used, one bucket %lld\n",
        (unsigned long long)(seeds->last - seeds->first + 1), (unsigned long long)broken, (long long)sum.asked,
        (long long)sum.store_calls, (long long)sum.lease_hits, (long long)sum.denial_hits, (long long)sum.fallbacks,
        (long long)sum.steps, (long long)sum.used, (long long)sum.ideal);
    return broken > 0;
}

/* Return 77 without a server. */
static int run_with_lua(const struct seeds *seeds, const struct scenario *only, struct run_settings *settings)
{
#ifdef SIM_LUA
    if (!redis_store_open()) {
        puts("skipped: no redis-server here");
        return 77;
    }
    settings->twin = &redis_store;
    const int status = run(seeds, only, settings);
    redis_store_close();
    return status;
#else
    (void)seeds, (void)only, (void)settings;
    puts("skipped: built without Redis");
    return 77;
#endif
}

static int refuse(const char *what)
{
    fprintf(stderr, "sim: %s\n%s", what, usage);
    return 2;
}

int main(int argc, char **argv)
{
    struct seeds seeds = { 1, 1000 };
    const struct scenario *only = NULL;
    struct run_settings settings = { .tells = true, .asks = 1000 };
    bool lua = false;
    setvbuf(stdout, NULL, _IOLBF, 0);
    for (int i = 1; i < argc; i++) {
        const char *value = i + 1 < argc ? argv[i + 1] : "";
        if (strcmp(argv[i], "--list") == 0)
            return list();
        if (strcmp(argv[i], "--matrix") == 0)
            return matrix();
        if (strcmp(argv[i], "--loads") == 0 || strcmp(argv[i], "--loads-all") == 0)
            return loads(strcmp(argv[i], "--loads-all") == 0);
        if (strcmp(argv[i], "--calls") == 0)
            return calls();
        if (strcmp(argv[i], "--late") == 0)
            return late();
        if (strcmp(argv[i], "--scale") == 0) {
            const long most = strtol(value, NULL, 10);
            return most < 1 || most > SIM_INSTANCES ? refuse("--scale takes 1 to 1000 instances") : scale((int)most);
        }
        if (strcmp(argv[i], "--help") == 0)
            return fputs(usage, stdout) < 0;
        if (strcmp(argv[i], "--trace") == 0) {
            settings.tells_all = true;
            continue;
        }
        if (strcmp(argv[i], "--lua") == 0) {
            lua = true;
            continue;
        }
        if (strcmp(argv[i], "--until-broken") == 0) {
            settings.until_broken = true;
            continue;
        }
        if (strcmp(argv[i], "--seeds") == 0 || strcmp(argv[i], "--seed") == 0) {
            if (!seeds_read(value, &seeds))
                return refuse("a seed is a number, or two with .. between them");
        } else if (strcmp(argv[i], "--scenario") == 0) {
            only = scenario_find(value);
            if (!only)
                return refuse("there is no such scenario");
        } else if (strcmp(argv[i], "--asks") == 0) {
            settings.asks = strtoll(value, NULL, 10);
            if (settings.asks < 1)
                return refuse("asks is 1 or more");
        } else {
            return refuse("what is that?");
        }
        i++;
    }
    return lua ? run_with_lua(&seeds, only, &settings) : run(&seeds, only, &settings);
}
