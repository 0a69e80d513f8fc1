/* decode.c - reads a name and a value of Redis as a key and its states, without knowing the limit's policy. */
#include "backends/redis/inspect/decode.h"

#include "core/algorithm/algorithm.h"
#include "core/ground/arith.h"
#include "core/policy/plan.h"

#include <string.h>

/* ---- Values ---- */

/* Read one state, or with `or_stamp` a stamp alone, in which nothing is used. False: it is neither. */
static bool state_decode(const unsigned char *bytes, size_t len, bool or_stamp, int64_t now_us,
                         struct weir_inspected_state *out)
{
    struct weir_plan plan;
    int64_t state[STATE_MAX_WORDS];
    enum redis_found found;
    struct origin origin;
    const size_t before = redis_origin_read(bytes, len, &origin);
    bytes += before;
    len -= before;
    const size_t stamp_len = redis_stamp_read(bytes, len, &plan);
    if (stamp_len == 0)
        return false;
    *out = (struct weir_inspected_state){ .policy = plan_policy(&plan) };
    if (out->policy.limit == 0)
        return false;
    if (or_stamp && len == stamp_len)
        state_charge(&plan, state, now_us, 0);
    else if (redis_state_read(&plan, bytes, len, state, &found) != (int)len || found != REDIS_STATE)
        return false;
    int64_t at_us = now_us;
    out->used = state_used(&plan, state, &at_us);
    state_decide(&plan, state, now_us, 1, WEIR_PEEK, &out->decision);
    out->decision.source = WEIR_BY_REDIS;
    return true;
}

static int64_t little_endian(const unsigned char *bytes, size_t len)
{
    uint64_t value = 0;
    while (len-- > 0)
        value = value << 8 | bytes[len];
    return (int64_t)value;
}

bool redis_value_decode(const unsigned char *bytes, size_t len, int64_t now_us, struct weir_inspected *out)
{
    out->has_former = false;
    if (len == 0 || bytes[0] != '+')
        return state_decode(bytes, len, false, now_us, &out->state);
    if (len < 1 + 7 + 2)
        return false;
    const int64_t until_us = little_endian(bytes + 1, 7);
    const size_t own_len = (size_t)little_endian(bytes + 8, 2);
    bytes += 10;
    len -= 10;
    if (until_us > EXACT_MAX || own_len > len || !state_decode(bytes, own_len, true, now_us, &out->state) ||
        !state_decode(bytes + own_len, len - own_len, true, now_us, &out->former))
        return false;
    out->has_former = until_us > now_us;
    return true;
}

/* ---- Names ---- */

static int hex_digit(char c)
{
    static const char digits[] = "0123456789ABCDEF";
    const char *at = c ? strchr(digits, c) : NULL;
    return at ? (int)(at - digits) : -1;
}

/* Read the text between the braces. False: weir has not written it. */
static bool tag_decode(const char *tag, size_t len, unsigned char room[REDIS_KEY_WHOLE], struct weir_inspected *out)
{
    size_t key_len = 0;
    out->is_cut = false;
    for (size_t i = 0; i < len && !out->is_cut; i++) {
        if (tag[i] == '%' && i + 1 < len && tag[i + 1] == '#') {
            out->is_cut = true;
            break;
        }
        if (key_len == REDIS_KEY_WHOLE || tag[i] == '{' || tag[i] == '}')
            return false;
        if (tag[i] == '%') {
            const int high = i + 2 < len ? hex_digit(tag[i + 1]) : -1, low = i + 2 < len ? hex_digit(tag[i + 2]) : -1;
            const int byte = high < 0 || low < 0 ? -1 : high << 4 | low;
            if (byte != '%' && byte != '{' && byte != '}') /* no other byte is escaped */
                return false;
            room[key_len++] = (unsigned char)byte;
            i += 2;
        } else {
            room[key_len++] = (unsigned char)tag[i];
        }
    }
    out->key = weir_key(room, key_len);
    return key_len > 0 && (!out->is_cut || key_len == REDIS_KEY_BEGINNING);
}

bool redis_name_decode(const char *name, size_t len, const char *prefix, unsigned char room[REDIS_KEY_WHOLE],
                       struct weir_inspected *out)
{
    const size_t prefix_len = strlen(prefix);
    if (len < prefix_len || memcmp(name, prefix, prefix_len) != 0)
        return false;
    name += prefix_len;
    len -= prefix_len;
    const char *brace = memchr(name, '{', len);
    const size_t limit_len = brace ? (size_t)(brace - name) : 0; /* with the colon */
    if (limit_len < 2 || limit_len > sizeof out->limit || brace[-1] != ':' || name[len - 1] != '}')
        return false;
    memcpy(out->limit, name, limit_len - 1);
    out->limit[limit_len - 1] = '\0';
    return memchr(out->limit, '\0', limit_len - 1) == NULL &&
           policy_state_name_check(out->limit, (struct message){ NULL, 0 }) == WEIR_OK &&
           tag_decode(brace + 1, len - limit_len - 2, room, out);
}
