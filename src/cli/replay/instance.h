/* instance.h - one instance of a service: a limiter with the limits of the command line. */
#ifndef WEIR_CLI_INSTANCE_H
#define WEIR_CLI_INSTANCE_H

#include <weir/weir.h>

#include "cli/policies.h"
#include "cli/replay/input/rows.h"

struct instance {
    weir *limiter; /* NULL: not open */
    size_t limit_count;
    const struct policies *policies;
    weir_limit *limits[WEIR_MAX_ALL];
};

/* Set options for a limiter in this process with room for `keys` keys of all policies. Return EXIT_OK, or EXIT_FAILED
 * after a complaint. */
int instance_options(struct weir_options *options, const struct policies *policies, size_t keys);

/* Return EXIT_OK, or EXIT_FAILED after a complaint. Call instance_close() in either case. */
int instance_open(struct instance *instance, const struct weir_options *options, const struct policies *policies);
void instance_close(struct instance *instance);

/* Return what a row asks of the limit with that index. */
struct weir_request instance_request(const struct instance *instance, const struct rows *rows, const struct row *row,
                                     size_t limit);

/* Decide a row by all limits together, all or nothing, by the limiter's clock. Return EXIT_OK, or EXIT_FAILED after a
 * complaint. */
int instance_decide(const struct instance *instance, const struct rows *rows, const struct row *row,
                    struct weir_decision *out);

/* The same for a request that gives permits back when it ends: reservations[0..limit_count) note them. */
int instance_reserve(const struct instance *instance, const struct rows *rows, const struct row *row,
                     struct weir_decision *out, struct weir_reservation *reservations);

/* Complain about an error of the library. Return EXIT_FAILED. */
int instance_failed(const char *what, int error);

#endif
