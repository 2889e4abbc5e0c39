/* SPDX-License-Identifier: Apache-2.0 */
/* A module for the tests, as slow as others may be: the first child to make the file that
 * SLOW_START names takes two seconds to start, and each new connection costs its worker as many
 * milliseconds as SLOW_ACCEPT says. */
#include "httpd.h"
#include "http_config.h"
#include "http_connection.h"

#include <fcntl.h>
#include <stdlib.h>
#include <unistd.h>

static void child_init(apr_pool_t *p, server_rec *s)
{
    const char *path = getenv("SLOW_START");
    int file = path != NULL ? open(path, O_CREAT | O_EXCL | O_WRONLY, 0600) : -1;

    (void)p;
    (void)s;
    if (file >= 0) {
        apr_sleep(apr_time_from_sec(2));
        close(file);
    }
}

static int pre_connection(conn_rec *c, void *socket)
{
    const char *milliseconds = getenv("SLOW_ACCEPT");

    (void)c;
    (void)socket;
    if (milliseconds != NULL) {
        apr_sleep(apr_time_from_msec(atoi(milliseconds)));
    }
    return DECLINED;
}

static void register_hooks(apr_pool_t *p)
{
    (void)p;
    ap_hook_child_init(child_init, NULL, NULL, APR_HOOK_MIDDLE);
    ap_hook_pre_connection(pre_connection, NULL, NULL, APR_HOOK_MIDDLE);
}

AP_DECLARE_MODULE(slow) = {STANDARD20_MODULE_STUFF, NULL, NULL, NULL, NULL, NULL,
                           register_hooks,          0};
