/* sample.c - what mutator.c must find, and what it must leave alone; never compiled. */
#include "sample.h"

#define LEFT_ALONE 5 /* if (a < b) in a comment, and in a line of the preprocessor */

enum { ALSO_LEFT_ALONE = 7 };

struct pair {
    char bytes[16];
};

static const int table[] = { 3 };

static bool is_less(int a, int b) __attribute__((const));

static bool is_less(int a, int b)
{
    return a < b;
}

static bool is_set(const struct pair *pair)
{
    return pair && *pair->bytes;
}

static int whole(struct pair *pair, int *count, int flags)
{
    char text[8] = "a + b";
    assert(*count > 0 && LEFT_ALONE == 5);
    if (!pair)
        return -1;
    for (int i = 0; i < 2; i++)
        *count += flags & (int)sizeof text;
    while (is_less(*count, 9) || is_set(pair))
        note(pair); /* a comment */
    switch (flags) {
    case 'x': break;
    default: *count = min_of(*count, is_set(pair) ? 1 : *count);
    }
    return *count % 10;
}
