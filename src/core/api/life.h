/* life.h - makes a limiter over a backend. */
#ifndef CORE_API_LIFE_H
#define CORE_API_LIFE_H

#include "core/limiter/limiter.h"

/* Do the parts of weir_open() and weir_open_backend() that concern no particular backend. `options` come from
 * options_read(). `fallback` decides in the backend's place with WEIR_FAIL_LOCAL; otherwise it is NULL. If the options
 * ask to follow anything, `start` starts the sources or returns an error. On success only, the limiter owns both
 * backends. */
int limiter_make(const struct weir_options *options, struct weir_backend *backend, struct weir_backend *fallback,
                 int (*start)(const struct weir_options *options, struct weir *limiter), struct weir **out);

#endif
