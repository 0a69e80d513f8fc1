/* register.h - keeps this instance registered with Consul's agent.
 *
 *     register -> renew, every third of the TTL -> ... -> deregister
 *
 * Whatever goes wrong with a renewal, the next request is a registration, which does all that a renewal does and
 * works as well where the agent has forgotten the service: at once, if its answer was that (404, or 500 in Consul
 * 1.8), else paced. A list of instances that lacks this one although it was registered has it registered again as
 * well, paced.
 */
#ifndef BACKENDS_CONSUL_REGISTER_H
#define BACKENDS_CONSUL_REGISTER_H

#include "backends/consul/http.h"
#include "backends/consul/pace.h"
#include "core/follow/follow.h"

struct consul_register {
    struct weir *limiter;
    const char *id;                 /* (c) */
    char *register_url, *renew_url; /* (c) */
    char *deregister_url;           /* (c) */
    char *body;                     /* (c) of a registration */
    int64_t renew_us;               /* (c) */
    struct consul_call call;
    struct consul_pace pace;
    bool is_registered; /* as far as the last answer says; the next request is a renewal */
    bool may_be_known;  /* a registration was sent: the agent is to be told when this instance goes */
    bool is_missing;    /* the list lacks it */
    int64_t due_us;     /* of the next request */
    int64_t
        missing_us; /* is_missing: until then the list may still come to have it, after that it is registered again */
};

/* Whether Consul can take these in, and forget them: WEIR_OK; or WEIR_EINVAL or WEIR_ENOMEM, both with a sentence. */
int consul_register_check(const struct weir_peers *peers, struct message message);

/* `peers` with defaults filled in; its strings must stay. WEIR_OK or WEIR_ENOMEM. */
int consul_register_init(struct consul_register *join, struct consul_http *http, struct weir *limiter,
                         const struct weir_peers *peers, int64_t weight);
void consul_register_free(struct consul_register *join);

/* As consul_watch_turn(). */
int64_t consul_register_turn(struct consul_register *join, int64_t now_us);

/* Whether the agent has answered a registration, or failed to. */
bool consul_register_tried(const struct consul_register *join);

/* What the latest list of instances says. */
void consul_register_seen(struct consul_register *join, bool is_there, int64_t now_us);

/* Deregister, if need be, and wait for that CONSUL_LEAVE_US at most. */
#define CONSUL_LEAVE_US 1000000
void consul_register_leave(struct consul_register *join);

#endif
