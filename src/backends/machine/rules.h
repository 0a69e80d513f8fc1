/* rules.h - the table of the plans under which states were written: the file's rules.
 *
 * A key names its rule by the number of its place. So a rule never moves, and the table grows by whole levels, each
 * with twice as many places as the one before. In each level, a rule lies in one of two groups of eight places that its
 * hash chooses. A search reads the tags of these, which are two cache lines a level: some 70 ns with 20,000 rules. A new
 * rule takes the first level that has a place for it. Where the lowest level is out of places in both groups, four
 * fifths of its places or more are in use; they fill up later.
 *
 * A tag is written last, and says what its place has. So a search takes no lock: it reads the tag again after the text,
 * which has a checksum. Adding and forgetting take the rules' lock. A process that dies while it adds a rule leaves the
 * place free; one that dies while the file grows leaves it as large as it was, or grown.
 */
#ifndef BACKENDS_MACHINE_RULES_H
#define BACKENDS_MACHINE_RULES_H

#include "backends/machine/lock.h"

#define RULES_GROUP 8 /* places whose tags share a cache line */

/* Copy the text of a rule. False: the place has none, or it is damaged. */
bool rules_read(const struct machine_file *file, uint32_t number, struct machine_rule_text *out);

/* Return the number of a rule, or 0. It lasts until rules are forgotten. */
uint32_t rules_find(const struct machine_file *file, const struct machine_rule_text *text);

/* Add a rule that no process has added. Return its number, or 0: these levels have no place for it. The caller has the
 * rules' lock. */
uint32_t rules_add(const struct machine_file *file, const struct machine_rule_text *text);

/* Forget the rules that are not marked: marks[number - 1]. Return how many. The caller has the rules' lock, and all
 * stripes. */
uint64_t rules_forget(const struct machine_file *file, const uint8_t *marks);

/* True if there is a rule of a limit. It looks at all places. */
bool rules_have_limit(const struct machine_file *file, const struct hash_secret *limit);

/* Return the level of a number, and that of its place in it. */
static inline unsigned rules_level(uint32_t number, uint32_t *place)
{
    const uint32_t index = number - 1;
    const unsigned level = 31 - (unsigned)__builtin_clz(index / MACHINE_FIRST_RULES + 1);
    *place = index - (uint32_t)machine_places(level);
    return level;
}

#endif
