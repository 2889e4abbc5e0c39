/* SPDX-License-Identifier: Apache-2.0 */
#include <arpa/inet.h>
#include <ctype.h>
#include <stdlib.h>
#include <string.h>
#include <strings.h>

#include "config.h"
#include "exempt.h"
#include "parse.h"

#define MAX_KEY 512   /* bytes of a URI that may be on the list */
#define MAX_DIGITS 32 /* of a number */
#define V4_BITS 96    /* in front of a mapped IPv4 address */
#define SERVICE "urn:"
#define EMERGENCY "urn:service:sos*" /* RFC 5031 */

/* Addresses are IPv6; an IPv4 address is a mapped one, so that both are one list. */
typedef struct prefix {
    uint8_t address[16];
    uint8_t bits;
} prefix;

typedef struct list {
    char **text;
    size_t count, room;
} texts;

struct config_exempt {
    prefix *prefixes; /* by bits, then by address */
    size_t prefix_count, prefix_room;
    size_t first[130]; /* of those with that many bits; first[bits + 1]: the end */
    texts callers, numbers, urns, begun; /* begun: what stands before a URN's final * */
};

static const char no_memory[] = "finds no memory";

config_exempt *exempt_create(void)
{
    config_exempt *list = calloc(1, sizeof(config_exempt));

    if (list != NULL && exempt_add(list, EMERGENCY) != NULL) {
        exempt_free(list);
        return NULL;
    }
    return list;
}

static bool append(texts *l, const char *text)
{
    if (l->count == l->room) {
        size_t room = l->room ? 2 * l->room : 16;
        char **more = realloc(l->text, room * sizeof(*more));

        if (more == NULL) {
            return false;
        }
        l->text = more;
        l->room = room;
    }
    l->text[l->count] = strdup(text);
    return l->text[l->count] != NULL && ++l->count;
}

static int compare_text(const void *a, const void *b)
{
    return strcmp(*(char *const *)a, *(char *const *)b);
}

static bool contains(const texts *l, const char *text)
{
    return l->count > 0 && bsearch(&text, l->text, l->count, sizeof(*l->text), compare_text);
}

/* ---- addresses ------------------------------------------------------------------------------- */

static void map_v4(uint8_t address[16], const struct in_addr *in)
{
    memset(address, 0, 10);
    memset(address + 10, 0xff, 2);
    memcpy(address + 12, in, 4);
}

/* Keeps the first bits; true if nothing else was set. */
static bool mask(uint8_t address[16], unsigned bits)
{
    bool clean = true;

    for (unsigned i = 0; i < 16; i++) {
        unsigned kept = bits <= 8 * i ? 0 : bits - 8 * i;
        uint8_t keep = (uint8_t)(kept >= 8 ? 0xffU : 0xff00U >> kept);

        clean = clean && (address[i] & keep) == address[i];
        address[i] &= keep;
    }
    return clean;
}

static int compare_prefix(const void *a, const void *b)
{
    const prefix *p = a, *q = b;

    return p->bits != q->bits ? p->bits - q->bits : memcmp(p->address, q->address, 16);
}

static const char *add_prefix(config_exempt *list, const prefix *p)
{
    if (list->prefix_count == list->prefix_room) {
        size_t room = list->prefix_room ? 2 * list->prefix_room : 16;
        prefix *more = realloc(list->prefixes, room * sizeof(*more));

        if (more == NULL) {
            return no_memory;
        }
        list->prefixes = more;
        list->prefix_room = room;
    }
    list->prefixes[list->prefix_count++] = *p;
    return NULL;
}

static const char *add_address(config_exempt *list, const char *entry)
{
    char text[INET6_ADDRSTRLEN];
    size_t length = strcspn(entry, "/");
    bool v4 = strchr(entry, ':') == NULL;
    long bits = v4 ? 32 : 128;
    struct in_addr in;
    prefix p;

    if (length >= sizeof(text)) {
        return "is not an address";
    }
    memcpy(text, entry, length);
    text[length] = '\0';
    if (!(v4 ? inet_pton(AF_INET, text, &in) : inet_pton(AF_INET6, text, p.address))) {
        return v4 ? "is not an address; IPv4 is like 192.0.2.7 or 192.0.2.0/24"
                  : "is not an address; IPv6 is like 2001:db8::7 or 2001:db8::/32";
    }
    if (entry[length] == '/' && !seven_parse_number(entry + length + 1, 0, bits, &bits)) {
        return v4 ? "must have a whole number from 1 to 32 behind the /"
                  : "must have a whole number from 1 to 128 behind the /";
    }
    if (v4) {
        map_v4(p.address, &in);
    }
    p.bits = (uint8_t)(bits + (v4 ? V4_BITS : 0));
    if (bits == 0) {
        return "would exempt everybody";
    }
    if (!mask(p.address, p.bits)) {
        return "has bits set that its /BITS leaves out";
    }
    return add_prefix(list, &p);
}

bool config_exempt_addr(const config *c, const struct sockaddr *from)
{
    const config_exempt *list = c->exempt;
    prefix p;

    if (from->sa_family == AF_INET) {
        map_v4(p.address, &((const struct sockaddr_in *)(const void *)from)->sin_addr);
    } else if (from->sa_family == AF_INET6) {
        memcpy(p.address, &((const struct sockaddr_in6 *)(const void *)from)->sin6_addr, 16);
    } else {
        return false;
    }
    for (int bits = 128; bits > 0; bits--) {
        size_t first = list->first[bits], count = list->first[bits + 1] - first;

        if (count > 0) {
            p.bits = (uint8_t)bits;
            mask(p.address, p.bits);
            if (bsearch(&p, list->prefixes + first, count, sizeof(p), compare_prefix)) {
                return true;
            }
        }
    }
    return false;
}

/* ---- URIs ------------------------------------------------------------------------------------ */

/* Undoes escapes; false if it does not fit, or has an escaped NUL, which nothing may equal. */
static bool unescape(char *to, size_t size, const char *from, size_t length)
{
    size_t n = 0;

    for (size_t i = 0; i < length; i++) {
        unsigned char c = (unsigned char)from[i];

        if (c == '%' && i + 2 < length && isxdigit((unsigned char)from[i + 1]) &&
            isxdigit((unsigned char)from[i + 2])) {
            char hex[3] = {from[i + 1], from[i + 2], '\0'};

            c = (unsigned char)strtoul(hex, NULL, 16);
            i += 2;
        }
        if (c == '\0' || n + 1 >= size) {
            return false;
        }
        to[n++] = (char)c;
    }
    to[n] = '\0';
    return true;
}

static void lower(char *text)
{
    for (; *text != '\0'; text++) {
        *text = (char)tolower((unsigned char)*text);
    }
}

/* The canonical form of an address-of-record (RFC 3261 section 10.3, step 5). */
static bool canonical(char key[MAX_KEY], const url_t *uri)
{
    bool secure = uri->url_type == url_sips;
    size_t at;
    char *host;

    if ((uri->url_type != url_sip && !secure) || uri->url_user == NULL || uri->url_host == NULL) {
        return false;
    }
    at = (size_t)(stpcpy(key, secure ? "sips:" : "sip:") - key);
    if (!unescape(key + at, MAX_KEY - at, uri->url_user, strlen(uri->url_user))) {
        return false;
    }
    at += strlen(key + at);
    host = key + at;
    if (at + 1 + strlen(uri->url_host) + 1 + (uri->url_port ? strlen(uri->url_port) : 0) >=
        MAX_KEY) {
        return false;
    }
    host = stpcpy(stpcpy(host, "@"), uri->url_host);
    lower(key + at);
    if (uri->url_port != NULL && uri->url_port[0] != '\0') {
        strcpy(stpcpy(host, ":"), uri->url_port);
    }
    return true;
}

bool config_exempt_caller(const config *c, const url_t *from)
{
    char key[MAX_KEY];

    return c->exempt->callers.count > 0 && canonical(key, from) &&
           contains(&c->exempt->callers, key);
}

static bool is_number(const char *text)
{
    size_t plus = text[0] == '+', digits = strspn(text + plus, "0123456789");

    return digits > 0 && text[plus + digits] == '\0' && plus + digits <= MAX_DIGITS;
}

/* The number that a sip:, sips: or tel: URI calls (RFC 3966; RFC 3261 section 19.1.6). */
static bool number_called(char *number, size_t size, const url_t *uri)
{
    bool tel = uri->url_type == url_tel;
    char *write = number;

    if ((!tel && uri->url_type != url_sip && uri->url_type != url_sips) || uri->url_user == NULL ||
        !unescape(number, size, uri->url_user, strcspn(uri->url_user, ";"))) {
        return false;
    }
    if (!tel && uri->url_params != NULL && url_has_param(uri, "user")) {
        char user[8];

        tel = url_param(uri->url_params, "user", user, sizeof(user)) > 0 &&
              strcasecmp(user, "phone") == 0;
    }
    for (const char *read = number; *read != '\0'; read++) {
        if (!tel || strchr("-.()", *read) == NULL) {
            *write++ = *read;
        }
    }
    *write = '\0';
    return is_number(number);
}

static bool urn_listed(const config_exempt *list, const url_t *uri)
{
    char key[MAX_KEY];
    issize_t length = url_e(key, sizeof(key), uri);

    if (length <= 0 || (size_t)length >= sizeof(key)) {
        return false;
    }
    lower(key);
    if (contains(&list->urns, key)) {
        return true;
    }
    for (size_t i = 0; i < list->begun.count; i++) {
        if (strncmp(key, list->begun.text[i], strlen(list->begun.text[i])) == 0) {
            return true;
        }
    }
    return false;
}

bool config_exempt_callee(const config *c, const url_t *request_uri)
{
    const config_exempt *list = c->exempt;
    char number[MAX_DIGITS + 16]; /* with separators */

    if (request_uri->url_scheme != NULL && strcasecmp(request_uri->url_scheme, "urn") == 0) {
        return urn_listed(list, request_uri);
    }
    return list->numbers.count > 0 && number_called(number, sizeof(number), request_uri) &&
           contains(&list->numbers, number);
}

/* ---- making it ------------------------------------------------------------------------------- */

static const char *add_caller(config_exempt *list, const char *entry)
{
    static const char form[] = "is not an address-of-record; that is like sip:alice@example.com";
    char copy[MAX_KEY], key[MAX_KEY];
    const char *wrong = form;
    url_t uri;

    if (strlen(entry) >= sizeof(copy)) {
        return "is too long";
    }
    strcpy(copy, entry);
    if (url_d(&uri, copy) < 0 || uri.url_user == NULL || uri.url_user[0] == '\0' ||
        uri.url_host == NULL || uri.url_host[0] == '\0') {
        return form;
    }
    if (uri.url_params != NULL || uri.url_headers != NULL || uri.url_password != NULL) {
        return "must be without parameters, headers and password";
    }
    if (canonical(key, &uri)) {
        wrong = append(&list->callers, key) ? NULL : no_memory;
    }
    return wrong;
}

static const char *add_urn(config_exempt *list, const char *entry)
{
    size_t length = strlen(entry);
    bool more = entry[length - 1] == '*';
    char key[MAX_KEY];

    if (length >= sizeof(key)) {
        return "is too long";
    }
    strcpy(key, entry);
    lower(key);
    if (more) {
        key[--length] = '\0';
    }
    if (strchr(key, '*') != NULL || strchr(key + strlen(SERVICE), ':') == NULL) {
        return "is not a URN; that is like urn:service:sos, or urn:service:sos* for all that begin "
               "so";
    }
    return append(more ? &list->begun : &list->urns, key) ? NULL : no_memory;
}

const char *exempt_add(config_exempt *list, const char *entry)
{
    if (strncasecmp(entry, "sip:", 4) == 0 || strncasecmp(entry, "sips:", 5) == 0) {
        return add_caller(list, entry);
    }
    if (strncasecmp(entry, SERVICE, strlen(SERVICE)) == 0) {
        return add_urn(list, entry);
    }
    if (is_number(entry)) {
        return append(&list->numbers, entry) ? NULL : no_memory;
    }
    if (strpbrk(entry, ".:/") != NULL && strspn(entry, "0123456789abcdefABCDEF.:/") > 0) {
        return add_address(list, entry);
    }
    return "is neither an address (192.0.2.7, 192.0.2.0/24, 2001:db8::/32), nor an "
           "address-of-record (sip:alice@example.com), a number (112) or a URN "
           "(urn:service:sos*)";
}

static void sort_text(texts *l)
{
    if (l->count > 1) {
        qsort(l->text, l->count, sizeof(*l->text), compare_text);
    }
}

void exempt_sort(config_exempt *list)
{
    size_t at = 0;

    sort_text(&list->callers);
    sort_text(&list->numbers);
    sort_text(&list->urns);
    if (list->prefix_count > 1) {
        qsort(list->prefixes, list->prefix_count, sizeof(prefix), compare_prefix);
    }
    for (unsigned bits = 0; bits < 130; bits++) {
        while (at < list->prefix_count && list->prefixes[at].bits < bits) {
            at++;
        }
        list->first[bits] = at;
    }
}

static void free_list(texts *l)
{
    for (size_t i = 0; i < l->count; i++) {
        free(l->text[i]);
    }
    free(l->text);
}

void exempt_free(config_exempt *list)
{
    if (list != NULL) {
        free_list(&list->callers);
        free_list(&list->numbers);
        free_list(&list->urns);
        free_list(&list->begun);
        free(list->prefixes);
        free(list);
    }
}
