/* flat.h - whether a process keeps using more memory, descriptors or threads, from repeated looks.
 *
 * It compares the means of the first and of the last third of all looks. An increase beyond the slack is a leak.
 * Looks are taken when no fault is active, and not at a process that has just begun.
 */
#ifndef SOAK_FLAT_H
#define SOAK_FLAT_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>
#include <sys/types.h>

enum { LOOKS_LEAST = 6, LOOKS_MOST = 2000, FLAT_KINDS = 4 };
enum flat_kind { FLAT_MEMORY, FLAT_HEAP, FLAT_DESCRIPTORS, FLAT_THREADS };

struct look {
    double values[FLAT_KINDS]; /* memory in KiB, without shared pages; heap in KiB, by its own account */
};

struct flat {
    const char *name;
    bool is_judged;   /* otherwise only reported */
    bool is_one_life; /* otherwise memory is only reported: a restarted process has less at first */
    size_t n;
    struct look looks[LOOKS_MOST];
};

/* Look at a process; false if that fails. */
bool flat_look(pid_t pid, struct look *look);
void flat_add(struct flat *flat, const struct look *look); /* beyond LOOKS_MOST every other look is dropped */

/* Compute the two means. Return false with fewer than LOOKS_LEAST looks. */
bool flat_means(const struct flat *flat, enum flat_kind kind, double *first, double *last);

/* Return how much more the end may have. */
double flat_slack(enum flat_kind kind, double first);
bool flat_holds(const struct flat *flat, enum flat_kind kind);

#endif
