/* file_bytes.h - the bytes of the shared file of a test, read and written behind the limiters' backs. */
#ifndef WEIR_TESTS_FILE_BYTES_H
#define WEIR_TESTS_FILE_BYTES_H

#include "backends/machine/cells.h"
#include "shared_file.h"

#include <fcntl.h>

static inline void file_write(off_t at, const void *bytes, size_t len)
{
    const int fd = open(path, O_RDWR | O_CREAT | O_CLOEXEC, 0600);
    must(fd >= 0 && pwrite(fd, bytes, len, at) == (ssize_t)len, "the file is written");
    close(fd);
}

static inline void file_read(off_t at, void *bytes, size_t len)
{
    const int fd = open(path, O_RDONLY | O_CLOEXEC);
    must(fd >= 0 && pread(fd, bytes, len, at) == (ssize_t)len, "the file is read");
    close(fd);
}

static inline uint64_t file_word(off_t at)
{
    uint64_t word;
    file_read(at, &word, sizeof word);
    return word;
}

static inline struct machine_facts file_facts(void)
{
    struct machine_facts facts;
    file_read(0, &facts, sizeof facts);
    return facts;
}

/* Return where the cell of a file's only key is. */
static inline off_t key_find(void)
{
    const struct machine_facts facts = file_facts();
    for (uint64_t i = 0; i < facts.cells; i++) {
        const off_t at = (off_t)(machine_stripes_at() + machine_cells_at(&facts) + i * 64);
        if (cell_kind(file_word(at + 8)) == CELL_KEY)
            return at;
    }
    must(false, "there is a key");
    return 0;
}

#endif
