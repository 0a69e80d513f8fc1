/* scratch.h - where tests make temporary folders. */
#ifndef WEIR_LAB_SCRATCH_H
#define WEIR_LAB_SCRATCH_H

#include <stdlib.h>
#include <string.h>

/* Return $TMPDIR; or /tmp, if it is unset or so long that the path of a socket in it would not fit into 107 bytes. */
static inline const char *scratch_parent(void)
{
    const char *parent = getenv("TMPDIR");
    return parent && *parent && strlen(parent) <= 40 ? parent : "/tmp";
}

#endif
