/* layout.h - what is in the file in which all processes of a machine count.
 *
 *     header      what the file is, how large its parts are, and who uses it
 *     stripes     each with a lock, a journal, buckets and cells; a key's hash chooses its stripe
 *     slots       of requests in flight, under a lock in the header; see in_flight.c
 *     rules       the plans under which states were written, in levels of 512, 1024, 2048, ... places. A new file has
 *                 the first level, and grows by the next one when a rule finds no place
 *
 * Nothing else changes its size. The file holds offsets and numbers, no pointers, so each process may map it elsewhere.
 *
 * A cell is 64 bytes. A key has one cell or a chain of them, which hold its state, perhaps a former state, and the key
 * itself. Free cells form a list. Bucket b's home is cell b + 1: a key of one or two cells lies there if it can, or in
 * the cell next to it, in the same 128 bytes. So a decision mostly finds it without its bucket.
 *
 *     word 0      Upper half: the next cell of the key, or of the list. Lower half: in the first cell of a key, the
 *                 next key of the bucket; in another cell, the cell before it in the key or in the list.
 *     word 1      What the cell is: the first of a key, with the key's rule, its length and a tag of its hash; or a
 *                 further one, with the number of the first.
 *     words 2, 3  In a first cell: two words of the state, which change as one, see pair.h.
 *     word 3      In another cell: PAIR_HELD, so that it is never taken for such a word.
 *     the others  The key, and then the rest of the states.
 *
 * The file is native to the machine: byte order and word size are part of the layout that the header names.
 */
#ifndef BACKENDS_MACHINE_LAYOUT_H
#define BACKENDS_MACHINE_LAYOUT_H

#include "backends/shared/slots.h"
#include "core/algorithm/algorithm.h"
#include "core/ground/hash.h"

#include <weir/backend.h>

#include <stdalign.h>
#include <stdatomic.h>
#include <stddef.h>

#define MACHINE_MAGIC UINT64_C(0x0a6d656d72696577) /* "weirmem\n" in memory */
#define MACHINE_BEGUN UINT64_C(0x0a77656e72696577) /* "weirnew\n": a process is making it, or died while it did */
#define MACHINE_VERSION 15

#define MACHINE_SLOTS 4096      /* processes that may use a file at the same time */
#define MACHINE_FIRST_RULES 512 /* places of the first level of rules; each further level has twice as many */
#define MACHINE_LEVELS 9
#define MACHINE_MAX_RULES \
    (MACHINE_FIRST_RULES * ((1 << MACHINE_LEVELS) - 1)) /* four for each of 65,536 limits, but 512 */
#define MACHINE_KEYS_PER_STRIPE 8192
#define MACHINE_FEW_KEYS 32768         /* a file for up to this many has more stripes than they fill, ... */
#define MACHINE_FEW_KEYS_PER_STRIPE 16 /* ... so that processes seldom want the same one */
#define MACHINE_FEW_STRIPES 32         /* at most, because each has FEWEST_CELLS at least (file.c) */
#define MACHINE_MAX_STRIPES 1024
#define MACHINE_MAX_KEYS (INT64_C(1) << 31)

/* The longest change: two states of the largest size, and the links of a key that is added and one that is removed. */
#define MACHINE_JOURNAL (2 * STATE_MAX_WORDS + 16)

/* A process's place. (o) written by its owner, which holds a lock on the byte of the slot, see file.h */
struct machine_slot {
    _Atomic uint64_t turn; /* (o) above 1, and new: no earlier process had this number in this slot */
    _Atomic uint64_t pid;  /* (o) for people */
};

/* What never changes while a process uses the file. */
struct machine_facts {
    uint64_t magic;
    uint64_t version;
    uint64_t layout; /* MACHINE_LAYOUT */
    uint64_t size;   /* bytes of a new file: with one level of rules */
    uint64_t max_keys;
    uint64_t stripes;          /* a power of two */
    uint64_t cells;            /* in a stripe */
    struct hash_secret secret; /* of all hashes of keys and names */
    uint64_t boot[2];          /* the boot at which epoch_us was read */
    int64_t epoch_us;          /* Unix time at boot */
    uint64_t sum;              /* of all that is above */
};

struct machine_header {
    struct machine_facts facts;
    alignas(64) _Atomic uint64_t rules_lock; /* a lock, see lock.h; a thread that adds or forgets rules has it */
    alignas(64) _Atomic uint64_t rules_turn; /* rises when rules are forgotten, with all stripes locked */
    _Atomic uint64_t levels; /* LEVELS_WORD of the rules' levels, once the file has grown; its size counts */
    alignas(64) _Atomic uint64_t door_pid;   /* of the process that is opening the file, for people; 0: none */
    alignas(64) _Atomic uint64_t slots_lock; /* a lock, see lock.h; guards the slots */
    alignas(4096) struct machine_slot slots[MACHINE_SLOTS];
};

/* A plan of a limit, or two: that of the state and that of the former state. */
struct machine_rule_text {
    struct hash_secret limit; /* the secret of the limit's hashes, which identifies it */
    uint64_t has_former;
    struct weir_plan plan, former;
    char name[WEIR_MAX_NAME_LEN + 8]; /* of the limit, for people */
};

#define MACHINE_RULE_WORDS (sizeof(struct machine_rule_text) / sizeof(uint64_t))

/* A place for a rule. Its tag is apart, with those of the other places of its level: a search reads tags. */
struct machine_rule {
    _Atomic uint64_t sum; /* of the text */
    _Atomic uint64_t text[MACHINE_RULE_WORDS];
};

struct machine_write {
    _Atomic uint64_t at; /* a word of the stripe */
    _Atomic uint64_t value;
};

/* All is guarded by the lock, except the pairs of keys. Words are atomic because a process may die between any two, and
 * because decisions and stats read without the lock. */
struct machine_stripe {
    alignas(64) _Atomic uint64_t lock; /* lock.h */
    _Atomic uint64_t journal_len;      /* writes of a change that is decided; 0: none. See journal.h */
    _Atomic uint64_t room;             /* the first free cell, or 0 */
    _Atomic uint64_t counts;           /* keys, and free cells in the upper half; 0: the stripe is new */
    struct machine_write journal[MACHINE_JOURNAL];
    _Atomic uint64_t repairs; /* odd: a repair is under way */
    _Atomic uint64_t evictions;
    _Atomic uint64_t damages; /* states and stripes that were found damaged */
    /* Hints for sweeps, see room.c. `hand` is the next bucket. soonest_us is when the first of the keys seen since
     * bucket 0 becomes idle, known_soonest_us is the same of the last full round. */
    _Atomic uint64_t hand;
    _Atomic int64_t soonest_us, known_soonest_us;
};

#define MACHINE_CELL_WORDS 8
#define MACHINE_CELL_HEAD 2 /* words before a cell's content */
#define MACHINE_CELL_CONTENT (MACHINE_CELL_WORDS - MACHINE_CELL_HEAD)
#define MACHINE_MORE_CONTENT (MACHINE_CELL_CONTENT - 1) /* of a cell that is not the first one of its key */

/* A fingerprint of all the above. A change of the layout that keeps these sizes must raise MACHINE_VERSION. */
#define MACHINE_LAYOUT                                                                             \
    ((uint64_t)sizeof(struct machine_header) << 44 ^ (uint64_t)sizeof(struct machine_rule) << 32 ^ \
     (uint64_t)sizeof(struct machine_stripe) << 16 ^ (uint64_t)sizeof(struct weir_plan) << 8 ^     \
     (uint64_t)offsetof(struct machine_stripe, journal) << 4 ^ (uint64_t)sizeof(void *) ^          \
     UINT64_C(0x5745495200000000))

/* ---- Sizes of the parts, in bytes ---- */

static inline uint64_t machine_rounded(uint64_t bytes, uint64_t to)
{
    return (bytes + to - 1) / to * to;
}

static inline uint64_t machine_stripes_at(void)
{
    return machine_rounded(sizeof(struct machine_header), 4096);
}

/* There are as many buckets as cells, of 32 bits each. */
static inline uint64_t machine_cells_at(const struct machine_facts *facts)
{
    return machine_rounded(sizeof(struct machine_stripe) + facts->cells * sizeof(uint32_t), 64);
}

static inline uint64_t machine_stripe_bytes(const struct machine_facts *facts)
{
    return machine_cells_at(facts) + facts->cells * MACHINE_CELL_WORDS * sizeof(uint64_t);
}

#define MACHINE_SLOT_KEYS 65536 /* keys that may have slots at the same time, at most */

static inline uint32_t machine_slot_keys(const struct machine_facts *facts)
{
    return facts->max_keys < MACHINE_SLOT_KEYS ? (uint32_t)facts->max_keys : MACHINE_SLOT_KEYS;
}

static inline uint64_t machine_slots_at(const struct machine_facts *facts)
{
    return machine_rounded(machine_stripes_at() + facts->stripes * machine_stripe_bytes(facts), 4096);
}

static inline uint64_t machine_rules_at(const struct machine_facts *facts)
{
    return machine_rounded(machine_slots_at(facts) + slots_bytes(machine_slot_keys(facts), WEIR_MAX_SLOTS), 4096);
}

/* Return the number of places for rules in the first `levels` levels. */
static inline uint64_t machine_places(unsigned levels)
{
    return MACHINE_FIRST_RULES * ((UINT64_C(1) << levels) - 1);
}

/* Return where a level begins, and the file with so many levels ends: each place takes its tag and its rule. */
static inline uint64_t machine_level_at(const struct machine_facts *facts, unsigned level)
{
    return machine_rules_at(facts) + machine_places(level) * (sizeof(uint64_t) + sizeof(struct machine_rule));
}

_Static_assert(MACHINE_FIRST_RULES *(sizeof(uint64_t) + sizeof(struct machine_rule)) % 4096 == 0,
               "each level begins on a page");

#define LEVELS_WORD UINT64_C(0x1111) /* a number of levels times this: a damaged word is hardly one of these */

/* Return how many levels such a word tells of, or 0: none, or it is damaged. */
static inline unsigned machine_levels_told(uint64_t word)
{
    const uint64_t levels = word % 16;
    return word == levels * LEVELS_WORD && levels <= MACHINE_LEVELS ? (unsigned)levels : 0;
}

/* Return a checksum. It detects accidents only: a process that can write to the file can write a matching sum, too. */
static inline uint64_t machine_sum(const void *data, size_t len)
{
    static const struct hash_secret fixed = { MACHINE_MAGIC, MACHINE_VERSION };
    return siphash13(&fixed, data, len);
}

#endif
