/* layout.c - a log's format, compiled from the text that configures it. */
#include "cli/replay/input/layout.h"

#include <stdio.h>
#include <string.h>

/* The known variables of nginx and codes of Apache. Other variables are text under their own name. */
static const struct known {
    const char *name;   /* weir's */
    const char *nginx;  /* its variable */
    const char *apache; /* its code */
    enum layout_kind kind;
    enum time_unit unit;
} KNOWN[] = {
    { "client", "client", "h", LAYOUT_CLIENT, 0 },
    { "client", "remote_addr", "a", LAYOUT_CLIENT, 0 },
    { "client", "realip_remote_addr", "{c}a", LAYOUT_CLIENT, 0 },
    { "client", "client_port", NULL, LAYOUT_CLIENT_PORT, 0 },
    { "client", "client_and_port", NULL, LAYOUT_CLIENT_AND_PORT, 0 },
    { "client", "clients", NULL, LAYOUT_CLIENTS, 0 },
    { "ident", "ident", "l", LAYOUT_IDENT, 0 },
    { "user", "user", "u", LAYOUT_USER, 0 },
    { "user", "remote_user", NULL, LAYOUT_USER, 0 },
    { "time", "time", "{begin}t", LAYOUT_TIME, 0 },
    { "time", "time_local", NULL, LAYOUT_TIME, 0 },
    { "time", "time_iso8601", NULL, LAYOUT_TIME, 0 },
    { "time", "msec", "{sec}t", LAYOUT_TIME, TIME_SECONDS },
    { "time", NULL, "{msec}t", LAYOUT_TIME, TIME_MILLISECONDS },
    { "time", NULL, "{usec}t", LAYOUT_TIME, TIME_MICROSECONDS },
    { "stamp", "stamp", NULL, LAYOUT_STAMP, 0 },
    { "stamp", "iso", NULL, LAYOUT_WORD, 0 },
    { "request", "request", "r", LAYOUT_TEXT, 0 },
    { "method", "request_method", "m", LAYOUT_WORD, 0 },
    { "path", "request_uri", "U", LAYOUT_TEXT, 0 },
    { "path", "uri", NULL, LAYOUT_TEXT, 0 },
    { "args", "args", "q", LAYOUT_TEXT, 0 },
    { "host", "host", "v", LAYOUT_WORD, 0 },
    { "host", "vhost", NULL, LAYOUT_HOST, 0 },
    { "code", "code", NULL, LAYOUT_CODE, 0 },
    { "data", "data", NULL, LAYOUT_DATA, 0 },
    { "host", "server_name", "V", LAYOUT_WORD, 0 },
    { "word", "word", NULL, LAYOUT_WORD, 0 },
    { "number", "number", NULL, LAYOUT_NUMBER, 0 },
    { "repeat", "repeat", NULL, LAYOUT_NUMBER, 0 },
    { "server_port", "server_port", "p", LAYOUT_NUMBER, 0 },
    { "status", "status", "s", LAYOUT_STATUS, 0 },
    { "size", "body_bytes_sent", "b", LAYOUT_NUMBER, 0 },
    { "size", "bytes_sent", "B", LAYOUT_NUMBER, 0 },
    { "request_length", "request_length", "I", LAYOUT_NUMBER, 0 },
    { "sent", NULL, "O", LAYOUT_NUMBER, 0 },
    { "duration", NULL, "D", LAYOUT_NUMBER, 0 },
    { "request_time", "request_time", "T", LAYOUT_TEXT, 0 },
    { "server_protocol", "server_protocol", "H", LAYOUT_WORD, 0 },
    { "connection", "connection", "X", LAYOUT_WORD, 0 },
    { "connection_requests", "connection_requests", "k", LAYOUT_NUMBER, 0 },
    { "server_addr", "server_addr", "A", LAYOUT_WORD, 0 },
    { "request_filename", "request_filename", "f", LAYOUT_TEXT, 0 },
    { "handler", NULL, "R", LAYOUT_TEXT, 0 },
    { "pid", "pid", "P", LAYOUT_NUMBER, 0 },
    { "request_id", "request_id", "L", LAYOUT_WORD, 0 },
};

struct compiler {
    struct layout *layout;
    size_t literal; /* where the literal before the next field begins */
    struct fault *fault;
};

static bool literal_add(struct compiler *compiler, char byte)
{
    struct layout *layout = compiler->layout;
    bool repeats = byte == ' ' && layout->text_len > compiler->literal && layout->text[layout->text_len - 1] == ' ';
    if (repeats)
        return true;
    if (layout->text_len == LAYOUT_MAX_TEXT)
        return fault_say(compiler->fault, "is longer than %d bytes", LAYOUT_MAX_TEXT);
    layout->text[layout->text_len++] = byte;
    return true;
}

static bool field_add(struct compiler *compiler, const struct known *known, struct span name)
{
    struct layout *layout = compiler->layout;
    size_t literal_len = layout->text_len - compiler->literal;
    if (layout->count == LAYOUT_MAX_FIELDS)
        return fault_say(compiler->fault, "has more than %d fields", LAYOUT_MAX_FIELDS);
    if (layout->count && literal_len == 0)
        return fault_set(compiler->fault, "field", name, "follows another one with nothing between them");
    struct layout_field *field = &layout->fields[layout->count];
    field->kind = known ? known->kind : LAYOUT_TEXT;
    field->unit = known ? known->unit : TIME_BY_SIZE;
    field->literal = compiler->literal;
    field->literal_len = literal_len;
    if (known)
        name = span_of(known->name);
    snprintf(field->name, sizeof field->name, "%.*s", (int)(name.len < 47 ? name.len : 47), name.data);
    if (field->kind == LAYOUT_TIME || (layout->time == LAYOUT_MAX_FIELDS && strcmp(field->name, "stamp") == 0))
        layout->time = layout->count;
    layout->count++;
    compiler->literal = layout->text_len;
    return true;
}

static const struct known *known_find(struct span name, bool is_apache)
{
    for (size_t i = 0; i < sizeof KNOWN / sizeof *KNOWN; i++) {
        const char *text = is_apache ? KNOWN[i].apache : KNOWN[i].nginx;
        if (text && span_is(name, text))
            return &KNOWN[i];
    }
    return NULL;
}

static bool is_name(char byte)
{
    return (byte >= 'a' && byte <= 'z') || (byte >= 'A' && byte <= 'Z') || (byte >= '0' && byte <= '9') || byte == '_';
}

/* Compile $name or ${name}; return its end, or 0 after a fault. */
static size_t variable_compile(struct compiler *compiler, struct span text, size_t at)
{
    bool has_braces = at + 1 < text.len && text.data[at + 1] == '{';
    size_t begin = at + 1 + has_braces, end = begin;
    while (end < text.len && is_name(text.data[end]))
        end++;
    struct span name = span_slice(text, begin, end);
    if (name.len == 0 || (has_braces && (end == text.len || text.data[end] != '}'))) {
        fault_say(compiler->fault, "has a $ without a name after it");
        return 0;
    }
    return field_add(compiler, known_find(name, false), name) ? end + has_braces : 0;
}

/* Add a header of Apache, %{X-Key}i, under nginx's name for it. */
static bool header_add(struct compiler *compiler, struct span name, char letter)
{
    char text[48];
    size_t len = (size_t)snprintf(text, sizeof text, "%s",
                                  letter == 'i'   ? "http_"
                                  : letter == 'C' ? "cookie_"
                                  : letter == 'o' ? "sent_http_"
                                                  : "");
    for (size_t i = 0; i < name.len && len + 1 < sizeof text; i++) {
        char byte = name.data[i];
        text[len++] = (char)(!is_name(byte) ? '_' : byte >= 'A' && byte <= 'Z' ? byte | 0x20 : byte);
    }
    text[len] = '\0';
    return field_add(compiler, NULL, span_of(text));
}

/* Compile a code such as %h, %>s or %{X-Key}i; return its end, or 0 after a fault. */
static size_t code_compile(struct compiler *compiler, struct span text, size_t at)
{
    struct span inner = { NULL, 0 };
    char code[64];
    size_t end = at + 1;
    while (end < text.len && text.data[end] && strchr("<>!,0123456789", text.data[end]))
        end++;
    if (end < text.len && text.data[end] == '{') {
        size_t close = end + span_find(span_slice(text, end, text.len), '}');
        inner = span_slice(text, end + 1, close < text.len ? close : end + 1);
        end = close < text.len ? close + 1 : text.len;
    }
    if (end < text.len && text.data[end] == '^') /* %^FU and others have two letters more */
        end = end + 2 < text.len ? end + 2 : text.len;
    if (end >= text.len) {
        fault_say(compiler->fault, "has a %% without a code after it");
        return 0;
    }
    char letter = text.data[end++];
    if (letter == '%')
        return literal_add(compiler, '%') ? end : 0;
    if (letter == 't' && inner.len == 0) /* Apache adds the brackets */
        return literal_add(compiler, '[') && field_add(compiler, known_find(span_of("time"), false), inner) &&
                       literal_add(compiler, ']')
                   ? end
                   : 0;
    snprintf(code, sizeof code, inner.len ? "{%.*s}%c" : "%.*s%c", (int)(inner.len < 48 ? inner.len : 0), inner.data,
             letter);
    const struct known *known = known_find(span_of(code), true);
    if (!known && letter == 't')
        known = known_find(span_of("time"), false);
    if (known)
        return field_add(compiler, known, inner) ? end : 0;
    if (inner.len && strchr("iConex", letter))
        return header_add(compiler, inner, letter) ? end : 0;
    fault_set(compiler->fault, "code", span_slice(text, at, end), "is not one that weir knows");
    return 0;
}

/* Compile the content of a string, or a bare format. A backslash takes the next byte as it is. */
static bool string_compile(struct compiler *compiler, struct span text, bool is_apache)
{
    for (size_t at = 0; at < text.len;) {
        char byte = text.data[at];
        if ((byte == '$' && !is_apache) || (byte == '%' && is_apache)) {
            at = is_apache ? code_compile(compiler, text, at) : variable_compile(compiler, text, at);
            if (at == 0)
                return false;
            continue;
        }
        if (byte == '\\' && at + 1 < text.len) {
            byte = text.data[++at];
            byte = (char)(byte == 't' ? '\t' : byte == 'n' ? ' ' : byte);
        }
        if (!literal_add(compiler, byte))
            return false;
        at++;
    }
    return true;
}

/* Return the end of the string in quotation marks that begins at `at`: its closing mark. */
static size_t string_end(struct span text, size_t at)
{
    char mark = text.data[at++];
    while (at < text.len && text.data[at] != mark)
        at += text.data[at] == '\\' ? 2 : 1;
    return at < text.len ? at : text.len;
}

/* Cut a directive to its strings: log_format NAME [escape=...] '...' '...'; and LogFormat "..." NAME. */
static bool directive_cut(struct span *text)
{
    struct span word = span_slice(*text, 0, span_find(*text, ' '));
    bool is_nginx = span_is_like(word, "log_format");
    if (!is_nginx && !span_is_like(word, "LogFormat") && !span_is_like(word, "CustomLog"))
        return text->len && (text->data[0] == '\'' || text->data[0] == '"') && string_end(*text, 0) + 1 == text->len;
    size_t apostrophe = span_find(*text, '\''), mark = span_find(*text, '"');
    *text = span_slice(*text, apostrophe < mark ? apostrophe : mark, text->len);
    return text->len > 0;
}

bool layout_compile(struct layout *layout, struct span prefix, struct span text, struct fault *fault)
{
    struct compiler compiler = { .layout = layout, .fault = fault };
    layout->count = layout->text_len = 0;
    layout->time = LAYOUT_MAX_FIELDS;
    if (!string_compile(&compiler, prefix, false))
        return false;
    text = span_trim(text);
    size_t percent = span_find(text, '%'), dollar = span_find(text, '$');
    bool is_apache = percent < dollar;
    if (!directive_cut(&text)) {
        if (!string_compile(&compiler, text, is_apache))
            return false;
    } else {
        for (size_t at = 0; at < text.len && (text.data[at] == '\'' || text.data[at] == '"');) {
            size_t end = string_end(text, at);
            if (!string_compile(&compiler, span_slice(text, at + 1, end), is_apache))
                return false;
            for (at = end + 1; at < text.len && text.data[at] && strchr(" \t\n\r", text.data[at]);)
                at++;
        }
    }
    layout->tail = compiler.literal;
    layout->tail_len = layout->text_len - compiler.literal;
    if (layout->tail_len && layout->text[layout->text_len - 1] == ' ') /* a line feed's, as Envoy writes it */
        layout->tail_len--;
    return layout->count > 0 ||
           fault_say(fault, "has no field: fields are written $name as in nginx or %%h as in Apache");
}
