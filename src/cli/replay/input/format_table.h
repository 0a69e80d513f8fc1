/* format_table.h - the named formats and the prefixes, as texts for layout.h. */
#ifndef WEIR_CLI_FORMAT_TABLE_H
#define WEIR_CLI_FORMAT_TABLE_H

#include "cli/replay/input/formats.h"

struct table_format {
    const char *name;
    const char *texts[FORMATS_MAX_TEXTS + 1];
    bool has_others;
};

struct table_prefix {
    const char *name, *text;
    bool is_syslog;
};

extern const struct table_format FORMAT_TABLE[];    /* ends with a NULL name */
extern const struct table_prefix FORMAT_PREFIXES[]; /* no prefix, then syslog; ends with a NULL name */

/* Compile the format's texts behind a prefix. */
bool format_compile(struct format *format, const struct table_prefix *prefix, struct fault *fault);

#endif
