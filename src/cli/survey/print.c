/* print.c - a survey, for people and as JSON. */
#include <inttypes.h>
#include <stdio.h>

#include "cli/cli.h"
#include "cli/inspected.h"
#include "cli/json.h"
#include "cli/survey/survey.h"

/* ---- For people ---- */

void survey_print_limits(const struct survey *survey)
{
    printf("%12s %12s %12s %12s %12s  limit\n", "keys", "denied now", "near", "permits used", "two policies");
    for (size_t i = 0; i < survey->limit_count; i++) {
        const struct survey_limit *row = &survey->limits[i];
        printf("%12" PRIu64 " %12" PRIu64 " %12" PRIu64 " %12" PRIu64 " %12" PRIu64 "  %s = %s%s\n", row->keys,
               row->denied, row->near, row->permits, row->disagreed, row->name, row->policy,
               row->is_mixed ? ", and others" : "");
    }
}

void survey_print_top(const struct survey *survey, const char *before)
{
    for (size_t i = 0; i < survey->top_count; i++) {
        fputs(before, stdout);
        inspected_line(&survey->top[i]);
        putchar('\n');
    }
}

void survey_print_rest(const struct survey *survey, const char *before)
{
    if (!survey->is_all)
        printf("%sonly about the first %" PRId64 " keys were looked at; --scan raises that\n", before, survey->scan);
    if (survey->foreign > 0)
        printf("%skeys whose values are not weir's: %" PRIu64 "\n", before, survey->foreign);
    if (survey->unlisted > 0)
        printf("%skeys of other limits than these %d: %" PRIu64 "\n", before, SURVEY_LIMITS, survey->unlisted);
}

/* ---- JSON ---- */

void survey_json_limits(const struct survey *survey)
{
    fputs("\"limits\":[", stdout);
    for (size_t i = 0; i < survey->limit_count; i++) {
        const struct survey_limit *row = &survey->limits[i];
        printf("%s{\"name\":", i > 0 ? "," : "");
        json_put_string(span_of(row->name));
        printf(",\"keys\":%" PRIu64 ",\"denied\":%" PRIu64 ",\"near\":%" PRIu64 ",\"permits\":%" PRIu64
               ",\"two_policies\":%" PRIu64 ",\"policy\":",
               row->keys, row->denied, row->near, row->permits, row->disagreed);
        json_put_string(span_of(row->policy));
        printf(",\"is_mixed\":%s}", row->is_mixed ? "true" : "false");
    }
    putchar(']');
}

void survey_json_top(const struct survey *survey, const char *name)
{
    printf("\"%s\":[", name);
    for (size_t i = 0; i < survey->top_count; i++) {
        fputs(i > 0 ? "," : "", stdout);
        inspected_json(&survey->top[i]);
    }
    putchar(']');
}

void survey_json_rest(const struct survey *survey)
{
    printf("\"foreign\":%" PRIu64 ",\"unlisted\":%" PRIu64 ",\"is_all\":%s", survey->foreign, survey->unlisted,
           survey->is_all ? "true" : "false");
}
