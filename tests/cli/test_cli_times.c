/* test_cli_times.c - times from text and back, exactly, and text that is safe to show. */
#include <stdio.h>
#include <string.h>
#include <time.h>

#include "cli/times.h"
#include "support.h"

TEST(every_day_is_read_as_the_system_counts_it, 30)
{
    int64_t days = WEIR_MAX_TIME_US / WEIR_DAY;
    for (int64_t day = 0; day <= days; day++) {
        time_t seconds = (time_t)(day * 86400);
        struct tm parts;
        char iso[64], clf[64];
        const char *wrong;
        int64_t iso_us = -1, clf_us = -1;
        ck_assert_ptr_nonnull(gmtime_r(&seconds, &parts));
        strftime(iso, sizeof iso, "%Y-%m-%dT%H:%M:%SZ", &parts);
        strftime(clf, sizeof clf, "[%d/%b/%Y:%H:%M:%S +0000]", &parts);
        ck_assert_msg(time_read(span_of(iso), TIME_SECONDS, &iso_us, &wrong) && iso_us == day * WEIR_DAY, "%s", iso);
        ck_assert_msg(time_read(span_of(clf), TIME_SECONDS, &clf_us, &wrong) && clf_us == day * WEIR_DAY, "%s", clf);
    }
}

TEST(only_days_of_the_calendar_are_read, 30)
{
    for (int year = 1969; year <= 2256; year++)
        for (int month = 0; month <= 13; month++)
            for (int day = 0; day <= 32; day++) {
                struct tm parts = { .tm_year = year - 1900, .tm_mon = month - 1, .tm_mday = day, .tm_hour = 12 };
                char text[64];
                const char *wrong;
                int64_t time_us;
                time_t seconds = timegm(&parts); /* changes an invalid day into a valid one */
                bool is_day = parts.tm_year == year - 1900 && parts.tm_mon == month - 1 && parts.tm_mday == day &&
                              seconds >= 0 && seconds <= WEIR_MAX_TIME_US / WEIR_SECOND;
                snprintf(text, sizeof text, "%04d-%02d-%02d 12:00:00", year, month, day);
                ck_assert_msg(time_read(span_of(text), TIME_MICROSECONDS, &time_us, &wrong) == is_day, "%s", text);
            }
}

TEST(times_in_every_format_are_read_exactly, 10)
{
    static const struct {
        const char *text;
        enum time_unit unit;
        int64_t time_us;
    } table[] = {
        { "0", TIME_MICROSECONDS, 0 },
        { "000000000000000000000", TIME_SECONDS, 0 },
        { "9007199254740991", TIME_MICROSECONDS, WEIR_MAX_TIME_US },
        { "9007199254740", TIME_MILLISECONDS, INT64_C(9007199254740000) },
        { "9007199254", TIME_SECONDS, INT64_C(9007199254000000) },
        { "9007199254740991999", TIME_NANOSECONDS, WEIR_MAX_TIME_US },
        { "9007199254.740991999", TIME_MICROSECONDS, WEIR_MAX_TIME_US },
        { "0.000001", TIME_NANOSECONDS, 1 },
        { "0.0000009", TIME_MICROSECONDS, 0 },
        { " 7\t", TIME_SECONDS, 7000000 },
        { "2255-06-05T23:47:34.740991Z", TIME_MICROSECONDS, WEIR_MAX_TIME_US },
        { "1970-01-01 23:59 +2359", TIME_MICROSECONDS, 0 },
        { "1969-12-31T23:00:00-01", TIME_MICROSECONDS, 0 },
        { "2016-12-31 23:59:60", TIME_MICROSECONDS, INT64_C(1483228800000000) },
        { "2017-01-01 05:29:60.5+05:30", TIME_MICROSECONDS, INT64_C(1483228800500000) },
        { "1970-01-01t00:00z", TIME_MICROSECONDS, 0 },
        { "2000-02-29 UTC", TIME_MICROSECONDS, -1 },
        { "2000-02-29T00:00 UTC", TIME_MICROSECONDS, INT64_C(951782400000000) },
    };
    for (size_t i = 0; i < sizeof table / sizeof *table; i++) {
        int64_t time_us = -1;
        const char *wrong;
        bool is_time = time_read(span_of(table[i].text), table[i].unit, &time_us, &wrong);
        ck_assert_msg(is_time == (table[i].time_us >= 0), "%s", table[i].text);
        ck_assert_msg(time_us == table[i].time_us, "%s is %lld", table[i].text, (long long)time_us);
    }
}

TEST(a_time_out_of_range_is_refused_and_nothing_is_written, 10)
{
    static const char *const table[] = { "9007199254740992",
                                         "9223372036854775808",
                                         "-1",
                                         "-0.5",
                                         "9007199254.740992",
                                         "99999999999999999999999.5",
                                         "",
                                         " ",
                                         "2255-06-05 23:47:35",
                                         "1969-12-31 23:59:59.999999",
                                         "[]",
                                         "1970-01-01T",
                                         "1970-01-01T00:00:00.",
                                         "0000-01-01",
                                         "1_0",
                                         "9007199254740.5",
                                         "9007199255.5",
                                         "-7x",
                                         "1970-1-01",
                                         "1970-01.01",
                                         "1970-01-1",
                                         "1970-01-01X00:00",
                                         "1970-01-01T0:00",
                                         "1970-01-01T00-00",
                                         "1970-01-01T00:0",
                                         "1970-01-01T00:00:7",
                                         "1970-01-01T00:00:61",
                                         "1970-01-01T00:00:00 01:00",
                                         "1970-01-01T00:00:00+1",
                                         "1970-01-01T00:00:00+01:",
                                         "1970-01-01T00:00:00+01:60",
                                         "1970-01-01T00:00:00+01:00x",
                                         "2255-06-05T23:47:34.740992Z",
                                         "1x/Jul/1995:00:00:01",
                                         "01/Ju",
                                         "01/Jux/1995:00:00:01",
                                         "01/Jul-1995:00:00:01",
                                         "01/Jul/199:00:00:01",
                                         "01/Jul/1995-00:00:01",
                                         "01/Jul/1995:0:00:01",
                                         "01/Jul/1995:00.00:01",
                                         "01/Jul/1995:00:0:01",
                                         "01/Jul/1995:00:00.01",
                                         "01/Jul/1995:00:00:1",
                                         "01/Jul/1995:24:00:00" };
    for (size_t i = 0; i < sizeof table / sizeof *table; i++) {
        int64_t time_us = -7;
        const char *wrong = NULL;
        ck_assert_msg(!time_read(span_of(table[i]), TIME_MICROSECONDS, &time_us, &wrong), "%s", table[i]);
        ck_assert_int_eq(time_us, -7);
        ck_assert_ptr_nonnull(wrong);
    }
}

TEST(durations_are_printed_in_readable_units, 10)
{
    static const struct {
        int64_t duration_us;
        const char *text;
    } table[] = {
        { 0, "0 us" },
        { 999, "999 us" },
        { 1500, "1.5 ms" },
        { 60000, "60 ms" },
        { 1000001, "1.000001 s" },
        { 30000000, "30 s" },
        { 4133000000, "1 h 8 min 53 s" },
        { 86400000000, "1 d" },
    };
    for (size_t i = 0; i < sizeof table / sizeof *table; i++) {
        char text[TIME_TEXT_SIZE];
        duration_print(table[i].duration_us, text);
        ck_assert_str_eq(text, table[i].text);
    }
}

TEST(shown_text_fits_its_room_and_escapes_control_characters, 10)
{
    static const struct {
        const char *text;
        size_t size;
        const char *shown;
    } table[] = {
        { "plain", 20, "plain" },
        { "a\\b\x1b[31m\x7f", 40, "a\\\\b\\x1b[31m\\x7f" },
        { "\xe2\x82\xac \xf0\x9f\x98\x80 \xf4\x90\x80\x80", 60, "\xe2\x82\xac \xf0\x9f\x98\x80 \\xf4\\x90\\x80\\x80" },
        { "\xc1\xbf\xe0\x80\x80\xf5\xe2\x82", 60, "\\xc1\\xbf\\xe0\\x80\\x80\\xf5\\xe2\\x82" },
        { "\xee\x80\x80", 60, "\xee\x80\x80" },
        { "\xc3\xa9\xc3\xe9\xc2\x9b\xed\xa0\x80", 60, "\xc3\xa9\\xc3\\xe9\\xc2\\x9b\\xed\\xa0\\x80" },
        { "1234567", 8, "1234567" },
        { "12345678", 8, "1234..." },
        { "123\xff\xff", 8, "123..." },
        { "123\xc3\xa9\xc3\xa9\xc3\xa9", 8, "123..." },
    };
    for (size_t i = 0; i < sizeof table / sizeof *table; i++) {
        char shown[64];
        memset(shown, '#', sizeof shown);
        span_show(span_of(table[i].text), shown, table[i].size);
        ck_assert_str_eq(shown, table[i].shown);
        ck_assert_int_eq(shown[table[i].size], '#');
    }
}
