/* costs.h - costs that are known afterwards, and requests in flight: reserve, settle, release, renew, charge. Included
 * by weir.h.
 *
 *     struct weir_reservation reservation;
 *     if (weir_reserve(limit, key, estimate, &decision, &reservation) == WEIR_OK && decision.allowed)
 *         weir_settle(limit, key, &reservation, work());
 *
 * docs/costs.md has whole programs.
 */
#ifndef WEIR_COSTS_H
#define WEIR_COSTS_H

#ifndef WEIR_H
#error "include <weir/weir.h>"
#endif

/* Permits that weir_reserve() took. It is a plain value: copy it, keep it with the request, or pass it to another
 * process that uses the same Redis. Its fields are weir's. One that is never settled leaves its permits used. */
struct weir_reservation {
    int64_t permits; /* how many; -1: none, because the request was denied or a shadow limit would have denied it */
    int64_t at_us;   /* when they were charged, by the clock that decided; negative: to the state that keys without room
                      * share (WEIR_FULL_SHARE); 0: they do not come back */
    uint64_t id;     /* of the slot, under a limit on requests in flight; 0: there is none */
    int64_t candidate_us; /* when the policy's candidate charged them; -1: it did not; 0: there was none */
};

/* Take `estimate` permits as weir_try() would, and note in *reservation what weir_settle() needs. An estimate above the
 * limit can never be admitted: take the limit instead, and settle the rest. Errors as weir_try(); on an error neither
 * output is written. */
WEIR_API int weir_reserve(weir_limit *limit, struct weir_key key, int64_t estimate, struct weir_decision *out,
                          struct weir_reservation *reservation);

/* Do that, waiting for the permits as weir_acquire() does, up to `max_wait_us` (0 or more). The two stand in one line.
 * WEIR_OP_ACQUIRE writes op->reservation in the same way. */
WEIR_API int weir_reserve_wait(weir_limit *limit, struct weir_key key, int64_t estimate, int64_t max_wait_us,
                               struct weir_decision *out, struct weir_reservation *reservation);

/* Decide as weir_try_all(), and write a reservation for each request to reservations[0..n). Settle each of them with
 * its request's limit and key. If the group is denied, there is nothing to settle, and settling does nothing. On an
 * error the reservations are undefined. */
WEIR_API int weir_reserve_all(weir *w, const struct weir_request *requests, size_t n, struct weir_decision *out,
                              struct weir_reservation *reservations);

/* Correct a reservation of this limit and key: `actual` permits have been used, 0 or more.
 *
 * If fewer were used than reserved, the others come back where they were taken, unless they have come back by
 * themselves. A window or an interval that has ended since gave back all of them. A bucket that refills continuously
 * gave back as many as it had refilled by the last charge of the key. So a window then admits as if `actual` had been
 * taken at first. So does such a bucket if nothing else was charged since. Otherwise it admits no more than that, and
 * less if the estimate was far off for long. After a change of policy the new policy says how many have come back.
 * After a reset, permits of later requests may come back instead.
 *
 * If more were used than reserved, the difference is charged, as by weir_charge().
 *
 * In hybrid mode the permits of a busy key join a lease, or go to Redis with this instance's next call there.
 *
 * Settle once: a second call corrects a second time. WEIR_EINVAL if *reservation is none. In the modes on Redis also
 * the errors of weir_refund() and weir_charge(). With WEIR_FAIL_LOCAL, WEIR_ETIME and WEIR_EIO leave open whether the
 * correction was made, so do not repeat it: weir repeats those that were certainly not. Permits that the fallback of an
 * outage has reserved do not come back. */
WEIR_API int weir_settle(weir_limit *limit, struct weir_key key, const struct weir_reservation *reservation,
                         int64_t actual);

/* Give back the slot that weir_reserve() took of a limit on requests in flight (WEIR_CONCURRENCY): weir_settle() with 0.
 *
 * The slot is free immediately, for every instance. A slot has an id, so a release can be repeated: a slot that is not held
 * any more frees nothing, and the call returns WEIR_OK. It also does if Redis does not answer or refuses: weir then
 * repeats the release in the background until Redis has answered or the hold is over, up to WEIR_MAX_RELEASES at a
 * time. weir_stats.releases_lost counts those beyond, whose slots are held until their hold is over.
 *
 * A slot that is never released is free when the policy's hold has passed since it was taken or renewed. So slots of a
 * process that died come back. At most `limit` requests are in flight whose hold is not over, over all instances that
 * share the state. A request that runs for longer renews its slot. retry_after_us of a denial is the time by which
 * enough slots end at the latest: a release may free one earlier. */
#define WEIR_MAX_RELEASES 16384
static inline int weir_release(weir_limit *limit, struct weir_key key, const struct weir_reservation *reservation)
{
    return weir_settle(limit, key, reservation, 0);
}

/* Begin the hold of a reservation of this limit and key anew. `cost` is its number of permits. A slot that is held
 * needs no room, so its renewal is never denied, however many others wait, and under whatever policy: renew every third
 * of the hold. A new policy's hold applies from then on.
 *
 * A slot whose hold is over is taken anew if there is room. Otherwise out->allowed is false, and nothing changes,
 * *reservation included: end the request, or renew again. A reservation without permits is taken as by weir_reserve().
 *
 * This is for WEIR_CONCURRENCY. Under other policies a renewal gives the permits back as weir_settle() with 0 does, and
 * takes them again, in one step; those that have come back by themselves are taken a second time. A renewal always asks
 * Redis, also in hybrid mode.
 *
 * WEIR_EINVAL if *reservation is none, or has another number of permits than `cost`. Otherwise errors as weir_try(); on
 * an error neither output is written. While Redis is out of reach a renewal returns WEIR_EIO or WEIR_ETIME, whatever
 * on_failure says: the slot keeps the hold that it has, so go on, and renew again. A slot that the fallback has given is
 * renewed there. */
WEIR_API int weir_renew(weir_limit *limit, struct weir_key key, int64_t cost, struct weir_decision *out,
                        struct weir_reservation *reservation);

/* Charge `cost` permits, 1 or more, that have been used already, such as the bytes of an answer. It is never denied,
 * nor refused because the cost is large: it charges as many as a key can hold, at least the whole limit. If the limit
 * has no room for them, the key is overdrawn: remaining is 0, and it admits nothing until the excess has come back as
 * well. A window forgets the excess when it ends. Other plans of the key, see weir_limit_define(), are full at most.
 *
 * A key holds at most 2^53 - 1 permits in use, or 2^32 - 1 if a sliding window has no more. A bucket holds less if
 * their refill would take longer than WEIR_MAX_FILL_US or exceed 2^53 of its units. Permits beyond that, and those of a
 * new key that finds no room in memory, are not charged; weir_stats.unsettled counts them.
 *
 * Under WEIR_CONCURRENCY they are held until the policy's hold is over; no call releases them.
 *
 * During an outage the fallback of WEIR_FAIL_LOCAL charges them, and Redis is charged afterwards. The other choices
 * cannot record them: then the call returns WEIR_ETIME or WEIR_EIO. */
WEIR_API int weir_charge(weir_limit *limit, struct weir_key key, int64_t cost);

#endif
