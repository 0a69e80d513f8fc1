/* rules.c - finds, adds and forgets the plans under which states were written. */
#include "backends/machine/rules.h"

#include <string.h>

_Static_assert(sizeof(struct machine_rule_text) == 16 + 8 + 2 * sizeof(struct weir_plan) + WEIR_MAX_NAME_LEN + 8,
               "no padding, of which a checksum would be made");
_Static_assert(sizeof(struct machine_rule_text) % sizeof(uint64_t) == 0, "it is whole words");

enum { TAG_NEVER, TAG_FORGOTTEN, TAG_USED }; /* tags below the last are no rule's */

static _Atomic uint64_t *level_tags(const struct machine_file *file, unsigned level)
{
    return (_Atomic uint64_t *)(void *)(file->map + machine_level_at(&file->facts, level));
}

static uint32_t level_places(unsigned level)
{
    return (uint32_t)MACHINE_FIRST_RULES << level;
}

static struct machine_rule *level_rules(const struct machine_file *file, unsigned level)
{
    return (struct machine_rule *)(void *)(level_tags(file, level) + level_places(level));
}

static uint32_t rule_number(unsigned level, uint32_t place)
{
    return (uint32_t)machine_places(level) + place + 1;
}

/* Copy the text of a place whose tag was `tag`. False: it is another one by now, or damaged. */
static bool place_read(const struct machine_file *file, unsigned level, uint32_t place, uint64_t tag,
                       struct machine_rule_text *out)
{
    uint64_t words[MACHINE_RULE_WORDS];
    const struct machine_rule *rule = &level_rules(file, level)[place];
    for (size_t i = 0; i < MACHINE_RULE_WORDS; i++)
        words[i] = atomic_load_explicit(&rule->text[i], memory_order_acquire);
    const uint64_t sum = atomic_load_explicit(&rule->sum, memory_order_acquire);
    memcpy(out, words, sizeof words);
    return atomic_load_explicit(&level_tags(file, level)[place], memory_order_relaxed) == tag &&
           machine_sum(out, sizeof *out) == sum;
}

bool rules_read(const struct machine_file *file, uint32_t number, struct machine_rule_text *out)
{
    uint32_t place = 0;
    const unsigned level = rules_level(number, &place);
    if (level >= file_levels(file))
        return false;
    const uint64_t tag = atomic_load_explicit(&level_tags(file, level)[place], memory_order_acquire);
    return tag >= TAG_USED && place_read(file, level, place, tag, out);
}

static bool text_is(const struct machine_rule_text *a, const struct machine_rule_text *b)
{
    return a->limit.k0 == b->limit.k0 && a->limit.k1 == b->limit.k1 && a->has_former == b->has_former &&
           a->plan.fingerprint == b->plan.fingerprint && a->former.fingerprint == b->former.fingerprint;
}

/* Return the tag of a rule. */
static uint64_t text_tag(const struct machine_rule_text *text)
{
    const uint64_t names[] = { text->limit.k0, (uint64_t)text->plan.fingerprint, (uint64_t)text->former.fingerprint };
    return machine_sum(names, sizeof names) | TAG_USED;
}

/* Return the first place of one of a rule's two groups. */
static uint32_t group_at(uint64_t tag, unsigned level, int which)
{
    const uint32_t groups = level_places(level) / RULES_GROUP;
    return (uint32_t)(which ? tag >> 34 : tag >> 4) % groups * RULES_GROUP;
}

uint32_t rules_find(const struct machine_file *file, const struct machine_rule_text *text)
{
    const uint64_t tag = text_tag(text);
    const unsigned levels = file_levels(file);
    struct machine_rule_text there;
    for (unsigned level = 0; level < levels; level++)
        for (int which = 0; which < 2; which++) {
            const uint32_t from = group_at(tag, level, which);
            for (uint32_t place = from; place < from + RULES_GROUP; place++)
                if (atomic_load_explicit(&level_tags(file, level)[place], memory_order_acquire) == tag &&
                    place_read(file, level, place, tag, &there) && text_is(&there, text))
                    return rule_number(level, place);
        }
    return 0;
}

/* Count the free places of a group, and find one. */
static int group_look(const _Atomic uint64_t *tags, uint32_t from, uint32_t *place)
{
    int n = 0;
    for (uint32_t i = from; i < from + RULES_GROUP; i++)
        if (atomic_load_explicit(&tags[i], memory_order_relaxed) < TAG_USED) {
            *place = i;
            n++;
        }
    return n;
}

/* Find a free place for a rule, in the emptier one of its groups. */
static bool level_find_place(const struct machine_file *file, uint64_t tag, unsigned level, uint32_t *place)
{
    const _Atomic uint64_t *tags = level_tags(file, level);
    uint32_t other = 0;
    const int first = group_look(tags, group_at(tag, level, 0), place);
    const int second = group_look(tags, group_at(tag, level, 1), &other);
    if (second > first)
        *place = other;
    return first + second > 0;
}

uint32_t rules_add(const struct machine_file *file, const struct machine_rule_text *text)
{
    uint64_t words[MACHINE_RULE_WORDS];
    const uint64_t tag = text_tag(text);
    const unsigned levels = file_levels(file);
    unsigned level = 0;
    uint32_t place = 0;
    while (level < levels && !level_find_place(file, tag, level, &place))
        level++;
    if (level == levels)
        return 0;
    struct machine_rule *rule = &level_rules(file, level)[place];
    memcpy(words, text, sizeof words);
    for (size_t i = 0; i < MACHINE_RULE_WORDS; i++)
        atomic_store_explicit(&rule->text[i], words[i], memory_order_release);
    atomic_store_explicit(&rule->sum, machine_sum(text, sizeof *text), memory_order_release);
    atomic_store_explicit(&level_tags(file, level)[place], tag, memory_order_release);
    return rule_number(level, place);
}

uint64_t rules_forget(const struct machine_file *file, const uint8_t *marks)
{
    uint64_t forgotten = 0;
    for (unsigned level = 0; level < file_levels(file); level++) {
        _Atomic uint64_t *tags = level_tags(file, level);
        for (uint32_t place = 0; place < level_places(level); place++)
            if (!marks[rule_number(level, place) - 1] &&
                atomic_load_explicit(&tags[place], memory_order_relaxed) >= TAG_USED) {
                atomic_store_explicit(&tags[place], TAG_FORGOTTEN, memory_order_release);
                forgotten++;
            }
    }
    return forgotten;
}

bool rules_have_limit(const struct machine_file *file, const struct hash_secret *limit)
{
    struct machine_rule_text text;
    for (uint32_t number = 1; number <= machine_places(file_levels(file)); number++)
        if (rules_read(file, number, &text) && text.limit.k0 == limit->k0 && text.limit.k1 == limit->k1)
            return true;
    return false;
}
