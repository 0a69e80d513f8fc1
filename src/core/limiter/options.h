/* options.h - checks the options of a limiter and fills in their defaults.
 *
 * Every kind of open goes through these functions, so all refuse alike. A refusal writes one sentence to the log hook
 * of the options.
 */
#ifndef CORE_LIMITER_OPTIONS_H
#define CORE_LIMITER_OPTIONS_H

#include "core/algorithm/lease_rules.h"
#include "core/ground/log.h"

#include <weir/weir.h>

/* Fill *out: on WEIR_OK every field has its value, and a default replaces each 0. Strings still belong to the caller,
 * as do the structs behind `peers` and `consul`. */
int options_read(const struct weir_options *options, struct weir_options *out);

/* Return the rules of leases that checked options say. Unless in hybrid mode, they are: no leases. */
struct lease_rules options_leases(const struct weir_options *read);

/* Check the structs behind `peers` and `consul` and copy them to *peers and *consul, to which `read` points afterwards.
 * A pointer that was NULL stays NULL. Defined in core/follow/options_follow.c. */
int options_read_followed(struct weir_options *read, struct weir_peers *peers, struct weir_consul *consul);

/* ---- For the two functions above ---- */

/* Return WEIR_OK if `value` is in its range, else refuse it. */
int options_range(const struct log *log, const char *name, int64_t value, int64_t min, int64_t max);

/* Write a sentence to the log and return WEIR_EINVAL. */
int options_refuse(const struct log *log, const char *format, ...) __attribute__((format(printf, 2, 3)));

/* Copy a caller's struct that begins with its size, which must be this version's: a struct of any other size could end
 * within a field. `name` precedes "size" in the error. */
int options_copy(const struct log *log, const char *name, const void *from, void *to, size_t size);

#endif
