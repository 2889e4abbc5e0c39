/* SPDX-License-Identifier: Apache-2.0 */
#include "flow.h"

#include <arpa/inet.h>
#include <string.h>

#define MAC 8 /* bytes */
#define HEAD 4

void flow_set(flow *f, const struct sockaddr *address)
{
    memset(f->address, 0, sizeof f->address);
    f->family = 0;
    f->port = 0;
    if (address->sa_family == AF_INET) {
        const struct sockaddr_in *in = (const struct sockaddr_in *)(const void *)address;

        f->family = 4;
        f->port = ntohs(in->sin_port);
        memcpy(f->address, &in->sin_addr, 4);
    } else if (address->sa_family == AF_INET6) {
        const struct sockaddr_in6 *in6 = (const struct sockaddr_in6 *)(const void *)address;
        bool mapped = IN6_IS_ADDR_V4MAPPED(&in6->sin6_addr);

        f->family = mapped ? 4 : 6;
        f->port = ntohs(in6->sin6_port);
        memcpy(f->address, in6->sin6_addr.s6_addr + (mapped ? 12 : 0), mapped ? 4 : 16);
    }
}

bool flow_same_host(const flow *a, const flow *b)
{
    return a->family == b->family && a->family != 0 && memcmp(a->address, b->address, 16) == 0;
}

bool flow_same(const flow *a, const flow *b)
{
    return flow_same_host(a, b) && a->port == b->port && a->transport == b->transport;
}

const char *flow_host(const flow *f, char text[INET6_ADDRSTRLEN])
{
    if (f->family == 0 || inet_ntop(f->family == 4 ? AF_INET : AF_INET6, f->address, text,
                                    INET6_ADDRSTRLEN) == NULL) {
        text[0] = 0;
    }
    return text;
}

bool flow_parse_host(flow *f, const char *text)
{
    char plain[INET6_ADDRSTRLEN + 2];
    size_t length = text != NULL ? strlen(text) : 0;
    uint8_t address[16] = {0};

    if (length == 0 || length >= sizeof plain) {
        return false;
    }
    memcpy(plain, text, length + 1);
    if (plain[0] == '[' && plain[length - 1] == ']') {
        plain[length - 1] = 0;
        text = plain + 1;
    }
    if (inet_pton(AF_INET, text, address) == 1) {
        f->family = 4;
    } else if (inet_pton(AF_INET6, text, address) == 1) {
        f->family = 6;
    } else {
        return false;
    }
    memcpy(f->address, address, sizeof address);
    return true;
}

bool flow_is_host(const flow *f, const char *text)
{
    flow other = {0};

    return flow_parse_host(&other, text) && flow_same_host(f, &other);
}

bool flow_is_private(const flow *f)
{
    const uint8_t *a = f->address;
    static const uint8_t loopback6[16] = {[15] = 1};

    if (f->family == 4) {
        return a[0] == 10 || a[0] == 127 || a[0] == 0 || (a[0] == 172 && (a[1] & 0xf0) == 16) ||
               (a[0] == 192 && a[1] == 168) || (a[0] == 169 && a[1] == 254) ||
               (a[0] == 100 && (a[1] & 0xc0) == 64);
    }
    return f->family == 6 && ((a[0] & 0xfe) == 0xfc || (a[0] == 0xfe && (a[1] & 0xc0) == 0x80) ||
                              memcmp(a, loopback6, 16) == 0);
}

/* ---- tokens ----------------------------------------------------------------------------- */

/* base64 with the two marks that RFC 4648 section 5 takes, without padding. */
static const char alphabet[] = "ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz0123456789-_";

static size_t address_size(const flow *f)
{
    return f->family == 4 ? 4 : f->family == 6 ? 16 : 0;
}

static void mac(const uint8_t *bytes, size_t length, const uint8_t key[SIPHASH_KEY],
                const char *call_id, uint8_t out[MAC])
{
    siphash h;
    uint64_t sum;

    siphash_start(&h, key);
    siphash_add(&h, "flow", 5);
    siphash_add(&h, bytes, length);
    siphash_text(&h, call_id);
    sum = siphash_end(&h);
    for (int i = 0; i < MAC; i++) {
        out[i] = (uint8_t)(sum >> (8 * i));
    }
}

void flow_write(const flow *f, const uint8_t key[SIPHASH_KEY], const char *call_id,
                char token[FLOW_TOKEN])
{
    uint8_t bytes[HEAD + 16 + MAC + 3] = {0};
    size_t length = HEAD + address_size(f);
    uint32_t bits = 0, held = 0;

    bytes[0] = (uint8_t)(f->leg << 6 | f->transport << 4 | f->family);
    bytes[1] = f->listener;
    bytes[2] = (uint8_t)(f->port >> 8);
    bytes[3] = (uint8_t)f->port;
    memcpy(bytes + HEAD, f->address, address_size(f));
    mac(bytes, length, key, call_id, bytes + length);
    length += MAC;
    for (size_t i = 0; i < length; i++) {
        bits = bits << 8 | bytes[i];
        held += 8;
        while (held >= 6) {
            held -= 6;
            *token++ = alphabet[bits >> held & 63];
        }
    }
    if (held > 0) {
        *token++ = alphabet[bits << (6 - held) & 63];
    }
    *token = 0;
}

static size_t decode(const char *token, uint8_t *bytes, size_t size)
{
    uint32_t bits = 0, held = 0;
    size_t length = 0;

    for (; *token != 0; token++) {
        const char *digit = strchr(alphabet, *token);

        if (digit == NULL) {
            return 0;
        }
        bits = bits << 6 | (uint32_t)(digit - alphabet);
        held += 6;
        if (held >= 8) {
            held -= 8;
            if (length == size) {
                return 0;
            }
            bytes[length++] = (uint8_t)(bits >> held);
        }
    }
    return length;
}

bool flow_read(flow *f, const uint8_t key[SIPHASH_KEY], const char *call_id, const char *token)
{
    uint8_t bytes[HEAD + 16 + MAC], right[MAC], differ = 0;
    size_t length =
        token != NULL && strlen(token) < FLOW_TOKEN ? decode(token, bytes, sizeof bytes) : 0;
    flow read = {0};

    if (length < HEAD + MAC) {
        return false;
    }
    read.leg = bytes[0] >> 6;
    read.transport = bytes[0] >> 4 & 3;
    read.family = bytes[0] & 15;
    read.listener = bytes[1];
    read.port = (uint16_t)(bytes[2] << 8 | bytes[3]);
    if (length != HEAD + address_size(&read) + MAC) {
        return false;
    }
    mac(bytes, length - MAC, key, call_id, right);
    for (int i = 0; i < MAC; i++) {
        differ |= (uint8_t)(right[i] ^ bytes[length - MAC + (size_t)i]);
    }
    if (differ != 0) {
        return false;
    }
    memcpy(read.address, bytes + HEAD, address_size(&read));
    *f = read;
    return true;
}
