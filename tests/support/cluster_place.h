/* cluster_place.h - what the tests on a Redis Cluster share: limiters of the public API, and callers in the background
 * that ask for keys of known slots.
 */
#ifndef WEIR_TESTS_CLUSTER_PLACE_H
#define WEIR_TESTS_CLUSTER_PLACE_H

#include "cluster.h"
#include "redis_place.h"

enum { LOAD_KEYS_MOST = 2048, LOAD_KEY_SIZE = 16 };

/* A timeout that no call reaches, however busy the machine is. */
#define PATIENT_US (20 * WEIR_SECOND)

/* Run a suite on a cluster for all its tests, with long timeouts, and its folders where writes need no disk. `wish` may
 * be NULL. Return main()'s exit status. */
int suite_on_cluster(Suite *suite, struct cluster *cluster, const struct cluster_wish *wish);
void cluster_open(struct cluster *cluster, const struct cluster_wish *wish);
/* Return `error` if it is 0 or more; otherwise fail the test with the cluster's message. */
int cluster_good(const struct cluster *cluster, int error);

/* As place_options(), for a place without a server, with all initial primaries as seeds. */
struct weir_options cluster_options(struct place *place, const struct cluster *cluster, int64_t timeout_us);

/* Write the `which`th key with a slot between `first` and `last`. Two processes get different keys. */
void key_between(unsigned first, unsigned last, int which, char text[LOAD_KEY_SIZE]);
/* The same for the slots that this primary had in the beginning. */
void key_of(const struct cluster *cluster, int primary, int which, char text[LOAD_KEY_SIZE]);
unsigned first_slot(const struct cluster *cluster, int primary);
unsigned last_slot(const struct cluster *cluster, int primary);

/* Wait until every replica has all writes so far. */
void await_cluster_replicas(struct cluster *cluster);

/* Return how many requests for the map of slots the running nodes have received, and how many decisions one node.
 * -1 if the server cannot say: Redis 6 counts all CLUSTER commands as one. */
int64_t map_asks(struct cluster *cluster);
int64_t script_calls(struct cluster *cluster, int node);

/* Assert that `limiters` limiters may ask for the map this often in this time. */
void assert_no_storm(int64_t asks, int64_t took_us, int limiters, const char *what);

/* ---- Callers in the background ---- */

enum load_way { LOAD_TRY, LOAD_BATCH, LOAD_SUBMIT };
enum { LOAD_GROUP = 8 }; /* requests of one batch, or submitted together */

/* A limit whose keys are soon spent. */
enum { FEW = 20 };
#define FEW_OF_EACH "fixed_window limit=20 period=366d"

struct load_key {
    char text[LOAD_KEY_SIZE];
    _Atomic int64_t allowed, by_others; /* admitted permits; those of them that Redis did not admit */
};

struct load {
    weir *limiter;
    weir_limit *limit;
    enum load_way way;
    int in_a_row;     /* requests for a key before the next one; 0: one */
    int64_t pause_us; /* after each call */
    size_t n;
    struct load_key keys[LOAD_KEYS_MOST];
    struct crew crew;
    atomic_bool done;
    atomic_int failed, error;         /* failed calls; the last error */
    _Atomic int64_t calls, others;    /* others: calls that Redis did not decide */
    _Atomic int64_t longest_us;       /* call */
    _Atomic int64_t redis_us, gap_us; /* when Redis decided last; the longest time without its decision */
};

/* Add keys with slots between `first` and `last` until there are `n`. */
void load_keys(struct load *load, unsigned first, unsigned last, size_t n);

/* Take one permit of one key after another until load_end(); each thread begins at another key. */
void load_start(struct load *load, weir *limiter, weir_limit *limit, int threads);
void load_end(struct load *load);
void load_print(const struct load *load, const char *what);

/* Assert that no call failed and that Redis decided all of them. */
void assert_load_undisturbed(const struct load *load);
/* The same, and that each key is charged exactly what was admitted. */
void assert_load_exact(const struct load *load);
/* Check each key of a limit of FEW_OF_EACH. The permits that Redis admitted and those that are left are at most FEW for
 * each of the `beginnings` of its state, and exactly FEW if there was one. The fallback admitted at most FEW. */
void assert_few(struct load *load, int beginnings, const char *what);
/* Return the permits that are charged to a key. */
int64_t charged(weir_limit *limit, const char *key);

#endif
