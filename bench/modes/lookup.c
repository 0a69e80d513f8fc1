/* lookup.c - the floor of a decision in this process: see lookup.h.
 *
 * The table is one uthash table with its default hash and growth, and entries packed into one slab.
 */
#include "modes/lookup.h"

#include <pthread.h>
#include <stdlib.h>
#include <time.h>
#include <uthash.h>

struct node {
    UT_hash_handle hh;
    struct bench_key key;
    char state[24];
};

struct lookup {
    pthread_mutex_t mutex;
    struct node *nodes, *slab;
};

struct lookup *lookup_open(uint64_t keys)
{
    struct lookup *lookup = bench_allocate(1, sizeof *lookup);
    pthread_mutex_init(&lookup->mutex, NULL);
    lookup->slab = bench_allocate(keys, sizeof(struct node));
    for (uint64_t i = 0; i < keys; i++) {
        struct node *node = &lookup->slab[i];
        key_write(i, &node->key);
        HASH_ADD_KEYPTR(hh, lookup->nodes, node->key.text, node->key.len, node);
    }
    return lookup;
}

void lookup_close(struct lookup *lookup)
{
    HASH_CLEAR(hh, lookup->nodes);
    free(lookup->slab);
    pthread_mutex_destroy(&lookup->mutex);
    free(lookup);
}

size_t lookup_call(void *subject, int thread, const struct bench_key *draws, size_t n)
{
    struct lookup *lookup = subject;
    struct timespec now;
    struct node *node;
    size_t missing = 0;
    (void)thread;
    for (size_t i = 0; i < n; i++) {
        clock_gettime(CLOCK_BOOTTIME, &now);
        pthread_mutex_lock(&lookup->mutex);
        HASH_FIND(hh, lookup->nodes, draws[i].text, draws[i].len, node);
        missing += node == NULL;
        pthread_mutex_unlock(&lookup->mutex);
    }
    return missing;
}
