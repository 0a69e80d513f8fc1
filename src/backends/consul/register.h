/* register.h - keeps this instance registered with Consul's agent.
 *
 *     register -> renew, every third of the TTL -> ... -> deregister
 *
 * If a renewal fails, the next request is a registration: it does all that a renewal does and also works if the
 * agent has forgotten the service. It is sent immediately if the agent's answer says that (404, or 500 in Consul
 * 1.8), otherwise after a gap. If a list of instances lacks this one although it was registered, it is registered
 * again, also after a gap.
 */
#ifndef BACKENDS_CONSUL_REGISTER_H
#define BACKENDS_CONSUL_REGISTER_H

#include "backends/consul/http.h"
#include "backends/consul/pace.h"
#include "core/follow/follow.h"

struct consul_register {
    struct weir *limiter;
    char *register_url, *renew_url; /* (c) */
    char *deregister_url;           /* (c) */
    char *body;                     /* (c) of a registration */
    int64_t renew_us;               /* (c) */
    struct consul_call call;
    struct consul_pace pace;
    bool is_registered; /* by the last answer; the next request is a renewal */
    bool may_be_known;  /* a registration was sent, so this instance must deregister when it ends */
    bool is_missing;    /* the list lacks it */
    int64_t due_us;     /* of the next request */
    int64_t missing_us; /* with is_missing: if the list still lacks it then, it is registered again */
};

/* Check that Consul can register these and deregister them. WEIR_OK; WEIR_EINVAL or WEIR_ENOMEM with a message. */
int consul_register_check(const struct weir_peers *peers, struct message message);

/* Prepare. `peers` has its defaults filled in and need not stay. WEIR_OK or WEIR_ENOMEM. */
int consul_register_init(struct consul_register *join, struct consul_http *http, struct weir *limiter,
                         const struct weir_peers *peers, int64_t weight);
void consul_register_free(struct consul_register *join);

/* Work like consul_watch_turn(). */
int64_t consul_register_turn(struct consul_register *join, int64_t now_us);

/* True if the agent has answered a registration, or failed to. */
bool consul_register_tried(const struct consul_register *join);

/* Note whether the latest list of instances has this one. */
void consul_register_seen(struct consul_register *join, bool is_there, int64_t now_us);

/* Deregister if the agent may know this instance, and wait for that at most CONSUL_LEAVE_US. */
#define CONSUL_LEAVE_US 1000000
void consul_register_leave(struct consul_register *join);

#endif
