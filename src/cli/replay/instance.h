/* instance.h - one instance of a service: a limiter with the limits of the command line. */
#ifndef WEIR_CLI_INSTANCE_H
#define WEIR_CLI_INSTANCE_H

#include <weir/weir.h>

#include "cli/policies.h"
#include "cli/span.h"

struct instance {
    weir *limiter; /* NULL: not open */
    size_t limit_count;
    weir_limit *limits[WEIR_MAX_ALL];
};

/* Options for a limiter in this process that has room for all `keys` keys of all policies. EXIT_OK, or EXIT_FAILED
 * after a complaint. */
int instance_options(struct weir_options *options, const struct policies *policies, size_t keys);

/* EXIT_OK, or EXIT_FAILED after a complaint; instance_close() either way. */
int instance_open(struct instance *instance, const struct weir_options *options, const struct policies *policies);
void instance_close(struct instance *instance);

/* Hold one request against all limits, all or nothing, by the limiter's clock. EXIT_OK, or EXIT_FAILED after a
 * complaint. */
int instance_decide(const struct instance *instance, struct span key, int64_t cost, struct weir_decision *out);

/* Complain of an error of the library's. Returns EXIT_FAILED. */
int instance_failed(const char *what, int error);

#endif
