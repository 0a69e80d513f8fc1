/* document.h - what replay and suggest found, as one JSON document.
 *
 * --json prints it, the text is a printer over it, and --html puts it into a page. JSON is UTF-8, but keys are any
 * bytes. In a key that is not UTF-8, U+FFFD replaces each wrong byte, and "key_hex" next to it holds all bytes, so that
 * nothing is lost.
 */
#ifndef WEIR_CLI_DOCUMENT_H
#define WEIR_CLI_DOCUMENT_H

#include <jansson.h>

#include "cli/span.h"

/* Add a member or an element. If `value` is NULL or memory is out, document_end() says so. */
void document_add(json_t *object, const char *name, json_t *value);
void document_push(json_t *array, json_t *value);

/* Return text as a string. */
json_t *document_text(struct span text);

/* Add "key", and "key_hex" if it is not UTF-8. */
void document_key(json_t *object, struct span key);

/* Add a time as an object with "time_us" and "time". */
void document_time(json_t *object, const char *name, int64_t time_us);

/* Return the document, or NULL after a complaint if a part of it is missing. */
json_t *document_end(json_t *document);

/* Read members for a text. A missing number is 0, missing text is empty. */
uint64_t document_number(const json_t *object, const char *name);
struct span document_span(const json_t *object, const char *name);

/* Print the document as one line. */
void document_print(const json_t *document);

/* True if the file can be written, before a long task; it is left as it is. False after a complaint. */
bool page_check(const char *path);

/* Write the page with the document in it. Return EXIT_OK, or EXIT_FAILED after a complaint. */
int page_write(const json_t *document, const char *path);

#endif
