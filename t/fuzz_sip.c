/* SPDX-License-Identifier: Apache-2.0 */
/*
 * A libFuzzer target: a proxy on loopback, between a client and a server that do what the input
 * says. An input is a list of steps; each is a byte for what is done, two for a length, and that
 * many bytes of text.
 *
 *   0, 1  the client, the server sends the text as it is
 *   2, 3  the client, the server answers the last request it got: the status from the first byte,
 *         then more header lines
 *   4, 5  the client, the server sends a request in the dialog of the last INVITE: the method from
 *         the first byte, the CSeq from the second, then more header lines
 *   6     the client sends an INVITE that is right but for the text's header lines
 *
 * It runs for a fixed time with -max_total_time=SECONDS. A message that the proxy sends must be one
 * that its own parser takes.
 */
#include <arpa/inet.h>
#include <stdbool.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/socket.h>
#include <unistd.h>

#include <sofia-sip/msg.h>
#include <sofia-sip/sip.h>
#include <sofia-sip/sip_parser.h>
#include <sofia-sip/su.h>
#include <sofia-sip/su_wait.h>

#include "config.h"
#include "log.h"
#include "proxy.h"

enum { CLIENT, SERVER, ENDS };
enum { MAX = 60000, STEPS = 24 };

static su_root_t *root;
static proxy *subject;
static int ends[ENDS];
static struct sockaddr_in at[ENDS], proxy_at;
static char request[ENDS][MAX]; /* the last that each end got */
static char dialog[3][512];     /* of the last INVITE: Call-ID, From, To with tag */
static unsigned calls;

static void fail(const char *what)
{
    fprintf(stderr, "fuzz_sip: %s\n", what);
    abort();
}

static int open_end(struct sockaddr_in *address)
{
    int end = socket(AF_INET, SOCK_DGRAM | SOCK_NONBLOCK, 0);
    socklen_t length = sizeof *address;

    *address =
        (struct sockaddr_in){.sin_family = AF_INET, .sin_addr.s_addr = htonl(INADDR_LOOPBACK)};
    if (end < 0 || bind(end, (struct sockaddr *)address, length) != 0 ||
        getsockname(end, (struct sockaddr *)address, &length) != 0) {
        fail("no socket");
    }
    return end;
}

static void start(void)
{
    char path[] = "/tmp/fuzz_sip.XXXXXX", error[1024];
    int spare = open_end(&proxy_at), file = mkstemp(path);
    config *c;

    for (int i = 0; i < ENDS; i++) {
        ends[i] = open_end(&at[i]);
    }
    close(spare); /* its port is the proxy's */
    if (file < 0 || dprintf(file,
                            "listen = udp:127.0.0.1:%u\nserver = udp:127.0.0.1:%u\ncalls = 3\n"
                            "t_m = 1s\nround = 1ms\nt1 = 10ms\nexempt = 112\nexempt_calls = 1\n",
                            ntohs(proxy_at.sin_port), ntohs(at[SERVER].sin_port)) < 0) {
        fail("no configuration");
    }
    close(file);
    c = config_load(path, error, sizeof error);
    unlink(path);
    if (c == NULL) {
        fail(error);
    }
    log_open(false, LOG_ERR);
    su_init();
    root = su_root_create(NULL);
    subject = proxy_create(root, c, NULL, error, sizeof error);
    if (subject == NULL) {
        fail(error);
    }
}

static void say(int end, const char *text, size_t length)
{
    sendto(ends[end], text, length, 0, (struct sockaddr *)&proxy_at, sizeof proxy_at);
}

/* ---- what comes back ------------------------------------------------------------------------ */

/* The lines of a header in a message, with its name; "" if it has none. */
static void lines_of(const char *message, const char *name, char *out, size_t size)
{
    size_t used = 0, length = strlen(name);

    out[0] = 0;
    for (const char *line = strchr(message, '\n'); line != NULL; line = strchr(line + 1, '\n')) {
        if (strncasecmp(line + 1, name, length) == 0 && line[1 + length] == ':') {
            size_t bytes = strcspn(line + 1, "\r\n");

            if (used + bytes + 3 > size) {
                return;
            }
            memcpy(out + used, line + 1, bytes);
            memcpy(out + used + bytes, "\r\n", 3);
            used += bytes + 2;
        }
    }
}

static void check(const char *message, size_t length)
{
    msg_t *msg = msg_make(sip_default_mclass(), 0, message, (ssize_t)length);
    sip_t *sip = sip_object(msg);

    if (sip == NULL || (sip->sip_request == NULL && sip->sip_status == NULL) ||
        sip->sip_via == NULL) {
        fprintf(stderr, "%.*s\n", (int)length, message);
        fail("the proxy sent what is no message");
    }
    msg_destroy(msg);
}

static void receive(int end)
{
    static char message[MAX];
    ssize_t length;

    while ((length = recv(ends[end], message, sizeof message - 1, 0)) > 0) {
        message[length] = 0;
        if (message[0] == 1) {
            continue; /* the answer to what the SIP stack takes for STUN */
        }
        check(message, (size_t)length);
        if (strncmp(message, "SIP/2.0", 7) != 0 && strncmp(message, "ACK", 3) != 0) {
            memcpy(request[end], message, (size_t)length + 1);
        }
        if (strstr(message, "INVITE\r\n") != NULL) {
            lines_of(message, "Call-ID", dialog[0], sizeof dialog[0]);
            lines_of(message, "From", dialog[1], sizeof dialog[1]);
            lines_of(message, "To", dialog[2], sizeof dialog[2]);
        }
    }
}

static void turn(void)
{
    for (int i = 0; i < 2; i++) {
        su_root_step(root, 0);
        receive(CLIENT);
        receive(SERVER);
    }
}

/* ---- steps ---------------------------------------------------------------------------------- */

static void reply(int end, const uint8_t *data, size_t length)
{
    static const char *const kept[] = {"Via", "Record-Route", "From", "To", "Call-ID", "CSeq"};
    static char text[2 * MAX], lines[MAX];
    unsigned status = length > 0 ? 100 + data[0] * 600U / 256 : 200;
    int used = snprintf(text, sizeof text, "SIP/2.0 %u Said\r\n", status);

    for (size_t i = 0; i < sizeof kept / sizeof *kept; i++) {
        lines_of(request[end], kept[i], lines, 8000);
        if (strcmp(kept[i], "To") == 0 && strstr(lines, "tag=") == NULL && lines[0] != 0) {
            memcpy(lines + strlen(lines) - 2, ";tag=t\r\n", 9);
        }
        used += snprintf(text + used, sizeof text - (size_t)used, "%s", lines);
    }
    used += snprintf(text + used, sizeof text - (size_t)used,
                     "Contact: <sip:u@127.0.0.1:%u>\r\n%.*s\r\n\r\n", ntohs(at[end].sin_port),
                     length > 1 ? (int)length - 1 : 0, (const char *)data + 1);
    if (used < MAX) {
        say(end, text, (size_t)used);
    }
}

/* "From: x" as "To: x", where the other party sends. */
static const char *renamed(const char *name, const char *line, char out[600])
{
    const char *value = strchr(line, ':');

    snprintf(out, 600, "%s%s", name, value != NULL ? value : ": <sip:n@n>\r\n");
    return out;
}

static void in_dialog(int end, const uint8_t *data, size_t length)
{
    static const char *const methods[] = {"ACK",   "BYE",    "INVITE", "UPDATE",
                                          "PRACK", "CANCEL", "INFO",   "OPTIONS"};
    static char text[2 * MAX];
    char from[600], to[600];
    const char *method = methods[length > 0 ? data[0] % 8 : 1];
    bool caller = end == CLIENT;
    int used = snprintf(
        text, sizeof text,
        "%s sip:u@127.0.0.1:%u SIP/2.0\r\nVia: SIP/2.0/UDP 127.0.0.1:%u;branch=z9hG4bKf%u\r\n"
        "Max-Forwards: 9\r\n%s%s%sCSeq: %u %s\r\nContact: <sip:u@127.0.0.1:%u>\r\n%.*s\r\n\r\n",
        method, ntohs(at[caller ? SERVER : CLIENT].sin_port), ntohs(at[end].sin_port), calls++,
        renamed("From", dialog[caller ? 1 : 2], from), renamed("To", dialog[caller ? 2 : 1], to),
        dialog[0], length > 1 ? data[1] + 1U : 2U, method, ntohs(at[end].sin_port),
        length > 2 ? (int)length - 2 : 0, (const char *)data + 2);

    if (used < MAX) {
        say(end, text, (size_t)used);
    }
}

static void invite(const uint8_t *data, size_t length)
{
    static char text[2 * MAX];
    int used = snprintf(
        text, sizeof text,
        "INVITE sip:bob@127.0.0.1 SIP/2.0\r\nVia: SIP/2.0/UDP 127.0.0.1:%u;branch=z9hG4bKi%u\r\n"
        "Max-Forwards: 9\r\nFrom: <sip:alice@x>;tag=f%u\r\nTo: <sip:bob@x>\r\nCall-ID: c%u\r\n"
        "CSeq: 1 INVITE\r\nContact: <sip:u@127.0.0.1:%u>\r\n%.*s\r\n\r\n",
        ntohs(at[CLIENT].sin_port), calls, calls, calls, ntohs(at[CLIENT].sin_port), (int)length,
        (const char *)data);

    calls++;
    if (used < MAX) {
        say(CLIENT, text, (size_t)used);
    }
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size);
int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
    if (subject == NULL) {
        start();
    }
    for (int step = 0; step < STEPS && size > 3; step++) {
        unsigned what = data[0] % 7;
        size_t length = (size_t)data[1] << 8 | data[2];

        data += 3;
        size -= 3;
        length = length < size ? length : size;
        length = length < 8000 ? length : 8000;
        if (what < 2) {
            say((int)what, (const char *)data, length);
        } else if (what < 4) {
            reply((int)what - 2, data, length);
        } else if (what < 6) {
            in_dialog((int)what - 4, data, length);
        } else {
            invite(data, length);
        }
        turn();
        data += length;
        size -= length;
    }
    return 0;
}
