/* reader.c - one input: its format, and the values of the requested fields in each line. */
#include "cli/replay/input/reader.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "cli/cli.h"
#include "cli/replay/input/unknown.h"

#define GUESS_LINES 200 /* lines that decide on the format, unless GUESS_BYTES end before */
#define GUESS_BYTES ((size_t)1 << 20)

struct sample { /* the first lines, copied: the buffer of lines moves */
    char *bytes;
    size_t len, count;
    size_t offsets[GUESS_LINES + 1];
    struct span lines[GUESS_LINES];
};

void reader_free(struct reader *reader)
{
    format_free(&reader->format);
    sheet_free(&reader->sheet);
    record_free(&reader->record);
    record_free(&reader->wrapper);
    lines_free(&reader->lines);
}

const char *reader_format(const struct reader *reader)
{
    switch (reader->kind) {
    case READER_LOG: return reader->format.name;
    case READER_JSON: return "json";
    case READER_LOGFMT: return "logfmt";
    default: break;
    }
    const char separator = reader->sheet.separator;
    return reader->sheet.is_w3c ? "w3c" : separator == '\t' ? "tsv" : "csv";
}

/* ---- What stands around a line ---- */

static bool contains(struct span line, const char *text)
{
    return memmem(line.data, line.len, text, strlen(text)) != NULL;
}

static bool is_docker(struct span line)
{
    static const char begin[] = "{\"log\":\"";
    line = span_trim(line);
    return line.len > sizeof begin && memcmp(line.data, begin, sizeof begin - 1) == 0 &&
           contains(line, "\"stream\":\"") && contains(line, "\"time\":\"");
}

/* Take the line and the time out of Docker's object. */
static bool docker_unwrap(struct record *wrapper, struct span *line, struct span *out_time, struct fault *fault)
{
    if (!record_json(wrapper, span_trim(*line), fault))
        return false;
    const size_t log = record_find(wrapper, "log", 0), time = record_find(wrapper, "time", 2);
    if (log == RECORD_NONE)
        return fault_say(fault, "has no field 'log', as other lines of Docker do");
    *line = wrapper->all[log].value;
    while (line->len && (line->data[line->len - 1] == '\n' || line->data[line->len - 1] == '\r'))
        line->len--;
    *out_time = time == RECORD_NONE ? span_of("") : wrapper->all[time].value;
    return true;
}

/* Return the time that a line begins with, up to a tab or of one to three words; empty if there is none. */
static struct span leading_time(struct span line)
{
    const size_t tab = span_find(line, '\t');
    size_t end = tab < line.len ? tab : span_find(line, ' ');
    struct span best = span_of("");
    for (int words = 0; words < 3; words++) {
        int64_t time_us;
        const char *wrong;
        const struct span text = span_slice(line, 0, end);
        if (time_read(text, TIME_BY_SIZE, &time_us, &wrong) && time_is_plausible(time_us))
            best = text;
        if (end == line.len)
            break;
        end += 1 + span_find(span_slice(line, end + 1, line.len), ' ');
    }
    return best;
}

/* Return the JSON object at the end of a line, and whether text stands before it. Empty if there is none. */
static struct span object_of(struct span line, bool *out_is_behind)
{
    line = span_trim(line);
    *out_is_behind = false;
    if (line.len == 0 || line.data[0] == '{')
        return line;
    if (line.data[line.len - 1] != '}')
        return span_of("");
    size_t at = 2;
    while (at < line.len && (line.data[at] != '{' || (line.data[at - 1] != ' ' && line.data[at - 1] != '\t') ||
                             line.data[at - 2] == ',')) /* a field of CSV */
        at++;
    *out_is_behind = at < line.len;
    return span_slice(line, at, line.len);
}

/* ---- The first lines ---- */

static bool sample_add(struct sample *sample, struct span line)
{
    char *grown = realloc(sample->bytes, sample->len + line.len + 1);
    if (!grown)
        return false;
    sample->bytes = grown;
    memcpy(grown + sample->len, line.data, line.len);
    sample->offsets[sample->count++] = sample->len;
    sample->len += line.len;
    sample->offsets[sample->count] = sample->len;
    return true;
}

/* Point to the lines, once their bytes no longer move. */
static void sample_point(struct sample *sample)
{
    for (size_t i = 0; i < sample->count; i++)
        sample->lines[i] = (struct span){ sample->bytes + sample->offsets[i],
                                          sample->offsets[i + 1] - sample->offsets[i] };
}

/* Copy the first lines, and make the first of them the next one again. False after a complaint. */
static bool sample_read(struct reader *reader, struct sample *sample, struct span line)
{
    struct lines *lines = &reader->lines;
    int result = 1;
    lines_mark(lines);
    for (; result == 1 && sample->count < GUESS_LINES && sample->len < GUESS_BYTES; result = lines_next(lines, &line))
        if (span_trim(line).len > 0 && !sample_add(sample, line)) {
            complain("%s: out of memory", reader->name);
            result = -1;
            break;
        }
    lines_rewind(lines);
    sample_point(sample);
    return result >= 0;
}

/* Replace a sample of Docker's objects by the lines in them. False after a complaint. */
static bool sample_unwrap(struct reader *reader, struct sample *sample)
{
    struct sample *inner = calloc(1, sizeof *inner);
    struct fault fault;
    bool has_room = inner != NULL;
    for (size_t i = 0; i < sample->count && has_room; i++) {
        struct span line = sample->lines[i], time;
        if (docker_unwrap(&reader->wrapper, &line, &time, &fault) && span_trim(line).len > 0)
            has_room = sample_add(inner, line);
    }
    if (has_room) {
        free(sample->bytes);
        *sample = *inner;
        sample_point(sample);
    } else {
        complain("%s: out of memory", reader->name);
    }
    free(inner);
    return has_room;
}

/* ---- Which format it is ---- */

/* Choose the format of the sample. */
static int reader_guess(struct reader *reader, struct sample *sample)
{
    const size_t count = sample->count;
    size_t json = 0, behind = 0, pairs = 0, w3c = 0;
    struct format_guess guess = { 0 };
    reader->is_guessed = true;
    for (size_t i = 0; i < count; i++) {
        const struct span line = sample->lines[i];
        struct fault fault;
        bool is_behind;
        const bool is_object = object_of(line, &is_behind).len > 0 && (is_behind || span_trim(line).data[0] == '{');
        json += is_object && !is_behind;
        behind += is_object && is_behind;
        w3c += line.len > 8 && span_is_like(span_slice(line, 0, 7), "#fields");
        pairs += !is_object && record_logfmt(&reader->record, line, &fault);
    }
    reader->is_behind = behind > 0;
    if (json * 2 > count ||
        (behind && (json + behind) * 10 >= count && memmem(sample->bytes, sample->len, "handled request", 15))) {
        reader->kind = READER_JSON;
        return EXIT_OK;
    }
    if (w3c) {
        reader->kind = READER_TABLE;
        reader->sheet.is_w3c = true;
        return EXIT_OK;
    }
    const bool is_log = format_detect(&reader->format, sample->lines, count, &guess) && guess.fits * 2 >= count;
    const struct load_options *options = reader->load->options;
    const char separator = sheet_guess(sample->lines, count, options->time || options->time_format);
    /* A first line that is a header says more than requests in the fields behind it. */
    if (!is_log && separator)
        reader->kind = READER_TABLE, reader->sheet.separator = separator;
    else if (!is_log && pairs * 2 > count)
        reader->kind = READER_LOGFMT;
    else if (!is_log && behind * 2 > count)
        reader->kind = READER_JSON;
    else if (is_log)
        reader->kind = READER_LOG;
    if (guess.next)
        snprintf(reader->load->next_format, sizeof reader->load->next_format, "%s", guess.next);
    reader->load->next_fits = guess.next_fits;
    if (reader->kind != READER_NONE)
        return EXIT_OK;
    unknown_complain(reader->name, sample->lines, sample->count, reader->format.name, guess.fits);
    return EXIT_FAILED;
}

/* Set the format that the options name; its prefix and quotation marks are those of the sample. */
static int format_choose(struct reader *reader, const struct sample *sample)
{
    const struct load_options *options = reader->load->options;
    const char *name = options->log_format ? "" : options->format;
    struct format_guess guess;
    struct fault fault;
    if (options->log_format && !format_text(&reader->format, options->log_format, options->time_format, &fault)) {
        complain("--log-format %s", fault.text);
        return EXIT_ERROR;
    }
    reader->kind = READER_TABLE;
    reader->sheet.separator = ',';
    if (strcmp(name, "csv") == 0) {
        const char separator = sheet_guess(sample->lines, sample->count, true);
        reader->sheet.separator = separator == ';' || separator == '|' ? separator : ',';
    } else if (strcmp(name, "tsv") == 0) {
        reader->sheet.separator = '\t';
    } else if (strcmp(name, "w3c") == 0) {
        reader->sheet.is_w3c = true;
    } else if (strcmp(name, "json") == 0 || strcmp(name, "logfmt") == 0) {
        reader->kind = *name == 'j' ? READER_JSON : READER_LOGFMT;
        reader->is_behind = true;
    } else {
        reader->kind = READER_LOG;
        if (*name)
            format_named(&reader->format, name);
        format_detect(&reader->format, sample->lines, sample->count, &guess);
    }
    return EXIT_OK;
}

/* ---- The requested fields ---- */

/* True if columns are found by their number: a table whose header does not change. */
static bool has_columns(const struct reader *reader)
{
    return reader->kind == READER_TABLE && !reader->sheet.is_w3c;
}

static size_t field_number(struct reader *reader, const char *name)
{
    for (size_t i = 0; i < reader->count; i++)
        if (strcmp(reader->fields[i].name, name) == 0)
            return i;
    reader->fields[reader->count] = (struct reader_field){ .name = name, .role = role_named(name) };
    return reader->count++;
}

static void fields_collect(struct reader *reader)
{
    const struct load_options *options = reader->load->options;
    struct fault fault;
    reader->key_count = options->key_count ? options->key_count : 1;
    memcpy(reader->keys, options->keys, sizeof reader->keys);
    if (options->key_count == 0)
        key_spec_read(&reader->keys[0], NULL, &fault);
    /* Without a name, the key is the client; in a table it may be another column with a usual name, too. */
    for (size_t i = 0; i < reader->key_count; i++)
        for (size_t j = 0; j < reader->keys[i].count; j++) {
            const char *name = reader->keys[i].parts[j].name;
            const size_t field = field_number(reader, *name || has_columns(reader) ? name : "client");
            reader->keys[i].parts[j].field = field;
            reader->fields[field].is_default = !*name;
        }
    reader->cost_count = options->cost_count ? options->cost_count : 1;
    for (size_t i = 0; i < reader->cost_count; i++)
        reader->costs[i] = options->cost_count && options->costs[i] ? field_number(reader, options->costs[i])
                                                                    : LOAD_MAX_FIELDS;
    reader->duration = options->duration ? field_number(reader, options->duration) : LOAD_MAX_FIELDS;
}

static int log_begin(struct reader *reader)
{
    struct format *format = &reader->format;
    const struct load_options *options = reader->load->options;
    const char *option = options->time                                  ? "--time"
                         : options->has_unit                            ? "--time-unit"
                         : options->time_format && !options->log_format ? "--time-format"
                                                                        : NULL;
    if (option) {
        complain("%s: is a log in the format %s, but %s is for CSV and JSON", reader->name, format->name, option);
        return EXIT_ERROR;
    }
    if (options->year)
        format->year = options->year;
    if (format_lacks_year(format) && !options->year && load_may_say(reader->load))
        complain("%s: the times have no year; %d is assumed, and --year sets it", reader->name, format->year);
    for (size_t i = 0; i < format->layout_count; i++) {
        const struct layout *layout = &format->layouts[i];
        if (layout->time == LAYOUT_MAX_FIELDS && i == 0 && !reader->is_docker) {
            complain("%s: the format has no time: $time_local, $time_iso8601 or $msec of nginx, %%t of Apache",
                     reader->name);
            return EXIT_ERROR;
        }
        for (size_t j = 0; j < reader->count; j++) {
            struct reader_field *field = &reader->fields[j];
            char names[400] = "";
            size_t len = 0;
            if (layout_find(layout, field->name, &field->fields[i], &field->parts[i]))
                continue;
            if (i > 0) { /* the first text of the format has the field */
                field->fields[i] = LAYOUT_MAX_FIELDS;
                continue;
            }
            for (size_t k = 0; k < layout->count && len + 60 < sizeof names; k++)
                if (strcmp(layout->fields[k].name, "word") != 0 && strcmp(layout->fields[k].name, "number") != 0)
                    len += (size_t)snprintf(names + len, sizeof names - len, "%s%s", len ? ", " : "",
                                            layout->fields[k].name);
            complain("%s: the format %s has no field '%s'; its fields are: %s%s", reader->name, format->name,
                     field->name, names, strstr(names, "request") ? ", method, path" : "");
            return EXIT_ERROR;
        }
    }
    return EXIT_OK;
}

/* ---- Records: which member is what ---- */

/* Read the members of a line: FORMAT_ROW, FORMAT_BAD, FORMAT_OTHER, or -1 after a complaint. */
static int members_read(struct reader *reader, struct span line, struct span *around, struct fault *fault)
{
    struct record *record = &reader->record;
    if (reader->kind == READER_TABLE) {
        const int result = sheet_read(&reader->sheet, record, &reader->lines, line, fault);
        return result == 2 ? FORMAT_OTHER : result == 1 ? FORMAT_ROW : result < 0 ? -1 : FORMAT_BAD;
    }
    if (reader->kind == READER_LOGFMT) {
        const size_t priority = line.len && line.data[0] == '<' ? span_find(line, ' ') + 1 : 0; /* <158>1 of syslog */
        const struct span rest = span_slice(line, priority < line.len ? priority : 0, line.len);
        *around = rest.len && strchr("0123456789[", rest.data[0]) ? leading_time(rest) : *around;
        return record_logfmt(record, line, fault) ? FORMAT_ROW : FORMAT_BAD;
    }
    bool is_behind;
    const struct span object = object_of(line, &is_behind);
    if (is_behind || (reader->is_behind && object.len == 0)) {
        const struct span time = leading_time(line);
        if (object.len == 0 && time.len)
            return FORMAT_OTHER;
        *around = time.len ? time : *around;
    }
    return record_json(record, object.len ? object : line, fault) ? FORMAT_ROW : FORMAT_BAD;
}

/* Find a member by the name that the user gave: its path, or the only part of it that differs in case and the like. */
static bool member_named(const struct record *record, const char *name, char *path)
{
    size_t found = record_find(record, name, 0);
    for (size_t i = 0; i < record->count && found == RECORD_NONE; i++) {
        record_path(record, i, path, ROLES_PATH_SIZE);
        if (role_names_match(span_of(path), name))
            found = i;
    }
    path[0] = '\0';
    if (found != RECORD_NONE)
        record_path(record, found, path, ROLES_PATH_SIZE);
    return found != RECORD_NONE;
}

/* Read the first rows, to learn which member is what. `asked` is the time that is not looked for, or NULL. False after
 * a complaint. */
static bool members_learn(struct reader *reader, struct span line, const char *asked, struct roles *roles)
{
    struct lines *lines = &reader->lines;
    const struct record *record = &reader->record;
    int result = 1;
    lines_mark(lines);
    for (size_t rows = 0; result == 1 && rows < GUESS_LINES; result = lines_next(lines, &line)) {
        struct span around = span_of("");
        struct fault fault;
        if (span_trim(line).len == 0 || (reader->is_docker && !docker_unwrap(&reader->wrapper, &line, &around, &fault)))
            continue;
        rows++;
        const int kind = members_read(reader, line, &around, &fault);
        if (kind < 0)
            return false;
        if (kind != FORMAT_ROW)
            continue;
        roles_add(roles, record, reader->kind == READER_TABLE);
        roles->around += around.len > 0;
        for (size_t i = 0; i < reader->count && !has_columns(reader); i++)
            if (!*reader->fields[i].path && !reader->fields[i].is_default)
                member_named(record, reader->fields[i].name, reader->fields[i].path);
        if (asked && !has_columns(reader) && !*roles->asked.path)
            member_named(record, asked, roles->asked.path);
        const size_t at = !asked                   ? RECORD_NONE
                          : reader->sheet.is_plain ? 0
                          : has_columns(reader)    ? sheet_find(&reader->sheet, asked)
                                                   : record_find(record, roles->asked.path, 0);
        if (at < record->count)
            roles_add_asked(roles, record->all[at].value);
    }
    lines_rewind(lines);
    return result >= 0;
}

static int column_missing(const struct reader *reader, const char *option, const char *wanted)
{
    const struct sheet *sheet = &reader->sheet;
    char names[400] = "";
    size_t used = 0;
    for (size_t i = 0; i < sheet->name_count && used + 80 < sizeof names; i++) {
        char name[64];
        span_show(sheet->names[i], name, sizeof name);
        used += (size_t)snprintf(names + used, sizeof names - used, "%s%s", i ? ", " : "", name);
    }
    if (!sheet->has_header)
        complain("%s: there is no header row, so %s takes a column's number from 1 to %zu, not '%s'", reader->name,
                 option, sheet->widest, wanted);
    else if (wanted)
        complain("%s: there is no field '%s' for %s; the fields are: %s", reader->name, wanted, option, names);
    else
        complain("%s: no field is a time with a usual name; choose one with %s: %s", reader->name, option, names);
    return EXIT_ERROR;
}

/* Say which members could be what is missing, and which command chooses them. Return EXIT_FAILED. */
static int member_missing(const struct reader *reader, const struct roles *roles, const char *what, struct span line)
{
    char shown[160];
    complain("%s: no %s of this %s has the usual name of a %s", reader->name,
             reader->kind == READER_TABLE ? "column" : "member", reader_format(reader), what);
    span_show(line, shown, sizeof shown);
    fprintf(stderr, "  the first line: %s\n", shown);
    for (int list = 0; list < 2; list++) {
        const char(*notes)[ROLES_PATH_SIZE] = list ? roles->times : roles->addresses;
        for (size_t i = 0; i < 4 && notes[i][0]; i++)
            fprintf(stderr, "%s%s",
                    i      ? ", "
                    : list ? "  looks like a time: "
                           : "  looks like an address: ",
                    span_shown(span_of(notes[i])).text);
        if (notes[0][0])
            fputc('\n', stderr);
    }
    const bool needs_time = !roles_choose(roles, ROLE_TIME) && !roles->around;
    fprintf(stderr, "  choose, for example: weir replay --key %s%s%s %s\n",
            roles->addresses[0][0] ? span_shown(span_of(roles->addresses[0])).text : "NAME",
            needs_time ? " --time " : "",
            !needs_time          ? ""
            : roles->times[0][0] ? span_shown(span_of(roles->times[0])).text
                                 : "NAME",
            reader->name);
    return EXIT_FAILED;
}

/* Take the member that usually has the role. */
static bool field_guess(struct reader_field *field, const struct roles *roles, enum role role)
{
    const struct role_candidate *found = role < ROLE_COUNT ? roles_choose(roles, role) : NULL;
    if (found)
        memcpy(field->path, found->path, sizeof field->path);
    field->is_guessed = found != NULL;
    return found != NULL;
}

static void column_path(const struct reader *reader, size_t at, char *path)
{
    if (reader->sheet.has_header)
        snprintf(path, ROLES_PATH_SIZE, "%.*s", (int)reader->sheet.names[at].len, reader->sheet.names[at].data);
    else
        snprintf(path, ROLES_PATH_SIZE, "column %zu", at + 1);
}

/* Find the column of a field. Return EXIT_OK, or EXIT_ERROR after a complaint. */
static int column_find(struct reader *reader, struct reader_field *field, const char *option, const struct roles *roles)
{
    const struct sheet *sheet = &reader->sheet;
    if (*field->name) {
        field->at = sheet_find(sheet, field->name);
        if (field->at == RECORD_NONE && sheet->has_header && field_guess(field, roles, field->role))
            field->at = sheet_find(sheet, field->path);
        if (field->at == RECORD_NONE)
            return column_missing(reader, option, field->name);
        column_path(reader, field->at, field->path);
    } else if (sheet->is_plain) {
        field->at = 1;
        memcpy(field->path, "key", 4);
    } else {
        field->at = sheet->has_header && field_guess(field, roles, ROLE_CLIENT) ? sheet_find(sheet, field->path)
                                                                                : RECORD_NONE;
    }
    return EXIT_OK;
}

/* Find the column of each field of a table. Return EXIT_OK, or EXIT_ERROR after a complaint. */
static int columns_find(struct reader *reader, const struct roles *roles)
{
    struct sheet *sheet = &reader->sheet;
    for (size_t i = 0; i < reader->count; i++) {
        const char *option = i == reader->keys[0].parts[0].field ? "--key"
                             : i == reader->costs[0]             ? "--cost"
                                                                 : "key, cost or duration";
        const int code = column_find(reader, &reader->fields[i], option, roles);
        if (code != EXIT_OK)
            return code;
    }
    /* A column with the name of a cost counts without being asked for. */
    if (reader->costs[0] == LOAD_MAX_FIELDS && reader->count < LOAD_MAX_FIELDS) {
        struct reader_field cost = { .name = "cost", .at = RECORD_NONE };
        for (size_t i = 0; i < sheet->name_count && cost.at == RECORD_NONE; i++)
            if (role_names_match(sheet->names[i], "cost") || role_names_match(sheet->names[i], "permits"))
                cost.at = i;
        cost.at = sheet->is_plain ? 2 : cost.at;
        if (cost.at != RECORD_NONE) {
            reader->costs[0] = reader->count;
            reader->fields[reader->count++] = cost;
        }
    }
    return EXIT_OK;
}

/* Find the time, of which `asked` is the name if it is not looked for. */
static int time_find(struct reader *reader, const char *asked, const struct roles *roles, struct span line)
{
    struct reader_field *time = &reader->time;
    const struct role_candidate *found = asked ? &roles->asked : roles_choose(roles, ROLE_TIME);
    *time = (struct reader_field){ .name = asked, .is_guessed = !asked };
    if (found)
        memcpy(time->path, found->path, sizeof time->path);
    if (has_columns(reader)) {
        const struct sheet *sheet = &reader->sheet;
        time->at = sheet->is_plain ? 0
                   : asked         ? sheet_find(sheet, asked)
                   : *time->path   ? sheet_find(sheet, time->path)
                                   : RECORD_NONE;
        /* If no row says more, the names of the columns decide. */
        for (size_t i = 0; i < sheet->name_count && !asked && time->at == RECORD_NONE; i++)
            if (role_is_time(sheet->names[i]))
                time->at = i;
        if (time->at == RECORD_NONE)
            return column_missing(reader, "--time", asked);
        column_path(reader, time->at, time->path);
    } else if (asked && !*time->path) {
        snprintf(time->path, sizeof time->path, "%s", asked);
    } else if (!found && !roles->around && roles->rows > 0) {
        return member_missing(reader, roles, "time", line);
    }

    /* The unit, and a date beside a time of day. */
    const struct load_options *options = reader->load->options;
    static const struct role_candidate none;
    found = found ? found : &none;
    size_t most = TIME_BY_SIZE;
    for (size_t i = 1; i < TIME_UNITS; i++)
        most = found->units[i] > found->units[most] ? i : most;
    reader->unit = options->has_unit ? options->unit : (enum time_unit)most;
    if (reader->sheet.is_plain && reader->unit == TIME_BY_SIZE)
        reader->unit = TIME_MICROSECONDS; /* time_us,key,cost */
    if (!options->has_unit && !time_unit_of_name(span_of(time->path), &reader->unit) && reader->unit == TIME_BY_SIZE &&
        found->units[TIME_BY_SIZE] && found->good == 0 && !options->time_format) {
        complain(
            "%s: the size of its times, such as '%s', does not tell their unit; set --time-unit to s, ms, us or ns",
            reader->name, roles->example);
        return EXIT_ERROR;
    }
    if (found->clocks * 2 > roles->rows && roles->date[0]) {
        memcpy(reader->date.path, roles->date, sizeof reader->date.path);
        reader->date.at = has_columns(reader) ? sheet_find(&reader->sheet, roles->date) : 0;
    }
    return EXIT_OK;
}

/* Decide which member is what. */
static int members_begin(struct reader *reader, struct span line)
{
    const struct load_options *options = reader->load->options;
    struct roles *roles = calloc(1, sizeof *roles);
    int code = EXIT_FAILED;
    if (!roles) {
        complain("%s: out of memory", reader->name);
        return EXIT_FAILED;
    }
    const char *asked = options->time ? options->time : has_columns(reader) && !reader->sheet.has_header ? "1" : NULL;
    if (members_learn(reader, line, asked, roles))
        code = has_columns(reader) ? columns_find(reader, roles) : EXIT_OK;
    for (size_t i = 0; i < reader->count && code == EXIT_OK && !has_columns(reader); i++) {
        struct reader_field *field = &reader->fields[i];
        if (*field->path || field_guess(field, roles, field->role) || roles->rows == 0)
            continue;
        if (field->is_default)
            code = member_missing(reader, roles, "client", line);
        snprintf(field->path, sizeof field->path, "%s", field->name);
    }
    /* All rows of a table without a client share one key, unless a column looks like one. */
    if (code == EXIT_OK && has_columns(reader) && reader->fields[0].at == RECORD_NONE && reader->sheet.has_header &&
        roles->addresses[0][0])
        code = member_missing(reader, roles, "client", line);
    if (code == EXIT_OK)
        code = time_find(reader, asked, roles, line);
    free(roles);
    return code;
}

int reader_begin(struct reader *reader, struct span line)
{
    struct sample *sample = calloc(1, sizeof *sample);
    if (!sample) {
        complain("%s: out of memory", reader->name);
        return EXIT_FAILED;
    }
    const struct load_options *options = reader->load->options;
    int code = EXIT_FAILED;
    bool has_sample = sample_read(reader, sample, line);
    size_t docker = 0;
    for (size_t i = 0; i < sample->count; i++)
        docker += is_docker(sample->lines[i]);
    reader->is_docker = docker * 2 > sample->count;
    if (has_sample && reader->is_docker) {
        has_sample = sample_unwrap(reader, sample);
        reader->format.around = span_of("2000-01-01"); /* any time, until a line is read */
    }
    if (has_sample)
        code = options->format || options->log_format ? format_choose(reader, sample) : reader_guess(reader, sample);
    free(sample->bytes);
    free(sample);
    if (code != EXIT_OK)
        return code;
    fields_collect(reader);
    if (reader->kind == READER_LOG)
        return log_begin(reader);
    if (reader->kind == READER_TABLE && reader->is_docker) {
        complain("%s: Docker has written its lines, and CSV cannot be read from Docker", reader->name);
        return EXIT_FAILED;
    }
    if (lines_next(&reader->lines, &line) != 1)
        return EXIT_FAILED;
    if (reader->kind != READER_TABLE)
        return members_begin(reader, line);
    for (size_t i = 0; i < reader->count; i++)
        if (*reader->fields[i].name)
            reader->sheet.asked[reader->sheet.asked_count++] = reader->fields[i].name;
    if (options->time) {
        reader->sheet.asked_time = options->time;
        reader->sheet.asked[reader->sheet.asked_count++] = options->time;
    }
    code = sheet_begin(&reader->sheet, &reader->record, &reader->lines, line);
    if (code != EXIT_OK)
        return code;
    if (reader->sheet.is_w3c)
        return members_begin(reader, line);
    const int result = lines_next(&reader->lines, &line);
    if (result < 0)
        return EXIT_FAILED;
    if (result == 1)
        return members_begin(reader, line);
    return members_begin(reader, span_of(""));
}

/* ---- Rows ---- */

static int log_read(struct reader *reader, struct span line, struct span around, struct reader_row *out,
                    struct fault *fault)
{
    struct format_row row;
    reader->format.around = around;
    enum format_line kind = format_read(&reader->format, line, &row, fault);
    if (kind != FORMAT_ROW)
        return (int)kind;
    const size_t which = (size_t)(row.layout - reader->format.layouts);
    out->time_us = row.time_us;
    out->repeat = row.repeat;
    for (size_t i = 0; i < reader->count; i++) {
        const struct reader_field *field = &reader->fields[i];
        out->values[i] = field->fields[which] < LAYOUT_MAX_FIELDS
                             ? layout_part(row.values[field->fields[which]], field->parts[which])
                             : span_of("-");
    }
    return FORMAT_ROW;
}

/* Find a member of the current record; RECORD_NONE if it is missing. */
static size_t member_at(const struct reader *reader, struct reader_field *field)
{
    const struct record *record = &reader->record;
    if (has_columns(reader))
        return field->at < record->count ? field->at : RECORD_NONE;
    const size_t at = record_find(record, field->path, field->at);
    field->at = at == RECORD_NONE ? field->at : at;
    return at;
}

/* Read the time of the current record, or the one around it. */
static bool record_time(struct reader *reader, struct span around, int64_t *out_us, struct fault *fault)
{
    const char *format = reader->load->options->time_format, *wrong;
    char joined[64];
    const size_t at = *reader->time.path ? member_at(reader, &reader->time) : RECORD_NONE;
    const size_t date = *reader->date.path ? member_at(reader, &reader->date) : RECORD_NONE;
    struct span text = around;
    if (at != RECORD_NONE)
        text = reader->record.all[at].value;
    else if (reader->time.name || !around.len)
        return *reader->time.path && has_columns(reader)
                   ? fault_say(fault, "has %zu field%s, and column %zu is asked for", reader->record.count,
                               reader->record.count == 1 ? "" : "s", reader->time.at + 1)
                   : fault_say(fault, "has no field %s for the time", span_shown(span_of(reader->time.path)).text);
    if (date != RECORD_NONE) {
        const struct span day = reader->record.all[date].value;
        snprintf(joined, sizeof joined, "%.*sT%.*s", day.len < 16 ? (int)day.len : 16, day.data,
                 text.len < 32 ? (int)text.len : 32, text.data);
        text = span_of(joined);
    }
    if (!(format ? time_read_by(text, format, out_us, &wrong) : time_read(text, reader->unit, out_us, &wrong)))
        return fault_set(fault, "time", text, wrong);
    /* A number that is no time of a log is a duration, unless the user or the name say what it is. */
    if (reader->time.is_guessed && span_find(text, '.') < text.len && !time_is_plausible(*out_us) &&
        span_find(text, ':') == text.len)
        return fault_set(fault, "time", text, "is a duration rather than a time; --time chooses another field");
    return true;
}

static int record_read(struct reader *reader, struct span line, struct span around, struct reader_row *out,
                       struct fault *fault)
{
    const int kind = members_read(reader, line, &around, fault);
    if (kind != FORMAT_ROW)
        return kind;
    for (size_t i = 0; i < reader->count; i++) {
        struct reader_field *field = &reader->fields[i];
        out->values[i] = span_of(field->role == ROLE_USER ? "-" : "*");
        if (has_columns(reader) && field->at == RECORD_NONE)
            continue;
        const size_t at = member_at(reader, field);
        const bool is_there = at != RECORD_NONE && (has_columns(reader) || reader->record.all[at].value.len);
        if (is_there)
            out->values[i] = reader->record.all[at].value;
        else if (has_columns(reader))
            return fault_say(fault, "has %zu field%s, and column %zu is asked for", reader->record.count,
                             reader->record.count == 1 ? "" : "s", field->at + 1);
        else if (field->is_default && reader->kind != READER_TABLE)
            return FORMAT_OTHER; /* a line of the same producer that is not about a request */
        else if (field->role != ROLE_USER)
            return fault_say(fault, "has no field '%s' that is a string or a number", field->name);
        if (field->role == ROLE_PATH)
            out->values[i] = layout_part(out->values[i], LAYOUT_NO_QUERY);
    }
    return record_time(reader, around, &out->time_us, fault) ? FORMAT_ROW : FORMAT_BAD;
}

int reader_read(struct reader *reader, struct span line, struct reader_row *out, struct fault *fault)
{
    struct span around = span_of("");
    out->repeat = 1;
    if (reader->is_docker && !docker_unwrap(&reader->wrapper, &line, &around, fault))
        return FORMAT_BAD;
    if (reader->is_docker && span_trim(line).len == 0)
        return FORMAT_OTHER;
    return reader->kind == READER_LOG ? log_read(reader, line, around, out, fault)
                                      : record_read(reader, line, around, out, fault);
}
