/* flat.c - whether a process keeps using more: see flat.h. */
#include "flat.h"

#include <dirent.h>
#include <stdio.h>
#include <string.h>

static int count_of(const char *path)
{
    int n = 0;
    DIR *folder = opendir(path);
    if (folder == NULL)
        return -1;
    for (const struct dirent *entry; (entry = readdir(folder)) != NULL;)
        n += entry->d_name[0] != '.';
    closedir(folder);
    return n;
}

bool flat_look(pid_t pid, struct look *look)
{
    char path[64], line[128];
    long long resident = -1, shared = 0, threads = -1;
    snprintf(path, sizeof path, "/proc/%d/status", (int)pid);
    FILE *file = fopen(path, "re");
    if (file == NULL)
        return false;
    while (fgets(line, sizeof line, file) != NULL) {
        if (sscanf(line, "VmRSS: %lld", &resident) == 1 || sscanf(line, "RssShmem: %lld", &shared) == 1)
            continue;
        sscanf(line, "Threads: %lld", &threads);
    }
    fclose(file);
    snprintf(path, sizeof path, "/proc/%d/fd", (int)pid);
    const int descriptors = count_of(path);
    *look = (struct look){ { (double)(resident - shared), 0, descriptors, (double)threads } };
    return resident >= 0 && descriptors >= 0;
}

void flat_add(struct flat *flat, const struct look *look)
{
    if (flat->n == LOOKS_MOST) {
        for (size_t i = 0; i < LOOKS_MOST / 2; i++)
            flat->looks[i] = flat->looks[2 * i];
        flat->n = LOOKS_MOST / 2;
    }
    flat->looks[flat->n++] = *look;
}

bool flat_means(const struct flat *flat, enum flat_kind kind, double *first, double *last)
{
    const size_t third = flat->n / 3;
    *first = *last = 0;
    if (flat->n < LOOKS_LEAST)
        return false;
    for (size_t i = 0; i < third; i++) {
        *first += flat->looks[i].values[kind] / (double)third;
        *last += flat->looks[flat->n - 1 - i].values[kind] / (double)third;
    }
    return true;
}

/* Memory: pages touched for the first time, of tables that only outages use, of code, and of each thread's heap
 * arena. The heap's used bytes avoid that, and are the sharper measure, but only include malloc(). Descriptors:
 * callers' own connections come and go. Threads: a host's name is looked up on one; those for submitted groups and
 * acquires, up to four a limiter, start when a crowd first needs them. */
double flat_slack(enum flat_kind kind, double first)
{
    switch (kind) {
    case FLAT_MEMORY: return 1536 + first * 0.05;
    case FLAT_HEAP: return 256 + first * 0.02;
    case FLAT_DESCRIPTORS: return 3 + first * 0.2;
    case FLAT_THREADS: return 8;
    }
    return 0;
}

bool flat_holds(const struct flat *flat, enum flat_kind kind)
{
    double first, last;
    if (!flat->is_judged || (kind <= FLAT_HEAP && !flat->is_one_life) || !flat_means(flat, kind, &first, &last))
        return true;
    return last <= first + flat_slack(kind, first);
}
