/* traffic.c - requests drawn in advance: see traffic.h.
 *
 * Given its number of events, a Poisson process is that many uniformly random times; so the times are drawn uniformly.
 */
#include "modes/traffic.h"

#include <stdio.h>
#include <stdlib.h>

struct dealer { /* smooth weighted round robin, as in nginx: the instance farthest behind its weight is next */
    int64_t behind[BENCH_MAX_INSTANCES];
};

static int traffic_deal(struct dealer *dealer, const int *weights)
{
    int64_t total = 0;
    int next = 0;
    for (int i = 0; i < BENCH_MAX_INSTANCES; i++) {
        dealer->behind[i] = weights[i] > 0 ? dealer->behind[i] + weights[i] : 0;
        total += weights[i];
        if (weights[i] > 0 && (weights[next] == 0 || dealer->behind[i] > dealer->behind[next]))
            next = i;
    }
    dealer->behind[next] -= total;
    return next;
}

static int by_due(const void *left, const void *right)
{
    const struct arrival *a = left, *b = right;
    int order = (a->due_us > b->due_us) - (a->due_us < b->due_us);
    return order != 0 ? order : (a->cell > b->cell) - (a->cell < b->cell);
}

void traffic_sort(struct arrival *arrivals, size_t n)
{
    qsort(arrivals, n, sizeof *arrivals, by_due);
}

void traffic_draw(struct arrival *arrivals, size_t n, int cell, int64_t length_us,
                  const int weights[BENCH_MAX_INSTANCES], uint64_t seed)
{
    struct dealer dealer = { { 0 } };
    for (size_t i = 0; i < n; i++)
        arrivals[i] = (struct arrival){ .due_us = (int64_t)(random_fraction(&seed) * (double)length_us), .cell = cell };
    traffic_sort(arrivals, n);
    for (size_t i = 0; i < n; i++)
        arrivals[i].instance = traffic_deal(&dealer, weights);
}

size_t traffic_admits(const struct arrival *arrivals, size_t n, enum weir_mode mode, int cell, struct admit *admits)
{
    size_t len = 0;
    for (size_t i = 0; i < n; i++) {
        const struct asked *asked = &arrivals[i].asked[mode];
        if (arrivals[i].cell == cell && asked->is_answered && asked->is_allowed)
            admits[len++] = (struct admit){ asked->start_us, asked->end_us, 1 };
    }
    return len;
}

double traffic_burst(struct admit *admits, size_t n, int64_t per_second)
{
    const double burst = envelope_burst(admits, n, per_second, WEIR_SECOND);
    if (burst < 0)
        bench_fail("no memory to examine the admissions");
    return burst;
}
