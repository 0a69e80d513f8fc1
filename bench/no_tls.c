/* no_tls.c - the section of TLS in a benchmark that was built without it: says so. */
#include "bench.h"

void bench_tls(struct bench *bench)
{
    bench_missing(bench, "tls", "built without it: -DWEIR_TLS=OFF");
}
