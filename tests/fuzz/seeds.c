/* seeds.c - feeds a fuzz target its stored inputs and every prefix of each: a test without libFuzzer.
 *
 * Its arguments are folders and files. `--made N` adds N inputs of random bytes, the same ones in each run.
 */
#include "fuzz.h"

#include <dirent.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>

enum { INPUT_MAX = 1 << 20, BEGINNINGS_MAX = 4096, MADE_LEAST = 100, MADE_MOST = 1000 };

static size_t fed;

/* Use memory of the exact size, so that a sanitizer sees a read past the end. */
static void feed_input(const char *bytes, size_t len)
{
    uint8_t *copy = malloc(len ? len : 1);
    fuzz_must(copy, "there is memory");
    memcpy(copy, bytes, len);
    LLVMFuzzerTestOneInput(copy, len);
    free(copy);
}

static void feed_file(const char *path)
{
    static char bytes[INPUT_MAX];
    FILE *file = fopen(path, "rbe");
    fuzz_must(file, "%s can be opened", path);
    const size_t len = fread(bytes, 1, sizeof bytes, file);
    fuzz_must(!ferror(file) && feof(file), "%s can be read, and is no longer than %d bytes", path, INPUT_MAX);
    fclose(file);
    const size_t step = len / BEGINNINGS_MAX + 1;
    for (size_t beginning = 0; beginning < len; beginning += step)
        feed_input(bytes, beginning);
    feed_input(bytes, len);
    fed++;
}

static void feed_path(const char *path)
{
    struct stat status;
    fuzz_must(stat(path, &status) == 0, "%s is there", path);
    if (!S_ISDIR(status.st_mode)) {
        feed_file(path);
        return;
    }
    struct dirent **names;
    const int count = scandir(path, &names, NULL, alphasort);
    fuzz_must(count >= 0, "%s can be listed", path);
    for (int i = 0; i < count; i++) {
        char file[4096];
        snprintf(file, sizeof file, "%s/%s", path, names[i]->d_name);
        if (names[i]->d_name[0] != '.')
            feed_path(file);
        free(names[i]);
    }
    free(names);
}

/* Return the next number of the sequence xorshift64. */
static uint64_t random_next(uint64_t *state)
{
    *state ^= *state << 13;
    *state ^= *state >> 7;
    *state ^= *state << 17;
    return *state;
}

static void feed_made(long count)
{
    static char bytes[MADE_MOST];
    uint64_t state = UINT64_C(0x9e3779b97f4a7c15);
    fuzz_must(count > 0, "--made has a number above 0");
    for (long i = 0; i < count; i++) {
        const size_t len = MADE_LEAST + random_next(&state) % (MADE_MOST - MADE_LEAST);
        for (size_t at = 0; at < len; at++)
            bytes[at] = (char)(random_next(&state) >> 20);
        feed_input(bytes, len);
    }
}

int main(int argc, char **argv)
{
    for (int i = 1; i < argc; i++)
        if (strcmp(argv[i], "--made") == 0)
            feed_made(i + 1 < argc ? strtol(argv[++i], NULL, 10) : 0);
        else
            feed_path(argv[i]);
    fuzz_must(fed > 0, "there are seeds");
    printf("%zu seeds\n", fed);
    return 0;
}
