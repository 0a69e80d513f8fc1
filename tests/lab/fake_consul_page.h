/* fake_consul_page.h - one page of the fake agent, and how it is sent. */
#ifndef WEIR_LAB_FAKE_CONSUL_PAGE_H
#define WEIR_LAB_FAKE_CONSUL_PAGE_H

#include "fake_consul.h"
#include "wire.h"

struct page {
    char path[512];
    int status;
    uint64_t index;
    char *body;
    size_t len;
    enum fake_way way;
    int times; /* -1: forever */
    int64_t told_us;
};

/* Send it in its way, and count one time. */
void page_answer(struct wire *wire, struct page *page);

#endif
