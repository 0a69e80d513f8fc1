/* flat.h - whether a process goes on taking more: its resident memory, descriptors and threads, looked at again and again.
 *
 * The means of the first and of the last third of all looks are compared. More at the end, by more than the slack, is a
 * leak. Looks are taken when nothing is done to anybody, and not at a process that began a moment ago.
 */
#ifndef SOAK_FLAT_H
#define SOAK_FLAT_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>
#include <sys/types.h>

enum { LOOKS_MOST = 2000, FLAT_KINDS = 4 };
enum flat_kind { FLAT_MEMORY, FLAT_HEAP, FLAT_DESCRIPTORS, FLAT_THREADS };

struct look {
    double values[FLAT_KINDS]; /* memory in KiB, without that which is shared; heap: as it says itself, KiB */
};

struct flat {
    const char *name;
    bool is_judged;   /* else it is told alone */
    bool is_one_life; /* else its memory is told alone: one that was started anew has less at first */
    size_t n;
    struct look looks[LOOKS_MOST];
};

/* Of a process: false if it cannot be looked at. */
bool flat_look(pid_t pid, struct look *look);
void flat_add(struct flat *flat, const struct look *look); /* beyond LOOKS_MOST every other one is left out */

/* The two means. False: too few looks. */
bool flat_means(const struct flat *flat, enum flat_kind kind, double *first, double *last);

/* How much more it may be at the end. */
double flat_slack(enum flat_kind kind, double first);
bool flat_holds(const struct flat *flat, enum flat_kind kind);

#endif
