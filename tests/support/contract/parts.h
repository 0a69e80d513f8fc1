/* parts.h - what the parts of the contract share. In each test, the loop index _i is the backend's number. */
#ifndef WEIR_TESTS_CONTRACT_PARTS_H
#define WEIR_TESTS_CONTRACT_PARTS_H

#include "contract/contract.h"

#include <stdatomic.h>

/* As TEST(), of a part of the contract: contract_add() adds it once for each backend. */
#define CONTRACT_TEST(part, sentence, timeout_seconds)                 \
    static const TTest *sentence;                                      \
    __attribute__((constructor)) static void sentence##_is_added(void) \
    {                                                                  \
        contract_has(part, #sentence, sentence, timeout_seconds);      \
    }                                                                  \
    START_TEST(sentence)

/* Add a test to the contract, before main() and at most 96 times. `name` and `test` must outlive the run. */
void contract_has(unsigned part, const char *name, const TTest *test, double timeout_seconds);

const struct contract_backend *contract_backend(int number);

/* Open a limiter on this backend, whose clock and log are the scene's. */
void open_backend(struct scene *scene, int backend);

static inline struct weir_request request_of(weir_limit *limit, const char *key, int64_t cost)
{
    return (struct weir_request){ .limit = limit, .key = weir_key_text(key), .cost = cost };
}

static inline void refund(weir_limit *limit, const char *key, int64_t cost)
{
    must_succeed(weir_refund(limit, weir_key_text(key), cost));
}

static inline void charge(weir_limit *limit, const char *key, int64_t cost)
{
    must_succeed(weir_charge(limit, weir_key_text(key), cost));
}

/* Reserve, and assert that the request is allowed or denied. */
struct weir_reservation reserved(weir_limit *limit, const char *key, int64_t estimate, bool allowed);

static inline void settle(weir_limit *limit, const char *key, struct weir_reservation reservation, int64_t actual)
{
    must_succeed(weir_settle(limit, weir_key_text(key), &reservation, actual));
}

/* How often, and with which status last, a submitted operation was completed; see complete(). */
struct completion {
    atomic_int runs;
    atomic_int status;
};

/* Note the completion in the operation's `user`, a struct completion. */
void complete(struct weir_op *op, int status);

/* Submit and wait for the answer in op->decision. */
void submit_and_wait(weir *limiter, struct weir_op *op);

#endif
