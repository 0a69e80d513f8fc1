/* seeds.c - feeds a fuzz target its stored inputs and every prefix of each: a test without libFuzzer.
 *
 * Its arguments are folders and files. `--random S` feeds it inputs of random bytes for S seconds, others in each run. It
 * prints the seed of the first one; the next one's is one more. A property that an input violates is reported with the
 * seed of that input, and WEIR_TEST_SEED=<seed> makes it the first one.
 */
#include "fuzz.h"

#include <dirent.h>
#include <inttypes.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/random.h>
#include <sys/stat.h>
#include <time.h>
#include <unistd.h>

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

/* Spread a seed's bits (splitmix64), so that the sequences of neighbours have nothing in common. Never 0. */
static uint64_t random_start(uint64_t seed)
{
    seed += UINT64_C(0x9e3779b97f4a7c15);
    seed = (seed ^ seed >> 30) * UINT64_C(0xbf58476d1ce4e5b9);
    seed = (seed ^ seed >> 27) * UINT64_C(0x94d049bb133111eb);
    return (seed ^ seed >> 31) | 1;
}

static uint64_t random_seed; /* of the input that is being fed */

static void tell_seed(int number)
{
    char line[64];
    const int len = snprintf(line, sizeof line, "repeat it with WEIR_TEST_SEED=%" PRIu64 "\n", random_seed);
    if (write(STDERR_FILENO, line, (size_t)len) < 0)
        _exit(1);
    signal(number, SIG_DFL);
}

static int64_t seconds_now(void)
{
    struct timespec now;
    clock_gettime(CLOCK_MONOTONIC, &now);
    return now.tv_sec;
}

static void feed_random(long seconds)
{
    static char bytes[MADE_MOST];
    const char *given = getenv("WEIR_TEST_SEED");
    fuzz_must(seconds > 0, "--random has a number above 0");
    if (given)
        random_seed = strtoull(given, NULL, 0);
    else
        fuzz_must(getrandom(&random_seed, sizeof random_seed, 0) == sizeof random_seed, "there are random numbers");
    printf("random inputs from WEIR_TEST_SEED=%" PRIu64 " on\n", random_seed);
    fflush(stdout);
    signal(SIGABRT, tell_seed);
    size_t count = 0;
    for (const int64_t end = seconds_now() + seconds; seconds_now() < end; count++, random_seed++) {
        uint64_t state = random_start(random_seed);
        const size_t len = MADE_LEAST + random_next(&state) % (MADE_MOST - MADE_LEAST);
        for (size_t at = 0; at < len; at++)
            bytes[at] = (char)(random_next(&state) >> 20);
        feed_input(bytes, len);
    }
    fed += count;
    printf("%zu random inputs\n", count);
}

int main(int argc, char **argv)
{
    for (int i = 1; i < argc; i++)
        if (strcmp(argv[i], "--random") == 0)
            feed_random(i + 1 < argc ? strtol(argv[++i], NULL, 10) : 0);
        else
            feed_path(argv[i]);
    fuzz_must(fed > 0, "there are inputs");
    printf("%zu files and random inputs\n", fed);
    return 0;
}
