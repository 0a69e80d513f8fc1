/* times.c - exact points in time from text. */
#include "cli/times.h"

#include <stdio.h>
#include <string.h>
#include <time.h>

#include <weir/weir.h>

static const char *const OUT_OF_RANGE = "is outside the years 1970 to 2255";
static const char *const NO_UNIT = "lies outside 1990 to 2060 in every unit; --time-unit chooses one";
static const char *const NO_TIME = "is neither a number nor a date that weir knows";

struct moment {
    int year, month, day, hour, minute, second, microsecond;
    int zone_minutes; /* east of Greenwich */
};

static bool whole_read(struct span text, enum time_unit unit, int64_t *out_us, const char **wrong);
static bool seconds_read(struct span text, size_t point, int64_t *out_us, const char **wrong);
static bool iso_read(struct span text, struct moment *out);
static bool clf_time_read(struct span text, struct moment *out);
static bool moment_to_us(const struct moment *moment, int64_t *out_us, const char **wrong);

bool time_read(struct span text, enum time_unit unit, int64_t *out_us, const char **wrong)
{
    text = span_trim(text);
    if (text.len >= 2 && text.data[0] == '[' && text.data[text.len - 1] == ']')
        text = span_slice(text, 1, text.len - 1);
    bool negative = text.len > 1 && text.data[0] == '-';
    size_t digits = negative ? 1 : 0;
    while (digits < text.len && text.data[digits] >= '0' && text.data[digits] <= '9')
        digits++;
    char next = digits < text.len ? text.data[digits] : '\0';
    struct moment moment = { .month = 1, .day = 1 };
    *wrong = text.len ? NO_TIME : "is empty";
    if (negative && digits > 1) {
        *wrong = digits == text.len || next == '.' ? "is negative" : NO_TIME;
        return false;
    }
    if (text.len && digits == text.len)
        return whole_read(text, unit, out_us, wrong);
    if (digits && next == '.')
        return seconds_read(text, digits, out_us, wrong);
    if (digits == 4 && (next == '-' || next == '/'))
        return iso_read(text, &moment) && moment_to_us(&moment, out_us, wrong);
    if (digits == 2 && next == '/')
        return clf_time_read(text, &moment) && moment_to_us(&moment, out_us, wrong);
    static const char *const others[] = { "%a, %d %b %Y %H:%M:%S", "%a %b %d %H:%M:%S %Y", "%d-%b-%Y %H:%M:%S" };
    const char first = text.len > 10 ? text.data[0] : '\0';
    for (size_t i = 0; i < 3 && ((first >= 'A' && first <= 'Z') || (digits == 2 && next == '-')); i++)
        if (time_read_by(text, others[i], out_us, wrong))
            return true;
    return false;
}

bool time_is_plausible(int64_t time_us)
{
    return time_us >= 631152000 * WEIR_SECOND && time_us < 2840140800 * WEIR_SECOND;
}

bool time_unit_of_size(int64_t value, enum time_unit *out)
{
    static const enum time_unit units[] = { TIME_SECONDS, TIME_MILLISECONDS, TIME_MICROSECONDS, TIME_NANOSECONDS };
    static const int64_t scales[] = { 1, 1000, 1000000, 1000000000 };
    for (size_t i = 0; i < 4; i++)
        if (value >= 631152000 * scales[i] && value / scales[i] < 2840140800) /* the end in ns is beyond int64_t */
            return *out = units[i], true;
    return false;
}

const char *time_unit_name(enum time_unit unit)
{
    static const char *const names[TIME_UNITS] = { "", "microseconds", "milliseconds", "seconds", "nanoseconds" };
    return names[unit];
}

static bool whole_read(struct span text, enum time_unit unit, int64_t *out_us, const char **wrong)
{
    static const int64_t unit_us[TIME_UNITS] = {
        [TIME_MICROSECONDS] = 1, [TIME_MILLISECONDS] = 1000, [TIME_SECONDS] = WEIR_SECOND, [TIME_NANOSECONDS] = 1
    };
    int64_t value;
    *wrong = OUT_OF_RANGE;
    if (!span_number(text, &value))
        return false;
    *wrong = NO_UNIT;
    if (unit == TIME_BY_SIZE && !time_unit_of_size(value, &unit))
        return false;
    *wrong = OUT_OF_RANGE;
    if (unit == TIME_NANOSECONDS)
        value /= 1000;
    if (value > WEIR_MAX_TIME_US / unit_us[unit])
        return false;
    *out_us = value * unit_us[unit];
    return true;
}

/* Read up to six digits of a fraction of a second; `len` is the number of digits in the text. */
static bool fraction_read(struct span text, int *out_microsecond, size_t *out_len)
{
    int value = 0;
    size_t len = 0;
    for (; len < text.len && text.data[len] >= '0' && text.data[len] <= '9'; len++)
        if (len < 6)
            value = value * 10 + (text.data[len] - '0');
    for (size_t i = len; i < 6; i++)
        value *= 10;
    *out_microsecond = value;
    *out_len = len;
    return len > 0;
}

static bool seconds_read(struct span text, size_t point, int64_t *out_us, const char **wrong)
{
    struct span fraction = span_slice(text, point + 1, text.len);
    int64_t seconds;
    int microsecond;
    size_t len;
    if (!fraction_read(fraction, &microsecond, &len) || len != fraction.len)
        return false;
    *wrong = OUT_OF_RANGE;
    if (!span_number(span_slice(text, 0, point), &seconds))
        return false;
    enum time_unit unit;
    if (time_unit_of_size(seconds, &unit) && unit == TIME_MILLISECONDS)
        return *out_us = seconds * 1000 + microsecond / 1000, true;
    if (seconds > WEIR_MAX_TIME_US / WEIR_SECOND)
        return false;
    int64_t time_us = seconds * WEIR_SECOND + microsecond;
    if (time_us > WEIR_MAX_TIME_US)
        return false;
    *out_us = time_us;
    return true;
}

static bool time_take(struct span *text, char byte)
{
    if (!text->len || text->data[0] != byte)
        return false;
    text->data++, text->len--;
    return true;
}

/* Take exactly `len` digits. */
static bool take_digits(struct span *text, size_t len, int *out)
{
    int64_t value;
    if (text->len < len || !span_number(span_slice(*text, 0, len), &value))
        return false;
    *text = span_slice(*text, len, text->len);
    *out = (int)value;
    return true;
}

/* Take the zone at the end of the text: Z, +hh:mm, +hhmm, +hh, or nothing for UTC. The sign may be a minus. */
static bool take_zone(struct span *text, int *out_minutes)
{
    int hours, minutes = 0;
    *out_minutes = 0;
    if (!text->len || span_is_like(*text, "Z") || span_is_like(*text, "UTC") || span_is_like(*text, "GMT"))
        return true;
    bool west = text->data[0] == '-';
    if ((!time_take(text, '+') && !time_take(text, '-')) || !take_digits(text, 2, &hours))
        return false;
    if (text->len && ((void)time_take(text, ':'), !take_digits(text, 2, &minutes)))
        return false;
    if (text->len || hours > 23 || minutes > 59)
        return false;
    *out_minutes = (hours * 60 + minutes) * (west ? -1 : 1);
    return true;
}

static bool iso_read(struct span text, struct moment *out)
{
    const char dash = text.len > 4 && text.data[4] == '/' ? '/' : '-';
    if (!take_digits(&text, 4, &out->year) || !time_take(&text, dash) || !take_digits(&text, 2, &out->month) ||
        !time_take(&text, dash) || !take_digits(&text, 2, &out->day))
        return false;
    if (!text.len)
        return true;
    if (!time_take(&text, ' ') && !time_take(&text, 'T') && !time_take(&text, 't'))
        return false;
    if (time_take(&text, '-') && !time_take(&text, ' ')) /* 2026/11/10 - 06:00:00, as Gin writes it */
        return false;
    if (!take_digits(&text, 2, &out->hour) || !time_take(&text, ':') || !take_digits(&text, 2, &out->minute))
        return false;
    if (time_take(&text, ':')) {
        size_t len;
        if (!take_digits(&text, 2, &out->second))
            return false;
        if (time_take(&text, '.') || time_take(&text, ',')) {
            if (!fraction_read(text, &out->microsecond, &len))
                return false;
            text = span_slice(text, len, text.len);
        }
    }
    (void)time_take(&text, ' ');
    return take_zone(&text, &out->zone_minutes);
}

bool time_is_clock(struct span text)
{
    int part;
    size_t len = 0;
    return take_digits(&text, 2, &part) && time_take(&text, ':') && take_digits(&text, 2, &part) &&
           time_take(&text, ':') && take_digits(&text, 2, &part) &&
           (!text.len || (time_take(&text, '.') && fraction_read(text, &part, &len) && len == text.len));
}

bool time_read_by(struct span text, const char *format, int64_t *out_us, const char **wrong)
{
    char copy[80];
    struct tm parts = { .tm_mday = 1, .tm_year = 70 };
    struct moment moment = { 0 };
    size_t len;
    text = span_trim(text);
    *wrong = "does not fit its format";
    if (text.len == 0 || text.len >= sizeof copy)
        return false;
    memcpy(copy, text.data, text.len);
    copy[text.len] = '\0';
    const char *rest = strptime(copy, format, &parts);
    if (!rest)
        return false;
    text = span_slice(text, (size_t)(rest - copy), text.len);
    if (time_take(&text, '.') || time_take(&text, ',')) {
        if (!fraction_read(text, &moment.microsecond, &len))
            return false;
        text = span_slice(text, len, text.len);
    }
    (void)time_take(&text, ' ');
    if (!take_zone(&text, &moment.zone_minutes))
        return false;
    const int64_t zone_seconds = parts.tm_gmtoff ? parts.tm_gmtoff : moment.zone_minutes * 60;
    const int64_t seconds = timegm(&parts) - zone_seconds;
    *wrong = OUT_OF_RANGE;
    if (seconds < 0 || seconds >= WEIR_MAX_TIME_US / WEIR_SECOND)
        return false;
    *out_us = seconds * WEIR_SECOND + moment.microsecond;
    return true;
}

static bool clf_time_read(struct span text, struct moment *out)
{
    static const char months[12][4] = { "Jan", "Feb", "Mar", "Apr", "May", "Jun",
                                        "Jul", "Aug", "Sep", "Oct", "Nov", "Dec" };
    if (!take_digits(&text, 2, &out->day) || !time_take(&text, '/') || text.len < 3)
        return false;
    out->month = 0;
    for (int i = 0; i < 12; i++)
        if (memcmp(text.data, months[i], 3) == 0)
            out->month = i + 1;
    text = span_slice(text, 3, text.len);
    if (!out->month || !time_take(&text, '/') || !take_digits(&text, 4, &out->year) ||
        (!time_take(&text, ':') && !time_take(&text, ' ')) || !take_digits(&text, 2, &out->hour) ||
        !time_take(&text, ':') || !take_digits(&text, 2, &out->minute) || !time_take(&text, ':') ||
        !take_digits(&text, 2, &out->second))
        return false;
    size_t len;
    if (time_take(&text, '.') || time_take(&text, ',')) {
        if (!fraction_read(text, &out->microsecond, &len))
            return false;
        text = span_slice(text, len, text.len);
    }
    (void)time_take(&text, ' ');
    return take_zone(&text, &out->zone_minutes);
}

/* Return the days since 1970-01-01 of a Gregorian date from the year 1 on. Years begin in March here, so that a leap
 * day is the last day of its year; the months before a month then have (153 * months + 2) / 5 days. */
static int64_t days_since_epoch(int year, int month, int day)
{
    int march_year = year - (month <= 2), months = (month + 9) % 12;
    int64_t days = 365 * (int64_t)march_year + march_year / 4 - march_year / 100 + march_year / 400;
    return days + (153 * months + 2) / 5 + day - 1 - 719468;
}

static bool moment_to_us(const struct moment *moment, int64_t *out_us, const char **wrong)
{
    static const int month_days[12] = { 31, 28, 31, 30, 31, 30, 31, 31, 30, 31, 30, 31 };
    bool leap = (moment->year % 4 == 0 && moment->year % 100 != 0) || moment->year % 400 == 0;
    *wrong = "has no such month or day";
    if (moment->year < 1 || moment->month < 1 || moment->month > 12 || moment->day < 1 ||
        moment->day > month_days[moment->month - 1] + (leap && moment->month == 2))
        return false;
    *wrong = "has no such time of day";
    if (moment->hour > 23 || moment->minute > 59 || moment->second > 60)
        return false;
    int64_t minutes = (int64_t)moment->hour * 60 + moment->minute - moment->zone_minutes;
    int64_t seconds = days_since_epoch(moment->year, moment->month, moment->day) * 86400 + minutes * 60 +
                      moment->second;
    if (moment->second == 60 && seconds % 86400 != 0) /* leap seconds end at midnight UTC only */
        return false;
    *wrong = OUT_OF_RANGE;
    if (seconds < 0 || seconds > WEIR_MAX_TIME_US / WEIR_SECOND)
        return false;
    int64_t time_us = seconds * WEIR_SECOND + moment->microsecond;
    if (time_us > WEIR_MAX_TIME_US)
        return false;
    *out_us = time_us;
    return true;
}

static const struct {
    const char *name;
    enum time_unit unit;
} UNITS[] = {
    { "us", TIME_MICROSECONDS }, { "ms", TIME_MILLISECONDS }, { "ns", TIME_NANOSECONDS }, { "s", TIME_SECONDS }
};

bool time_unit_read(struct span text, enum time_unit *out)
{
    for (size_t i = 0; i < sizeof UNITS / sizeof *UNITS; i++)
        if (span_is_like(text, UNITS[i].name)) {
            *out = UNITS[i].unit;
            return true;
        }
    return false;
}

bool time_unit_of_name(struct span name, enum time_unit *out)
{
    size_t underscore = span_find_last(name, '_');
    return underscore < name.len && time_unit_read(span_slice(name, underscore + 1, name.len), out);
}

void time_print(int64_t time_us, char *text)
{
    time_t seconds = (time_t)(time_us / WEIR_SECOND);
    struct tm parts;
    gmtime_r(&seconds, &parts); /* fails only for years beyond an int */
    strftime(text, TIME_TEXT_SIZE, "%Y-%m-%dT%H:%M:%SZ", &parts);
}

void duration_print(int64_t duration_us, char *text)
{
    long long us = duration_us, seconds = us / WEIR_SECOND;
    if (us < 1000) {
        snprintf(text, TIME_TEXT_SIZE, "%lld us", us);
    } else if (us < WEIR_MINUTE) {
        long long whole = us < WEIR_SECOND ? us / 1000 : seconds;
        int places = us < WEIR_SECOND ? 3 : 6;
        long long rest = us < WEIR_SECOND ? us % 1000 : us % WEIR_SECOND;
        for (; places > 0 && rest % 10 == 0; places--)
            rest /= 10;
        const char *unit = us < WEIR_SECOND ? "ms" : "s";
        if (places)
            snprintf(text, TIME_TEXT_SIZE, "%lld.%0*lld %s", whole, places, rest, unit);
        else
            snprintf(text, TIME_TEXT_SIZE, "%lld %s", whole, unit);
    } else {
        static const struct {
            long long seconds;
            const char *name;
        } parts[] = { { 86400, "d" }, { 3600, "h" }, { 60, "min" }, { 1, "s" } };
        size_t used = 0;
        for (size_t i = 0; i < sizeof parts / sizeof *parts; i++) {
            long long count = seconds / parts[i].seconds;
            seconds %= parts[i].seconds;
            if (count)
                used += (size_t)snprintf(text + used, TIME_TEXT_SIZE - used, "%s%lld %s", used ? " " : "", count,
                                         parts[i].name);
        }
    }
}
