/* test_slots.c - the area of slots after a process has died in the middle of a change, and when it is damaged. */
#include "backends/shared/slots.h"
#include "core/limiter/request.h"
#include "support.h"

#include <stdio.h>
#include <stdlib.h>

enum { KEYS = 16, SLOTS = 400 };

struct area {
    struct scene scene;
    weir_limit *limit;
    struct slots slots;
    void *bytes;
};

static void area_open(struct area *area)
{
    scene_open(&area->scene, NULL);
    area->limit = scene_define_text(&area->scene, "limit", "concurrency limit=60 hold=10s");
    area->scene.now_us = 1700000000 * WEIR_SECOND;
    area->bytes = calloc(1, slots_bytes(KEYS, SLOTS));
    must(area->bytes != NULL, "memory");
    slots_view(&area->slots, area->bytes, KEYS, SLOTS, false);
}

static void area_close(struct area *area)
{
    free(area->bytes);
    scene_close(&area->scene);
}

static struct weir_decision ask(struct area *area, enum weir_verb verb, int key, uint64_t id)
{
    char name[8];
    struct weir_decision decision;
    snprintf(name, sizeof name, "k%d", key);
    struct weir_backend_request request = backend_request(area->limit, weir_key_text(name), 1, area->scene.now_us,
                                                          verb);
    request.slot = id;
    slots_serve(&area->slots, &request, WEIR_FULL_DENY, &decision);
    return decision;
}

/* Take, release and renew by chance; times differ, so that ends come in any order after a repair. */
static void use(struct area *area, struct chance *chance, int steps)
{
    for (int i = 0; i < steps; i++) {
        area->scene.now_us += chance_between(chance, 0, 20000);
        const int verb = (int)chance_between(chance, 0, 5);
        ask(area,
            verb < 3   ? WEIR_TAKE
            : verb < 4 ? WEIR_RENEW
                       : WEIR_REFUND,
            (int)chance_between(chance, 0, 11), (uint64_t)chance_between(chance, 1, 300) * 2);
    }
}

TEST(an_area_is_made_whole_from_its_ids_alone, 30)
{
    CLOSED_BY(area_close) struct area area;
    struct chance chance = chance_make(1);
    area_open(&area);
    for (int round = 0; round < 50; round++) {
        struct weir_decision before[12];
        use(&area, &chance, 300);
        for (int key = 0; key < 12; key++)
            before[key] = ask(&area, WEIR_PEEK, key, 2);
        const int64_t slots = area.slots.head->slots;
        /* A process died: nothing but the slots' and keys' own fields can be trusted. */
        for (uint32_t i = 0; i <= area.slots.key_mask; i++)
            area.slots.keys_by_hash[i] = (uint32_t)chance_next(&chance);
        for (uint32_t i = 0; i <= area.slots.slot_mask; i++)
            area.slots.slots_by_id[i] = (uint32_t)chance_next(&chance);
        for (int i = 1; i <= SLOTS; i++) {
            area.slots.slots[i].next = (uint32_t)chance_next(&chance);
            area.slots.slots[i].before = (uint32_t)chance_next(&chance);
            area.slots.slots[i].same = (uint32_t)chance_next(&chance);
        }
        for (int i = 1; i <= KEYS; i++)
            area.slots.keys[i].sum = area.slots.keys[i].count = area.slots.keys[i].last = 77;
        slots_repair(&area.slots);
        ck_assert_int_eq(area.slots.head->slots, slots);
        for (int key = 0; key < 12; key++) {
            const struct weir_decision after = ask(&area, WEIR_PEEK, key, 2);
            assert_decision_is(&after, &before[key], "after the repair");
        }
    }
}

/* Whatever is in the area: every call ends, and touches nothing outside of it. */
TEST(a_damaged_area_ends_no_process, 60)
{
    struct chance chance = chance_make(2);
    for (int round = 0; round < 300; round++) {
        CLOSED_BY(area_close) struct area area;
        area_open(&area);
        area.scene.log_allowed = true;
        use(&area, &chance, 200);
        const size_t size = slots_bytes(KEYS, SLOTS);
        for (int i = 0; i < 20; i++) {
            const size_t at = (size_t)chance_between(&chance, 64, (int64_t)size - 1);
            ((unsigned char *)area.bytes)[at] ^= (unsigned char)chance_next(&chance);
        }
        use(&area, &chance, 200);
        slots_repair(&area.slots);
        use(&area, &chance, 200);
    }
}
