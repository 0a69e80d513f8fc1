/* watch.h - asks one URL of Consul's agent again and again, by blocking queries or at intervals.
 *
 * A blocking query carries the index of the last answer, and the agent answers once it has a later one. The index
 * is dropped, so that the agent answers the next query immediately, in three cases: it goes back or is 0; any
 * failure; a new connection is needed. Each watch has a private connection. Failures and answers, good or bad,
 * are reported to the limiter (core/follow/follow.h). */
#ifndef BACKENDS_CONSUL_WATCH_H
#define BACKENDS_CONSUL_WATCH_H

#include "backends/consul/http.h"
#include "backends/consul/pace.h"
#include "core/follow/follow.h"

/* Take the answer's body in. WEIR_OK; or an error with a message, or with none if the limiter has been told.
 * After an error the URL is asked again, after a gap. */
typedef int consul_answered(void *user, const char *body, size_t len, struct message message);

struct consul_watch_settings {
    enum weir_followed followed;
    const char *what;  /* "instances of ...", for messages */
    char *url;         /* has at least one parameter; the watch frees it */
    int64_t poll_us;   /* 0: wait for changes */
    bool is_urgent;    /* see consul/pace.h */
    bool may_be_none;  /* status 404 counts as an answer of no bytes */
    bool same_is_good; /* a good answer's index that comes again means the same content: skip it */
    consul_answered *answered;
    void *user;
};

struct consul_watch {
    struct consul_watch_settings is;
    struct weir *limiter;
    struct consul_call call;
    struct consul_pace pace;
    uint64_t index; /* 0: none */
    int64_t due_us; /* when to ask next, if no request is under way */
};

/* Prepare. The settings' url is freed in either case. WEIR_OK or WEIR_ENOMEM. */
int consul_watch_init(struct consul_watch *watch, struct consul_http *http, struct weir *limiter,
                      const struct consul_watch_settings *settings);
void consul_watch_free(struct consul_watch *watch);

/* Take in an answer and ask again if it is time. Returns when the next turn is due if no answer comes first. */
int64_t consul_watch_turn(struct consul_watch *watch, int64_t now_us);

#endif
