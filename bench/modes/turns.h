/* turns.h - rows of the modes' table whose figures are all measured in turns, so that their ratios hold. */
#ifndef BENCH_TURNS_H
#define BENCH_TURNS_H

#include "modes/modes.h"

#define TURNS_MAX 128

struct turns {
    int n;
    struct load loads[TURNS_MAX]; /* all zeroes is empty */
};

/* Add a load; return its number. */
int turns_add(struct turns *turns, const struct load *load);

void turns_measure(const struct modes *modes, struct turns *turns, double seconds);

/* Return the decisions a second of a load, of the repetitions that no other program disturbed, or of all if each was. */
struct sample turns_speed(const struct turns *turns, int load);

/* Report a row of decisions a second: each mode's load by its number in loads[] (-1: none), and the floor's in
 * loads[MODES], named `floor`. A load whose decisions failed shows how many did. */
void turns_report(const struct modes *modes, const struct turns *turns, const char *figure, const int loads[MODES + 1],
                  const char *floor);

#endif
