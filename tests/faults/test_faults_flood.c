/* test_faults_flood.c - an endless flood of new keys: fault F1 of tests/tools/faults.conf. WEIR_TEST_STEPS is their
 * number, if that is more than fit.
 */
#include "redis_place.h"

#include "core/ground/arith.h"

#include <inttypes.h>
#include <stdio.h>
#include <string.h>
#include <sys/mman.h>

/* Make huge pages now of all memory that may become huge pages. The kernel's thread does so within minutes, sooner than
 * later on a busy machine. A kernel before Linux 6.1 cannot. */
static void collapse_huge_pages(void)
{
    char line[256];
    uintptr_t from = 0, end = 0;
    FILE *maps = fopen("/proc/self/smaps", "re");
    must(maps != NULL, "the process can see its memory");
    while (fgets(line, sizeof line, maps)) {
        uintptr_t first, last;
        if (sscanf(line, "%" SCNxPTR "-%" SCNxPTR " ", &first, &last) == 2)
            from = first, end = last;
        else if (strncmp(line, "VmFlags:", 8) == 0 && strstr(line, " hg"))
            (void)madvise((void *)from, end - from, 25 /* MADV_COLLAPSE */);
    }
    fclose(maps);
}

/* Every key is new and idle a second later. At first there is room, then none, then the room of idle keys. The process
 * may exceed max_bytes only by the limiter's fixed size, whatever the kernel makes of its pages. */
TEST(a_flood_of_keys_stays_within_max_bytes, 60)
{
    static const int64_t most = INT64_C(32) << 20, besides = INT64_C(1) << 20;
    int64_t before = resident_bytes(), peak = 0, refused = 0;
    const int64_t keys = max_of(1000000, steps_or(1000000));
    OPEN_SCENE(scene, OPTIONS(.max_keys = 10 * 1000 * 1000, .max_bytes = most));
    weir_limit *limit = scene_define_text(&scene, "limit", "token_bucket limit=1 period=1s");
    for (int64_t i = 0; i < keys; i++) {
        char key[32];
        struct weir_decision decision;
        snprintf(key, sizeof key, "192.0.2.%" PRId64, i);
        must_succeed(weir_try(limit, weir_key_text(key), 1, &decision));
        refused += !decision.allowed;
        scene.now_us += i < keys / 2 ? 1 : 10; /* then all new keys find room */
        if (i % 10000 == 0) {
            if (i % 100000 == 0)
                collapse_huge_pages();
            const int64_t resident = resident_bytes() - before;
            peak = resident > peak ? resident : peak;
            must(stats_of(scene.limiter).bytes <= most, "what is kept is within its bound");
        }
    }
    printf("%" PRId64 " keys, %" PRId64 " of them without room: the process grew by %.1f %% of max_bytes at most\n",
           keys, refused, 100.0 * (double)peak / (double)most);
    if (!INSTRUMENTED)
        ck_assert_int_le(peak, most + most / 20 + besides);
    ck_assert_int_gt(refused, 0);
    ck_assert_uint_gt(stats_of(scene.limiter).evictions, 0);
}
