/* turns.h - rows of the modes' table whose figures are all measured in turns, so that their ratios hold. */
#ifndef BENCH_TURNS_H
#define BENCH_TURNS_H

#include "modes/modes.h"

#define TURNS_MAX 128

/* Limits that admit all requests of a benchmark, or one request a minute. A key that has taken turns_fill[] permits
 * stays live while it is measured, and is idle within USER_STORE_LIFE_US in any case. */
extern const struct weir_policy turns_policies[KINDS];
extern const int64_t turns_fill[KINDS];
extern const struct weir_policy turns_denying;

/* A limit as users have them: its burst is what it yields in a second, so that leases live for 50 ms by default. */
extern const struct weir_policy turns_usual;

struct turns {
    int n;
    struct load loads[TURNS_MAX]; /* all zeroes is empty */
};

/* Stop measuring a mode after modes_open() failed; stderr and a note below the table say why. */
void turns_give_up(struct modes *modes, enum weir_mode mode);

/* Add a load; return its number. */
int turns_add(struct turns *turns, const struct load *load);

void turns_measure(const struct modes *modes, struct turns *turns, double seconds);

/* What a row shows of a load: one of its samples, multiplied by `scale`. */
struct turns_look {
    size_t sample; /* its offset in struct load */
    double scale;
};
extern const struct turns_look turns_per_second, turns_ns, turns_server_ns, turns_client_ns, turns_calls_per_million;

/* Report a row: each mode's load by its number in loads[] (-1: none), and the floor's in loads[MODES], named `floor`. A
 * load whose decisions failed shows how many did. */
void turns_report(const struct modes *modes, const struct turns *turns, const char *figure, const int loads[MODES + 1],
                  const struct turns_look *look, const char *floor);

#endif
