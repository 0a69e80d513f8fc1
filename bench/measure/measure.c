/* measure.c - samples, the processors that measurements run on, and repetitions that other programs disturbed.
 *
 * Such a repetition is measured again, up to MAX_ATTEMPTS times, and MAX_REPEATED times in the whole run.
 */
#include "measure/measure.h"

#include <assert.h>
#include <pthread.h>
#include <sched.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "measure/say.h"

#define MAX_ATTEMPTS 4
#define MAX_REPEATED 100 /* in the whole run: a busy machine must not take forever */

static struct measure_disturbances disturbances;

/* ---- Samples ---- */

void sample_add(struct sample *sample, double value)
{
    assert(sample->n < MEASURE_MAX_REPEATS);
    sample->values[sample->n++] = value;
}

static int compare_doubles(const void *left, const void *right)
{
    double a = *(const double *)left;
    double b = *(const double *)right;
    return (a > b) - (a < b);
}

double sample_median(const struct sample *sample)
{
    struct sample sorted = *sample;
    assert(sorted.n > 0);
    qsort(sorted.values, (size_t)sorted.n, sizeof sorted.values[0], compare_doubles);
    return (sorted.values[(sorted.n - 1) / 2] + sorted.values[sorted.n / 2]) / 2;
}

double sample_min(const struct sample *sample)
{
    double min = sample->values[0];
    for (int i = 1; i < sample->n; i++)
        min = sample->values[i] < min ? sample->values[i] : min;
    return min;
}

double sample_max(const struct sample *sample)
{
    double max = sample->values[0];
    for (int i = 1; i < sample->n; i++)
        max = sample->values[i] > max ? sample->values[i] : max;
    return max;
}

struct sample sample_ratio(const struct sample *numerator, const struct sample *denominator)
{
    struct sample ratio = { 0 };
    assert(numerator->n == denominator->n);
    for (int i = 0; i < numerator->n; i++)
        sample_add(&ratio, numerator->values[i] / denominator->values[i]);
    return ratio;
}

/* ---- Processors ---- */

static cpu_set_t allowed_processors(void)
{
    static cpu_set_t allowed; /* as it was at the first call, before anything is pinned */
    static int known;
    if (!known && sched_getaffinity(0, sizeof allowed, &allowed) != 0) {
        CPU_ZERO(&allowed);
        CPU_SET(0, &allowed);
    }
    known = 1;
    return allowed;
}

int measure_processors(void)
{
    cpu_set_t allowed = allowed_processors();
    return CPU_COUNT(&allowed);
}

/* Let a thread (0: the calling one) run on processor number `place` alone, counted from the last, or, below 0, on all. */
static void pin(pid_t thread, int place)
{
    cpu_set_t chosen = allowed_processors();
    size_t processor = CPU_SETSIZE;
    for (int passed = -1; passed < place;) {
        processor--;
        passed += CPU_ISSET(processor, &chosen) ? 1 : 0;
    }
    if (place >= 0) {
        CPU_ZERO(&chosen);
        CPU_SET(processor, &chosen);
    }
    sched_setaffinity(thread, sizeof chosen, &chosen); /* an unpinned thread is noisier, not wrong */
}

static void *end_at_once(void *argument)
{
    return argument;
}

void measure_start(void)
{
    pthread_t thread;
    if (pthread_create(&thread, NULL, end_at_once, NULL) == 0)
        pthread_join(thread, NULL);
}

void measure_pin_main(void)
{
    if (measure_processors() > 1)
        pin(0, 0);
}

void measure_unpin_main(void)
{
    pin(0, -1);
}

void measure_pin_server(pid_t pid)
{
    pin(pid, measure_processors() - 1);
}

/* ---- Disturbances ---- */

bool measure_again(int attempt)
{
    const bool again = attempt < MAX_ATTEMPTS && disturbances.repeated < MAX_REPEATED;
    *(again ? &disturbances.repeated : &disturbances.kept) += 1;
    return again;
}

int64_t measure_machine_cpu_us(void)
{
    unsigned long long user, nice, system, idle, wait, irq, soft, steal;
    FILE *file = fopen("/proc/stat", "r");
    int read = file ? fscanf(file, "cpu %llu %llu %llu %llu %llu %llu %llu %llu", &user, &nice, &system, &idle, &wait,
                             &irq, &soft, &steal)
                    : 0;
    if (file)
        fclose(file);
    if (read != 8)
        return -1;
    return (int64_t)((user + nice + system + irq + soft + steal) * 1000000 / (unsigned long long)sysconf(_SC_CLK_TCK));
}

struct measure_disturbances measure_disturbed(void)
{
    return disturbances;
}
