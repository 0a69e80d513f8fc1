/* fuzz.c - helpers of the fuzz targets: see fuzz.h. */
#include "fuzz.h"

#include <inttypes.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <unistd.h>

/* ---- Properties ---- */

void fuzz_fail(const char *format, ...)
{
    va_list arguments;
    va_start(arguments, format);
    fputs("does not hold: ", stderr);
    vfprintf(stderr, format, arguments);
    fputc('\n', stderr);
    va_end(arguments);
    abort();
}

static void print_decision(const char *what, const struct weir_decision *decision)
{
    fprintf(stderr,
            "%-9s allowed %d source %u bound_by %" PRIu32 " limit %" PRId64 " remaining %" PRId64 " delay %" PRId64
            " retry %" PRId64 " reset %" PRId64 " ahead %" PRId64 "\n",
            what, decision->allowed, (unsigned)decision->source, decision->bound_by, decision->limit,
            decision->remaining, decision->delay_us, decision->retry_after_us, decision->reset_after_us,
            decision->ahead);
}

void fuzz_clean(const char *sentence)
{
    for (const unsigned char *at = (const unsigned char *)sentence; *at; at++)
        fuzz_must(*at >= ' ' && *at != 0x7f && !(at[0] == 0xc2 && at[1] >= 0x80 && at[1] <= 0x9f),
                  "a sentence has the control byte %02x", *at);
}

void fuzz_same_decision(const struct weir_decision *actual, const struct weir_decision *expected, const char *where)
{
    if (memcmp(actual, expected, sizeof *actual) == 0)
        return;
    print_decision("decided", actual);
    print_decision("expected", expected);
    fuzz_fail("%s: the decision is as expected", where);
}

bool fuzz_same_policy(const struct weir_policy *a, const struct weir_policy *b)
{
    return a->algorithm == b->algorithm && a->limit == b->limit && a->period_us == b->period_us &&
           a->burst == b->burst && a->debt == b->debt && a->capacity == b->capacity && a->blocks == b->blocks &&
           a->refill == b->refill && a->align == b->align && a->shadow == b->shadow && a->percent == b->percent &&
           memcmp(&a->candidate, &b->candidate, sizeof a->candidate) == 0;
}

/* ---- Choices ---- */

uint8_t feed_byte(struct feed *feed)
{
    return feed_is_over(feed) ? 0 : *feed->at++;
}

int64_t feed_between(struct feed *feed, int64_t least, int64_t most)
{
    const uint64_t span = (uint64_t)most - (uint64_t)least;
    uint64_t value = 0;
    for (uint64_t rest = span; rest > 0; rest >>= 8)
        value = value << 8 | feed_byte(feed);
    return (int64_t)((uint64_t)least + (span == UINT64_MAX ? value : value % (span + 1)));
}

int64_t feed_magnitude(struct feed *feed, int64_t most)
{
    int bits = 0;
    while (most >> bits > 1)
        bits++;
    const uint8_t choice = feed_byte(feed);
    if (choice < 96)
        return choice < most ? choice + 1 : most;
    int64_t value = INT64_C(1) << (choice % (bits + 1));
    switch (feed_byte(feed) % 4) {
    case 0: value += feed_between(feed, 0, value - 1); break;
    case 1: value -= 1; break;
    case 2: value += 1; break;
    default: break;
    }
    return value < 1 ? 1 : value > most ? most : value;
}

char *fuzz_text(const void *data, size_t len)
{
    char *copy = malloc(len + 1);
    fuzz_must(copy, "there is memory");
    if (len > 0)
        memcpy(copy, data, len);
    copy[len] = '\0';
    return copy;
}

char *feed_bytes(struct feed *feed, size_t most, size_t *len)
{
    *len = (size_t)feed_between(feed, 0, (int64_t)most);
    if (*len > (size_t)(feed->end - feed->at))
        *len = (size_t)(feed->end - feed->at);
    char *copy = fuzz_text(feed->at, *len);
    feed->at += *len;
    return copy;
}

/* Knuth's MMIX generator. */
size_t fuzz_piece(uint64_t *chance)
{
    *chance = *chance * UINT64_C(6364136223846793005) + UINT64_C(1442695040888963407);
    return (*chance >> 33) % (UINT64_C(1) << (*chance >> 60) % 7) + 1;
}

static int64_t feed_period(struct feed *feed)
{
    static const int64_t usual[] = { 1000,           WEIR_SECOND,  WEIR_MINUTE,   WEIR_HOUR,
                                     WEIR_DAY,       7 * WEIR_DAY, 30 * WEIR_DAY, 365 * WEIR_DAY,
                                     366 * WEIR_DAY, 999983,       86399999999,   1 };
    const uint8_t choice = feed_byte(feed);
    if (choice < 128)
        return usual[choice % (sizeof usual / sizeof usual[0])];
    return feed_magnitude(feed, WEIR_MAX_PERIOD_US);
}

struct weir_policy feed_policy(struct feed *feed)
{
    const uint8_t shape = feed_byte(feed);
    struct weir_policy policy = { .algorithm = (enum weir_algorithm)(shape % 4) };
    policy.limit = feed_magnitude(feed, WEIR_MAX_PERMITS);
    policy.period_us = feed_period(feed);
    const bool sized = shape & 4;
    switch (policy.algorithm) {
    case WEIR_TOKEN_BUCKET:
        policy.burst = sized ? feed_magnitude(feed, WEIR_MAX_PERMITS) : 0;
        policy.debt = shape & 8 ? feed_magnitude(feed, WEIR_MAX_PERMITS) : 0;
        policy.refill = shape & 16 ? WEIR_INTERVAL : WEIR_GREEDY;
        policy.align = (shape & 48) == 48 ? WEIR_ALIGN_EPOCH : WEIR_ALIGN_FIRST;
        break;
    case WEIR_FIXED_WINDOW: policy.align = shape & 32 ? WEIR_ALIGN_EPOCH : WEIR_ALIGN_FIRST; break;
    case WEIR_SLIDING_WINDOW: policy.blocks = sized ? (int32_t)feed_magnitude(feed, WEIR_MAX_BLOCKS) : 0; break;
    case WEIR_CONCURRENCY: break;
    case WEIR_LEAKY_BUCKET: policy.capacity = sized ? feed_magnitude(feed, WEIR_MAX_PERMITS) : 0; break;
    case WEIR_UNLIMITED:
    case WEIR_DENY: break; /* not made here */
    }
    return policy;
}

/* ---- Files ---- */

const char *fuzz_file(const void *data, size_t len)
{
    static char path[64];
    static int file = -1;
    if (file < 0)
        file = memfd_create("fuzz", MFD_CLOEXEC);
    fuzz_must(file >= 0 && ftruncate(file, 0) == 0 && pwrite(file, data, len, 0) == (ssize_t)len,
              "a file can be written");
    snprintf(path, sizeof path, "/proc/self/fd/%d", file);
    return path;
}
