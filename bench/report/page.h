/* page.h - the results as one HTML file: see cli/page/page.h. */
#ifndef BENCH_PAGE_H
#define BENCH_PAGE_H

#include "report/inside.h"

/* Start the page results.html in `folder`. False after a complaint. */
bool report_page_open(struct report *report, const char *folder);

/* Write the section that has just ended. No page: does nothing, as below. */
void report_page_section(struct report *report);

/* End the page. False after a complaint. */
bool report_page_close(struct report *report);

#endif
