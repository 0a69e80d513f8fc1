/* cells.h - the cells of a stripe: keys made of them, chains of keys, and the list of free ones.
 *
 * Nothing that is read from the file is trusted: a number of a cell is checked before it is used, a chain may be no
 * longer than there are cells, and a further cell must name the first one of its key. So a damaged stripe is noticed
 * and repaired (repair.c), never followed out of its bounds.
 *
 * The caller has the stripe's lock. Decisions without the lock may find and copy keys at the same time; the pair
 * (pair.h) then tells them whether the key has changed.
 */
#ifndef BACKENDS_MACHINE_CELLS_H
#define BACKENDS_MACHINE_CELLS_H

#include "backends/machine/pair.h"

#include <string.h>

/* ---- The two words before a cell's content ---- */

enum { CELL_FREE, CELL_KEY, CELL_MORE };

#define CELL_KIND_BITS 2
#define CELL_LEN_BITS 16
#define CELL_RULE_BITS 20
#define CELL_RULE_SHIFT (CELL_KIND_BITS + CELL_LEN_BITS)
#define CELL_TAG_SHIFT (CELL_RULE_SHIFT + CELL_RULE_BITS)

_Static_assert(WEIR_MAX_KEY_LEN <= 1 << CELL_LEN_BITS, "the length of a key, less one, fits");
_Static_assert(MACHINE_MAX_RULES < 1 << CELL_RULE_BITS, "the number of a rule, plus one, fits");

static inline unsigned cell_kind(uint64_t what)
{
    return (unsigned)what & ((1 << CELL_KIND_BITS) - 1);
}

static inline size_t cell_len(uint64_t what)
{
    return (size_t)(what >> CELL_KIND_BITS & ((1 << CELL_LEN_BITS) - 1)) + 1;
}

static inline uint32_t cell_rule(uint64_t what)
{
    return (uint32_t)(what >> CELL_RULE_SHIFT) & ((1 << CELL_RULE_BITS) - 1);
}

static inline uint64_t cell_tag(uint64_t hash)
{
    return hash >> CELL_TAG_SHIFT << CELL_TAG_SHIFT;
}

/* Return the second word of a key's first cell. */
static inline uint64_t cell_of_key(uint64_t hash, uint32_t rule, size_t len)
{
    return cell_tag(hash) | (uint64_t)rule << CELL_RULE_SHIFT | (uint64_t)(len - 1) << CELL_KIND_BITS | CELL_KEY;
}

static inline uint64_t cell_of_more(uint32_t first)
{
    return (uint64_t)first << CELL_KIND_BITS | CELL_MORE;
}

/* ---- Places ---- */

static inline uint64_t cell_at(const struct machine_shape *shape, uint32_t cell)
{
    return shape->cell_word + (uint64_t)(cell - 1) * MACHINE_CELL_WORDS;
}

/* Return the place of the pair of a key's first cell. */
static inline uint64_t pair_at(const struct machine_shape *shape, uint32_t first)
{
    return cell_at(shape, first) + MACHINE_CELL_HEAD;
}

/* Return the first cell of the key whose pair is at a place. */
static inline uint32_t cell_of_pair(const struct machine_shape *shape, uint64_t at)
{
    return (uint32_t)((at - shape->cell_word) / MACHINE_CELL_WORDS) + 1;
}

static inline bool cell_exists(const struct machine_shape *shape, uint32_t cell)
{
    return cell - 1 < shape->cells;
}

static inline uint32_t word_low(uint64_t word)
{
    return (uint32_t)word;
}

static inline uint32_t word_high(uint64_t word)
{
    return (uint32_t)(word >> 32);
}

static inline uint64_t word_of_halves(uint32_t low, uint32_t high)
{
    return (uint64_t)high << 32 | low;
}

#define ROOM_WORD (offsetof(struct machine_stripe, room) / sizeof(uint64_t))
#define COUNTS_WORD (offsetof(struct machine_stripe, counts) / sizeof(uint64_t))

/* Return the bucket of a hash: the upper 32 bits choose the stripe and are the tag. */
static inline uint32_t bucket_of(const struct machine_shape *shape, uint64_t hash)
{
    return (uint32_t)((uint64_t)(uint32_t)hash * shape->cells >> 32);
}

static inline uint32_t bucket_first(const struct machine_stripe *stripe, const struct machine_shape *shape,
                                    uint32_t bucket)
{
    const uint64_t word = stripe_load(stripe, shape->bucket_word + bucket / 2);
    return bucket % 2 ? word_high(word) : word_low(word);
}

/* Return the cell in which a bucket's key is looked for first, and the one next to it. */
static inline uint32_t bucket_home(uint32_t bucket)
{
    return bucket + 1;
}

static inline uint32_t bucket_second_home(uint32_t bucket)
{
    return (bucket ^ 1) + 1;
}

/* Return how many words hold a key of `len` bytes. */
static inline size_t key_words(size_t len)
{
    return (len + 7) / 8;
}

/* True if a key lies in its first cell. */
static inline bool key_is_short(size_t len)
{
    return PAIR_WORDS + key_words(len) <= MACHINE_CELL_CONTENT;
}

/* Return how many cells hold `words` of states and a key. */
static inline uint32_t cells_for(size_t words, size_t key_len)
{
    const size_t content = words + key_words(key_len);
    if (content <= MACHINE_CELL_CONTENT)
        return 1;
    return 1 + (uint32_t)((content - MACHINE_CELL_CONTENT + MACHINE_MORE_CONTENT - 1) / MACHINE_MORE_CONTENT);
}

/* Return how many cells are free. */
static inline uint32_t cells_free(const struct machine_stripe *stripe)
{
    return word_high(stripe_load(stripe, COUNTS_WORD));
}

/* ---- A key's words: the pair, the key, the rest of its state, a former state ---- */

/* Where the next word of a key is. */
struct walk {
    struct machine_stripe *stripe;
    const struct machine_shape *shape;
    uint32_t first, cell;
    uint32_t second; /* the cell after the first one, to which that does not lead yet; 0: it does */
    unsigned at;     /* in the cell's content */
};

static inline struct walk walk_begin(struct machine_stripe *stripe, const struct machine_shape *shape, uint32_t first)
{
    return (struct walk){ .stripe = stripe, .shape = shape, .first = first, .cell = first };
}

/* Return how many words of content the walk's cell has. */
static inline unsigned walk_room(const struct walk *walk)
{
    return walk->cell == walk->first ? MACHINE_CELL_CONTENT : MACHINE_MORE_CONTENT;
}

/* Return the place of a word of the walk's cell. */
static inline uint64_t walk_at(const struct walk *walk, unsigned at)
{
    return cell_at(walk->shape, walk->cell) + MACHINE_CELL_HEAD + at + (walk->cell != walk->first && at > 0);
}

/* Return the cell after `cell` in the chain of the key that begins in `first`, or 0: the chain is damaged. */
static inline uint32_t cell_after(const struct machine_stripe *stripe, const struct machine_shape *shape,
                                  uint32_t first, uint32_t cell)
{
    const uint32_t next = word_high(stripe_load(stripe, cell_at(shape, cell)));
    return cell_exists(shape, next) && stripe_load(stripe, cell_at(shape, next) + 1) == cell_of_more(first) ? next : 0;
}

/* Move on to the next cell. False: the chain is damaged. */
bool walk_on(struct walk *walk);

/* Return the place of the next word, or 0: the chain is damaged. */
static inline uint64_t walk_next(struct walk *walk)
{
    if (walk->at == walk_room(walk) && !walk_on(walk))
        return 0;
    return walk_at(walk, walk->at++);
}

/* Copy the next words. False: damaged. */
bool walk_read(struct walk *walk, int64_t *out, size_t words);

/* Skip words. False: damaged. */
bool walk_skip(struct walk *walk, size_t words);

/* Add the next words to a change, as far as they differ from those in the file. False: damaged. */
bool walk_change(struct walk *walk, struct change *change, const int64_t *words, size_t n);

/* Write the next words, or a key padded with zeros, into free cells. */
bool walk_write(struct walk *walk, const int64_t *from, size_t words);
bool walk_write_key(struct walk *walk, struct weir_key key);

/* True if the next words are the key; or those from `at` on, which are in one cell. */
bool walk_has_key(struct walk *walk, struct weir_key key);
bool cell_has_key_of(const struct machine_stripe *stripe, uint64_t at, struct weir_key key);

static inline bool cell_has_key(const struct machine_stripe *stripe, uint64_t at, struct weir_key key)
{
    uint64_t words[2];
    if (__builtin_expect(key.len != sizeof words, 0))
        return cell_has_key_of(stripe, at, key);
    memcpy(words, key.data, sizeof words);
    return ((stripe_load(stripe, at) ^ words[0]) | (stripe_load(stripe, at + 1) ^ words[1])) == 0;
}

/* ---- Changes ---- */

/* Take `n` cells out of those that are free, which are enough: up to two where they are found best. Return the first of
 * them; each of the others names it. *second is for the walk that writes them. 0: damaged. The change has no other part
 * yet. */
uint32_t cells_take(struct change *change, const struct machine_shape *shape, uint32_t bucket, uint32_t n,
                    uint32_t *second);

/* Make a key of taken cells, whose content is written, the first one of its bucket. */
void key_link(struct change *change, const struct machine_shape *shape, uint32_t first, uint64_t what, uint32_t bucket);

/* Take a key of `n` cells out of its bucket, where it follows the key `before`, or none, and free its cells. False:
 * damaged. */
bool key_unlink(struct change *change, const struct machine_shape *shape, uint32_t first, uint32_t before,
                uint32_t bucket, uint32_t n);

#endif
