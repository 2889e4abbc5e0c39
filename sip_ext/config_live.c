/* SPDX-License-Identifier: Apache-2.0 */
/* The configuration of a process that runs: reading it again, and trying its addresses. */
#include <errno.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "address.h"
#include "log.h"

static bool same_text(const char *a, const char *b)
{
    return a == NULL || b == NULL ? a == b : strcmp(a, b) == 0;
}

/* Puts a copy in the place of *to; true if it was the same. No memory: false, and *ok is. */
static bool keep_text(char **to, const char *from, bool *ok)
{
    bool same = same_text(*to, from);
    char *copy = from == NULL ? NULL : strdup(from);

    *ok = *ok && (copy != NULL) == (from != NULL);
    free(*to);
    *to = copy;
    return same;
}

static bool keep_address(config_address *to, const config_address *from)
{
    bool same = to->transport == from->transport && address_equal(to, from);

    *to = *from;
    return same;
}

static bool keep_listen(config *c, const config *running, bool *ok)
{
    bool same = c->listens == running->listens;
    config_address *copy = malloc(running->listens * sizeof(*copy));

    for (size_t i = 0; same && i < c->listens; i++) {
        same = keep_address(&c->listen[i], &running->listen[i]);
    }
    free(c->listen);
    c->listen = copy;
    c->listens = copy != NULL ? running->listens : 0;
    *ok = *ok && copy != NULL;
    if (copy != NULL) {
        memcpy(copy, running->listen, running->listens * sizeof(*copy));
    }
    return same;
}

/* Adds a key's name to those that differ. */
static void name_kept(char *kept, size_t size, const char *key, bool same)
{
    size_t length = strlen(kept);

    if (!same) {
        snprintf(kept + length, size - length, "%s%s", length ? ", " : "", key);
    }
}

/* False if there is no memory. */
static bool keep_fixed(config *c, const config *running, char *kept, size_t size)
{
    bool ok = true, metrics = c->metrics_on == running->metrics_on;

    name_kept(kept, size, "listen", keep_listen(c, running, &ok));
    name_kept(kept, size, "server", keep_address(&c->server, &running->server));
    name_kept(kept, size, "t1", c->t1_us == running->t1_us);
    name_kept(kept, size, "store", keep_text(&c->store, running->store, &ok));
    name_kept(kept, size, "control", keep_text(&c->control, running->control, &ok));
    name_kept(kept, size, "control_mode", c->control_mode == running->control_mode);
    name_kept(kept, size, "metrics", keep_address(&c->metrics, &running->metrics) && metrics);
    name_kept(kept, size, "tls_certificates",
              keep_text(&c->tls_certificates, running->tls_certificates, &ok));
    name_kept(kept, size, "log", c->log == running->log);
    c->t1_us = running->t1_us;
    c->control_mode = running->control_mode;
    c->metrics_on = running->metrics_on;
    c->log = running->log;
    return ok;
}

config *config_reload(const config *running, char *kept, size_t kept_size, char *error,
                      size_t error_size)
{
    config *c = config_load(running->file, error, error_size);

    kept[0] = '\0';
    if (c != NULL && !keep_fixed(c, running, kept, kept_size)) {
        snprintf(error, error_size, "there is no memory for the configuration");
        config_free(c);
        c = NULL;
    }
    return c;
}

static bool probe(const config *c, const char *key, const config_address *a, bool free_too,
                  char *error, size_t error_size)
{
    int number = address_try(a);
    const char *what = number == EADDRNOTAVAIL ? "that is not an address of this machine"
                       : number == EADDRINUSE  ? "it is in use by another program"
                       : number == EACCES      ? "this user may not open it (ports below 1024 need "
                                                 "CAP_NET_BIND_SERVICE)"
                                               : strerror(number);
    const char *transport = a == &c->metrics ? "" : config_transport_name(a->transport);
    char file[256];

    if (number == 0 || (number == EADDRINUSE && !free_too)) {
        return true;
    }
    snprintf(error, error_size, "%s:%u: %s = %s%s%s%s%s:%u cannot be opened: %s",
             log_quote(file, sizeof(file), c->file, strlen(c->file)), a->line, key, transport,
             *transport ? ":" : "", a->ipv6 ? "[" : "", a->host, a->ipv6 ? "]" : "", a->port, what);
    return false;
}

bool config_probe(const config *c, bool free_too, char *error, size_t error_size)
{
    for (size_t i = 0; i < c->listens; i++) {
        if (!probe(c, "listen", &c->listen[i], free_too, error, error_size)) {
            return false;
        }
    }
    return !c->metrics_on || probe(c, "metrics", &c->metrics, free_too, error, error_size);
}
