/* huge.h - memory that becomes huge pages once it is in use.
 *
 * A decision on a large table misses the processor's cache when it reads the table and, on pages of 4 KiB, also when
 * the processor looks up the address of the page. A huge page of 2 MiB saves the second miss.
 *
 * Memory begins on small pages, and its user says when all of 2 MiB is in use; the rest of a huge page would be resident
 * and counted nowhere. Then a thread of the kernel copies it to a huge page within minutes. Two faster ways would delay
 * decisions, and a table of ten keys would take 2 MiB:
 *
 *     a huge page on first touch    0.1 ms; 5 ms on a virtual machine whose host must find the memory first, as it
 *                                   usually must where it takes free memory back
 *     MADV_COLLAPSE                 0.5 ms and up to 20 ms there, with threads waiting that need a page or this memory
 *
 * Threads that touch the memory while the kernel's thread copies it wait as well: 0.4 ms, or 5 ms there. That happens
 * once to each 2 MiB. The user must have touched the memory before, or else the first touch makes it a huge page.
 *
 * (Linux, Documentation/admin-guide/mm/transhuge.rst.)
 */
#ifndef BACKENDS_SHARED_HUGE_H
#define BACKENDS_SHARED_HUGE_H

#include <stddef.h>

#define HUGE_BYTES ((size_t)2 << 20)

/* Map at least `bytes` zeroed bytes, aligned to HUGE_BYTES. Only what is touched takes memory. NULL: out of memory. */
void *huge_map(size_t bytes);
void huge_unmap(void *memory, size_t bytes);

/* Let HUGE_BYTES of such a mapping, which is in use, become a huge page. A kernel without them leaves it as it is. */
void huge_advise(void *memory);

/* Let such memory, which is no longer all in use, not become a huge page. One that it is already stays. */
void huge_refuse(void *memory);

/* Give the whole pages among `bytes` of such a mapping back to the system. They read as zeros from then on. */
void huge_drop(void *memory, size_t bytes);

#endif
