/* watch.h - one URL of Consul's agent, asked again and again: by queries that wait, or every so often.
 *
 * A query that waits has the index of the last answer, and the agent answers when there is a later one. The index is
 * dropped, so that the next query is answered at once, when it goes back or is 0, after any failure, and when another
 * connection has to be made: each watch has one of its own. Failures, and what was understood and what was not, are
 * the limiter's to know (core/follow/follow.h).
 */
#ifndef BACKENDS_CONSUL_WATCH_H
#define BACKENDS_CONSUL_WATCH_H

#include "backends/consul/http.h"
#include "backends/consul/pace.h"
#include "core/follow/follow.h"

/* Take in the answer's body: WEIR_OK, or an error with half a sentence, or with none if the limiter was told why. The
 * answer is asked for again then, paced. */
typedef int consul_answered(void *user, const char *body, size_t len, struct message message);

struct consul_watch_settings {
    enum weir_followed followed;
    const char *what;  /* "the instances of ...", for sentences */
    char *url;         /* with at least one parameter; the watch frees it */
    int64_t poll_us;   /* 0: wait for changes */
    bool is_urgent;    /* see consul/pace.h */
    bool may_be_none;  /* status 404 says that there is nothing: an answer of no bytes */
    bool same_is_good; /* an answer with the index of the one before, which was understood, need not be taken in */
    consul_answered *answered;
    void *user;
};

struct consul_watch {
    struct consul_watch_settings is;
    struct weir *limiter;
    struct consul_call call;
    struct consul_pace pace;
    uint64_t index; /* 0: none */
    int64_t due_us; /* when to ask next, if nothing is under way */
};

/* WEIR_OK or WEIR_ENOMEM; the settings' url is freed in either case. */
int consul_watch_init(struct consul_watch *watch, struct consul_http *http, struct weir *limiter,
                      const struct consul_watch_settings *settings);
void consul_watch_free(struct consul_watch *watch);

/* Look at what came and ask anew, if it is time. Returns when it wants its next turn if nothing comes before. */
int64_t consul_watch_turn(struct consul_watch *watch, int64_t now_us);

#endif
