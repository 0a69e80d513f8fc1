/* cluster_place.h - where the tests on a Redis Cluster take place: limiters of the public API, and callers all the
 * while on keys whose slots are known.
 */
#ifndef WEIR_TESTS_CLUSTER_PLACE_H
#define WEIR_TESTS_CLUSTER_PLACE_H

#include "cluster.h"
#include "redis_place.h"

enum { LOAD_KEYS_MOST = 2048, LOAD_KEY_SIZE = 16 };

/* So long that no busy machine makes a call of it fail, and so long that none of a machine's ways does. */
#define PATIENT_US (20 * WEIR_SECOND)

/* Put the servers' folders where nothing waits for a disk, and start a cluster, which is patient, for all tests of a
 * program. 0, or main()'s exit status, and why has been said. */
int cluster_common(struct cluster *cluster, const struct cluster_wish *wish);
void cluster_open(struct cluster *cluster, const struct cluster_wish *wish);
/* Fails the test with the cluster's sentence, unless `error` is 0 or more; returns it. */
int cluster_good(const struct cluster *cluster, int error);

/* As place_options(), with all first primaries as seeds, and a place without a server. */
struct weir_options cluster_options(struct place *place, const struct cluster *cluster, int64_t timeout_us);

/* A key in a slot between `first` and `last`, the `which`th of them; not the same for two processes. */
void key_between(unsigned first, unsigned last, int which, char text[LOAD_KEY_SIZE]);
/* A key that this node has, of the slots that it had at first; likewise. */
void key_of(const struct cluster *cluster, int primary, int which, char text[LOAD_KEY_SIZE]);
unsigned first_slot(const struct cluster *cluster, int primary);
unsigned last_slot(const struct cluster *cluster, int primary);

/* All that was written so far is with the replica of every primary that has one. */
void await_cluster_replicas(struct cluster *cluster);

/* How often the nodes that are up were asked for the map of slots, and for a decision; -1: a server that does not tell
 * (Redis 6 counts all CLUSTER commands as one). */
int64_t map_asks(struct cluster *cluster);
int64_t script_calls(struct cluster *cluster, int node);

/* Whether that many questions for the map, in so long a time, are what `limiters` may ask. */
void assert_no_storm(int64_t asks, int64_t took_us, int limiters, const char *what);

/* ---- Callers all the while ---- */

enum load_way { LOAD_TRY, LOAD_BATCH, LOAD_SUBMIT };
enum { LOAD_GROUP = 8 }; /* of a batch, and submitted together */

/* A limit whose keys are soon spent. */
enum { FEW = 20 };
#define FEW_OF_EACH "fixed_window limit=20 period=366d"

struct load_key {
    char text[LOAD_KEY_SIZE];
    _Atomic int64_t allowed, by_others; /* what was admitted, and what of it not by Redis */
};

struct load {
    weir *limiter;
    weir_limit *limit;
    enum load_way way;
    int in_a_row;     /* how often a key is asked for before the next one; 0: once */
    int64_t pause_us; /* after each call */
    size_t n;
    struct load_key keys[LOAD_KEYS_MOST];
    struct crew crew;
    atomic_bool done;
    atomic_int failed, error;         /* calls that a caller saw fail, the last error */
    _Atomic int64_t calls, others;    /* others: decided by another than Redis */
    _Atomic int64_t longest_us;       /* call */
    _Atomic int64_t redis_us, gap_us; /* when Redis decided last; the longest time that it did not */
};

/* Add keys whose slots are between these two, until there are `n`. */
void load_keys(struct load *load, unsigned first, unsigned last, size_t n);

/* Take one permit of one key after the other, each thread from a place of its own, until load_end(). */
void load_start(struct load *load, weir *limiter, weir_limit *limit, int threads);
void load_end(struct load *load);
void load_print(const struct load *load, const char *what);

/* No error, and nobody but Redis has decided. */
void assert_load_undisturbed(const struct load *load);
/* Likewise, and each key is charged with what was admitted, no permit more or less. */
void assert_load_exact(const struct load *load);
/* Of a load on a limit of FEW_OF_EACH: what was admitted of each key by Redis, with all that is left, is at most FEW
 * for each time that it could have begun anew, and FEW if there was one only; and no more than FEW by others. */
void assert_few(struct load *load, int beginnings, const char *what);
/* The permits with which a key is charged. */
int64_t charged(weir_limit *limit, const char *key);

#endif
