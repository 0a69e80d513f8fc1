/* shared_file.h - a folder for a test of machine mode, and the path of a shared file in it. */
#ifndef WEIR_TESTS_SHARED_FILE_H
#define WEIR_TESTS_SHARED_FILE_H

#include "support.h"

#include <stdio.h>
#include <stdlib.h>
#include <unistd.h>

static char folder[64], path[96];

static void folder_make(void)
{
    snprintf(folder, sizeof folder, "/tmp/weir-machine-XXXXXX");
    must(mkdtemp(folder) != NULL, "a folder for the test");
    snprintf(path, sizeof path, "%s/counts", folder);
}

static void folder_remove(void)
{
    unlink(path);
    rmdir(folder);
}

#endif
