/* SPDX-License-Identifier: Apache-2.0 */
#include <stdio.h>
#include <stdlib.h>

#include "control.h"
#include "metrics.h"
#include "status.h"

struct status {
    control *control;
    metrics *metrics;
};

status *status_create(su_root_t *root, const config *c, const proxy *p, char *error,
                      size_t error_size)
{
    status *s = calloc(1, sizeof(*s));
    bool ok = s != NULL;

    if (s == NULL) {
        snprintf(error, error_size, "there is no memory for the status");
        return NULL;
    }
    if (c->control != NULL) {
        s->control = control_create(root, c, p, error, error_size);
        ok = s->control != NULL;
    }
    if (ok && c->metrics_on) {
        s->metrics = metrics_create(root, c, p, error, error_size);
        ok = s->metrics != NULL;
    }
    if (!ok) {
        status_destroy(s);
        return NULL;
    }
    return s;
}

void status_destroy(status *s)
{
    if (s != NULL) {
        control_destroy(s->control);
        metrics_destroy(s->metrics);
        free(s);
    }
}
