/* fake_consul_page.h - one page of a fake agent, and how it goes out. */
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
    int times; /* -1: for ever */
    int64_t told_us;
};

/* Say it in its way, of which one time is used up. */
void page_answer(struct wire *wire, struct page *page);

#endif
