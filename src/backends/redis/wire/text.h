/* text.h - a piece of text without a NUL at its end, cut into words and numbers. */
#ifndef BACKENDS_REDIS_WIRE_TEXT_H
#define BACKENDS_REDIS_WIRE_TEXT_H

#include <stdbool.h>
#include <string.h>

struct redis_text {
    const char *at;
    size_t len;
};

static inline bool redis_is_digit(char c)
{
    return c >= '0' && c <= '9';
}

/* Cut off and return what comes before the first `mark`, which is dropped. Without a mark return everything and leave
 * NULL. */
static inline struct redis_text redis_text_cut(struct redis_text *text, char mark)
{
    const char *found = text->len > 0 ? memchr(text->at, mark, text->len) : NULL;
    const struct redis_text before = { text->at, found ? (size_t)(found - text->at) : text->len };
    *text = found ? (struct redis_text){ found + 1, text->len - before.len - 1 } : (struct redis_text){ NULL, 0 };
    return before;
}

/* Return the number, or -1 if the text is not a number of min to max, where max < 10^6. */
static inline int redis_text_number(struct redis_text text, int min, int max)
{
    int number = 0;
    for (size_t i = 0; i < text.len; i++) {
        if (!redis_is_digit(text.at[i]) || number > max)
            return -1;
        number = number * 10 + text.at[i] - '0';
    }
    return text.len == 0 || number < min || number > max ? -1 : number;
}

#endif
