/* open.c - builds the backend that the options ask for and puts a limiter over it. */
#include "backends/memory.h"
#include "core/limiter.h"

int weir_open(const struct weir_options *options, weir **out)
{
    struct weir_options read;
    struct weir_backend *backend;
    int error = options_read(options, &read);
    if (!error && !out) {
        const struct log log = { read.log, read.user };
        log_line(&log, WEIR_LOG_ERROR, "out must not be NULL");
        error = WEIR_EINVAL;
    }
    if (!error)
        error = memory_open(&read, &backend);
    if (error)
        return error;
    error = limiter_make(&read, backend, out);
    if (error)
        backend->ops->destroy(backend);
    return error;
}
