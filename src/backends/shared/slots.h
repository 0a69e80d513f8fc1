/* slots.h - requests in flight: the slots of each key, in memory of one process or in a file that several share.
 *
 * A slot has an id, a cost and a time at which its hold ends. docs/design/semantics.md ("Requests in flight") defines
 * what each verb does with it. Each key has a list of its slots, ordered by their ends. Takes and renewals go to its
 * end as long as the hold stays the same, so all verbs take constant time. After a shorter hold has come into force, a
 * take steps over the slots of the longer one.
 *
 * The memory is one area of fixed size, which holds indices and no pointers, except `far` of a process's own area. A
 * process may die at any instruction. A slot counts as soon as its id is there and until that is 0, and the ids alone
 * are the truth: slots_repair() makes lists and tables from them. So an area that was left in the middle of a change,
 * which `is_dirty` says, needs no journal.
 *
 * The caller locks the area.
 */
#ifndef BACKENDS_SHARED_SLOTS_H
#define BACKENDS_SHARED_SLOTS_H

#include <weir/backend.h>

#include <stdatomic.h>
#include <stdbool.h>
#include <stdint.h>

#define SLOTS_NAME_SIZE 48 /* bytes of a limit's name, with its NUL, and of a key that a record shows to people */
#define SLOTS_KEY_SIZE 64

/* A slot; 0 stands for no index. */
struct slots_slot {
    _Atomic uint64_t id; /* 0: none */
    _Atomic int64_t end_us, cost;
    uint32_t key;
    uint32_t next, before; /* in the key's list, by end; `next` also in the list of free ones */
    uint32_t same;         /* the next one whose id hashes alike */
};

struct slots_key {
    uint64_t hash[2]; /* both 0: none. The second one is of the key under a secret made of the first */
    uint64_t owner;   /* the caller's */
    uint64_t far;     /* in a process's own area: the whole key, if it is longer than `bytes` */
    int64_t sum;      /* of its slots' costs */
    uint32_t count, first, last;
    uint32_t next; /* the next one that hashes alike, or is free */
    uint32_t len;  /* of the key */
    uint32_t is_shared;
    char name[SLOTS_NAME_SIZE];
    unsigned char bytes[SLOTS_KEY_SIZE];
};

struct slots_head {
    uint32_t key_room, slot_room; /* constant */
    uint32_t is_dirty;
    uint32_t keys_made, slots_made; /* indices up to these have been used */
    uint32_t keys_free, slots_free;
    uint32_t hand; /* of slots_sweep() */
    int64_t keys, slots;
    int64_t far_bytes; /* of the keys that records point to */
};

/* A process's view of an area. */
struct slots {
    struct slots_head *head;
    uint32_t *keys_by_hash, *slots_by_id;
    struct slots_key *keys;   /* from 1 on */
    struct slots_slot *slots; /* from 1 on */
    uint32_t key_mask, slot_mask;
    uint32_t key_room, slot_room;  /* what the area says is not trusted */
    bool keeps_keys;               /* it may set `far` */
    bool is_broken;                /* an index led nowhere: the area is damaged */
    int64_t keys_most, bytes_most; /* beyond this many keys, and bytes of keys and slots, nothing is added */
};

/* Return the bytes of an area with room for these. */
size_t slots_bytes(uint32_t keys, uint32_t slots);

/* View an area, which is all zeroes or was viewed before with the same room. */
void slots_view(struct slots *slots, void *area, uint32_t keys, uint32_t slot_room, bool keeps_keys);

/* Make the lists and tables anew, after a process died in the middle of a change. */
void slots_repair(struct slots *slots);

/* Decide one request, and note its slot in its reservation. on_full decides where there is no room; then the source is
 * WEIR_BY_FULL, otherwise WEIR_BY_MEMORY. A fallback's answer to WEIR_REFUND has an `ahead` of 1 if the slot was
 * there. */
void slots_serve(struct slots *slots, const struct weir_backend_request *request, enum weir_on_full on_full,
                 struct weir_decision *out);

/* Decide a group, some of whose requests are about slots: all or nothing. The caller has locked the area; serve() calls
 * slots_serve(), and the backend's decide() the rates. slots_group.c */
typedef void slots_serves(struct weir_backend *backend, const struct weir_backend_request *request,
                          struct weir_decision *out);
int slots_serve_group(struct weir_backend *backend, const struct weir_backend_request *requests, size_t n,
                      slots_serves *serve, struct weir_decision *out);

/* Return the bytes that keys and slots use. */
int64_t slots_used_bytes(const struct slots *slots);

/* Return how many slots a request's key has, what they use, and in how long the first and the last of them end. */
int64_t slots_look(struct slots *slots, const struct weir_backend_request *request, int64_t now_us, int64_t *used,
                   int64_t *first_us, int64_t *last_us);

/* Forget the slots of a request's key. */
void slots_forget(struct slots *slots, const struct weir_backend_request *request);

/* Tell what a key's slots use, and in how long the first and the last of them end. */
void slots_tell_ends(const struct slots *slots, const struct slots_key *key, int64_t now_us, int64_t *used,
                     int64_t *first_us, int64_t *last_us);

/* Drop slots that are over, of the next `most` keys. */
void slots_sweep(struct slots *slots, int64_t now_us, uint32_t most);

/* Visit the slots, from the index *place on (0 at first), until `visit` returns false or none is left. */
typedef bool slots_visit(void *user, const struct slots_key *key, const struct slots_slot *slot);
void slots_each(struct slots *slots, uint32_t *place, slots_visit *visit, void *user);

/* Visit the keys alike. */
typedef bool slots_key_visit(void *user, const struct slots *slots, const struct slots_key *key);
void slots_each_key(const struct slots *slots, uint32_t *place, slots_key_visit *visit, void *user);

/* Return a key's bytes. */
struct weir_key slots_key_text(const struct slots_key *key);

/* Forget everything. */
void slots_drop(struct slots *slots);

#endif
