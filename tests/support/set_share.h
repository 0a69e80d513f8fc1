/* set_share.h - puts another share, or several that hold at once, into force. */
#ifndef WEIR_TESTS_SET_SHARE_H
#define WEIR_TESTS_SET_SHARE_H

#include "core/limiter/limits.h"
#include "core/outage/outage_span.h"

/* WEIR_OK; or WEIR_ENOMEM with nothing changed. */
static inline int limiter_set_share(struct weir *limiter, const struct share *share)
{
    struct weir_limit *unfit;
    bool changes;
    int error = limits_put_share(limiter, share, &unfit, &changes);
    if (error) {
        log_line(&limiter->log, WEIR_LOG_ERROR, "the new share is not in force: %s", weir_strerror(error));
        return error;
    }
    if (changes)
        outage_split(limiter);
    limits_tell_unfit(limiter, unfit);
    return WEIR_OK;
}

#endif
