/* test_redis_cluster_rights.c - the user that docs/redis.md creates on every cluster node has exactly the rights that a
 * cluster needs. test_redis_rights.c checks the rights that every server needs. */
#include "cluster_place.h"

static struct cluster common;

static void give_all(struct redis_user *user)
{
    for (int i = 0; i < common.n; i++)
        must(redis_user_set(user, cluster_asker(&common, i)) == 0, user->error);
}

/* A slot in migration: its owner answers ASK to requests for new keys. */
struct halfway {
    unsigned slot;
    int from, to;
    char key[LOAD_KEY_SIZE];
};

static struct halfway halfway_open(int which)
{
    struct halfway half;
    key_of(&common, 0, which, half.key);
    half.slot = cluster_key_slot(half.key);
    half.from = cluster_owner(&common, half.slot);
    half.to = cluster_owner(&common, first_slot(&common, 1));
    cluster_good(&common, cluster_slot_begin(&common, half.slot, half.from, half.to));
    return half;
}

static void halfway_close(const struct halfway *half)
{
    while (cluster_good(&common, cluster_slot_carry(&common, half->slot, half->from, half->to, 100)) > 0)
        continue;
    cluster_good(&common, cluster_slot_end(&common, half->slot, half->from, half->to));
}

/* A limiter asks further nodes only when it finds none that answers, so the log line may follow the call that failed.
 */
static void await_log(struct place *place, weir_limit *limit, const char *key, const char *without)
{
    struct weir_decision decision;
    for (int64_t until_us = wire_now_us() + RECOVERY_MOST_US; !place_logged(place, "NOPERM"); sleep_us(1000)) {
        ck_assert_msg(weir_try(limit, weir_key_text(key), 1, &decision) < 0, "without %s all is well", without);
        if (wire_now_us() > until_us)
            ck_abort_msg("without %s the log says: %s", without, place->log);
    }
}

static const char *const uses[] = { "in a cluster", "redis_replicas", NULL };

TEST(each_documented_right_in_a_cluster_is_necessary_and_a_missing_one_is_logged, 60)
{
    static const struct {
        const char *without; /* NULL: no right is missing */
        int replicas;
    } rows[] = { { NULL, 0 }, { "+cluster|slots", 0 }, { "+asking", 0 }, { NULL, 1 }, { "+wait", 1 } };
    await_cluster_replicas(&common);
    for (int i = 0; i < (int)(sizeof rows / sizeof *rows); i++) {
        struct redis_user all, fewer;
        struct place place;
        struct weir_decision decision;
        must(redis_user_read(&all, "weir", uses) == 0 && redis_user_read(&fewer, "weir", uses) == 0, all.error);
        must(rows[i].without == NULL || redis_user_without(&fewer, rows[i].without) == 0, fewer.error);
        give_all(&fewer);
        struct halfway half = halfway_open(i);
        struct weir_options options = cluster_options(&place, &common, 5 * WEIR_SECOND);
        options.redis_replicas = rows[i].replicas;
        weir *limiter = limiter_of(&options);
        weir_limit *limit = limit_of(limiter, "rights", FEW_OF_EACH);
        const int status = weir_try(limit, weir_key_text(half.key), 1, &decision);
        if (rows[i].without == NULL) {
            ck_assert_msg(status == WEIR_OK && place_log_lines(&place) == 0, "row %d: %s", i, place.log);
        } else {
            ck_assert_msg(status < 0, "without %s all is well", rows[i].without);
            await_log(&place, limit, half.key, rows[i].without);
            give_all(&all);
            recover(limit, half.key);
            ck_assert(taken(limit, half.key, 1).allowed);
        }
        weir_close(limiter);
        place_close(&place);
        halfway_close(&half);
    }
}

TEST(the_documented_redis_user_may_ask_a_cluster_only_for_its_slots, 30)
{
    static const char *const refused[][6] = {
        { "CLUSTER", "NODES" },
        { "CLUSTER", "FAILOVER", "TAKEOVER" },
        { "CLUSTER", "RESET", "HARD" },
        { "CLUSTER", "DELSLOTS", "1" },
        { "CLUSTER", "FORGET", "x" },
        { "READONLY" },
        { "MIGRATE", "x", "1", "key", "0", "9" },
        { "ROLE" },
    };
    static const char *const both[] = { "in a cluster", NULL };
    struct redis_user user;
    CLOSED_BY(asker_close) struct asker asker;
    char reply[4096];
    must(redis_user_read(&user, "weir", both) == 0, user.error);
    give_all(&user);
    must(asker_open(&asker, common.nodes[0].server.socket) == 0, asker.error);
    asker_ask(&asker, reply, sizeof reply, "AUTH", "weir", user.password, NULL);
    ck_assert_str_eq(reply, "OK");
    for (size_t i = 0; i < sizeof refused / sizeof *refused; i++) {
        const char *const *words = refused[i];
        must(asker_ask(&asker, reply, sizeof reply, words[0], words[1], words[2], words[3], words[4], words[5], NULL) >
                 0,
             asker.error);
        ck_assert_msg(strncmp(reply, "-NOPERM", 7) == 0, "%s %s: %s", words[0], words[1] ? words[1] : "", reply);
    }
}

int main(void)
{
    return suite_on_cluster(tests(), &common, &(struct cluster_wish){ .primaries = 3, .uses = uses });
}
