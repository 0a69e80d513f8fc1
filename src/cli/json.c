/* json.c - strings for JSON on stdout. */
#include "cli/json.h"

#include <stdio.h>

void json_put_string(struct span text)
{
    putchar('"');
    while (text.len) {
        size_t len = span_character(text);
        unsigned char first = (unsigned char)text.data[0];
        if (len == 0)
            fputs("\\ufffd", stdout);
        else if (first == '"' || first == '\\')
            printf("\\%c", first);
        else if (first < 0x20 || first == 0x7f)
            printf("\\u%04x", first);
        else
            fwrite(text.data, 1, len, stdout);
        text = span_slice(text, len ? len : 1, text.len);
    }
    putchar('"');
}
