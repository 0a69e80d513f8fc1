/* uthash_config.h - uthash as used here: out of memory is an answer, never exit().
 *
 * HASH_ADD... on an element leaves element->hh.tbl NULL if there was no memory, and the table as it was.
 */
#ifndef CORE_GROUND_UTHASH_CONFIG_H
#define CORE_GROUND_UTHASH_CONFIG_H

#define HASH_NONFATAL_OOM 1

#include <uthash.h>

#endif
