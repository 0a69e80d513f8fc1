/* test_redis_cluster_inspect.c - the inspector finds keys on every node of a cluster, and while their slots move. */
#include "cluster_place.h"

#include <stdio.h>

static struct cluster common;

static weir_inspector *inspector_of(struct place *place)
{
    static char url[256];
    weir_inspector *inspector;
    struct weir_options options = place_options(place, PATIENT_US);
    cluster_url(&common, 0, common.wish.primaries, "", url, sizeof url); /* as the user who may do everything */
    options.redis_url = url;
    must(weir_inspect_open(&options, &inspector) == WEIR_OK, weir_last_message());
    return inspector;
}

static struct weir_inspected inspected(weir_inspector *inspector, const char *limit, const char *key)
{
    struct weir_inspected found = { .size = sizeof found };
    must(weir_inspect_key(inspector, limit, weir_key_text(key), &found) == WEIR_OK, weir_last_message());
    return found;
}

static int count_key(void *user, const struct weir_inspected *key)
{
    int64_t *used = user;
    *used += key->state.used;
    return WEIR_OK;
}

TEST(the_inspector_finds_and_resets_keys_of_all_nodes, 60)
{
    enum { KEYS = 30 };
    struct place place;
    const struct weir_options options = cluster_options(&place, &common, PATIENT_US);
    weir *limiter = limiter_of(&options);
    weir_limit *limit = limit_of(limiter, "spread", FEW_OF_EACH);
    weir_inspector *inspector = inspector_of(&place);
    int64_t used = 0;
    for (int i = 0; i < KEYS; i++) {
        char key[LOAD_KEY_SIZE];
        key_of(&common, i % common.wish.primaries, i, key);
        taken(limit, key, 2);
        ck_assert_int_eq(inspected(inspector, "spread", key).state.used, 2);
    }
    must_succeed(weir_inspect_keys(inspector, "spread", NULL, count_key, &used));
    ck_assert_int_eq(used, 2 * KEYS);
    bool is_all = true;
    used = 0;
    must_succeed(weir_inspect_some(inspector, NULL, NULL, 100000, &is_all, count_key, &used));
    ck_assert(is_all && used >= 2 * KEYS);
    for (int i = 0; i < KEYS; i++) {
        char key[LOAD_KEY_SIZE];
        bool existed = false;
        key_of(&common, i % common.wish.primaries, i, key);
        must_succeed(weir_inspect_reset(inspector, "spread", weir_key_text(key), &existed));
        ck_assert(existed);
    }
    used = 0;
    must_succeed(weir_inspect_keys(inspector, "spread", NULL, count_key, &used));
    ck_assert_int_eq(used, 0);
    weir_inspect_close(inspector);
    weir_close(limiter);
    place_close(&place);
}

TEST(the_inspector_finds_a_key_before_during_and_after_its_slots_migration, 60)
{
    struct place place;
    char key[LOAD_KEY_SIZE];
    const struct weir_options options = cluster_options(&place, &common, PATIENT_US);
    weir *limiter = limiter_of(&options);
    weir_limit *limit = limit_of(limiter, "moved", FEW_OF_EACH);
    weir_inspector *inspector = inspector_of(&place);
    key_of(&common, 0, 100, key);
    const unsigned slot = cluster_key_slot(key);
    const int from = cluster_owner(&common, slot), to = cluster_owner(&common, first_slot(&common, 1));
    taken(limit, key, 3);
    cluster_good(&common, cluster_slot_begin(&common, slot, from, to));
    ck_assert_int_eq(inspected(inspector, "moved", key).state.used, 3);
    while (cluster_good(&common, cluster_slot_carry(&common, slot, from, to, 100)) > 0)
        continue;
    ck_assert_int_eq(inspected(inspector, "moved", key).state.used, 3); /* ASK */
    cluster_good(&common, cluster_slot_end(&common, slot, from, to));
    ck_assert_int_eq(inspected(inspector, "moved", key).state.used, 3); /* MOVED */
    bool existed = false;
    must_succeed(weir_inspect_reset(inspector, "moved", weir_key_text(key), &existed));
    ck_assert(existed);
    weir_inspect_close(inspector);
    weir_close(limiter);
    place_close(&place);
}

int main(void)
{
    return suite_on_cluster(tests(), &common, &(struct cluster_wish){ .primaries = 3 });
}
