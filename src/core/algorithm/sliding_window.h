/* sliding_window.h - the size of a sliding window's state. */
#ifndef CORE_ALGORITHM_SLIDING_WINDOW_H
#define CORE_ALGORITHM_SLIDING_WINDOW_H

#include <stddef.h>
#include <stdint.h>

/* The newest block's id, then a 32-bit count for it and for each of the `blocks` before it. */
static inline size_t sliding_window_words(int32_t blocks)
{
    return 1 + ((size_t)blocks + 2) / 2;
}

#endif
