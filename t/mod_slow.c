/* SPDX-License-Identifier: Apache-2.0 */
/* A module for the tests, as slow as others may be. While the file exists that SLOW_START names,
 * the first child to come by does not start; while the one exists that SLOW_ACCEPT names,
 * connections from 127.0.0.9 keep their workers before they are asked anything; while the one
 * exists that SLOW_CONFIG names, the parent is not through with its configuration. None for longer
 * than a minute. The entry in the scoreboard of a worker that reads from 127.0.0.8 says that there
 * is none, as it does where the end of an old child's thread came after the start of a new one's.
 */
#include "httpd.h"
#include "http_config.h"
#include "http_connection.h"
#include "http_protocol.h"
#include "scoreboard.h"
#include "apr_strings.h"

#include <stdlib.h>
#include <unistd.h>

static void wait_while(const char *path)
{
    for (int i = 0; i < 6000 && access(path, F_OK) == 0; i++) {
        apr_sleep(apr_time_from_msec(10));
    }
}

static void child_init(apr_pool_t *p, server_rec *s)
{
    const char *path = getenv("SLOW_START");

    (void)s;
    /* Whoever can rename it is the first. */
    if (path != NULL && rename(path, apr_pstrcat(p, path, ".taken", NULL)) == 0) {
        wait_while(apr_pstrcat(p, path, ".taken", NULL));
    }
}

static int post_config(apr_pool_t *pconf, apr_pool_t *plog, apr_pool_t *ptemp, server_rec *s)
{
    const char *path = getenv("SLOW_CONFIG");

    (void)pconf;
    (void)plog;
    (void)ptemp;
    (void)s;
    if (path != NULL) {
        wait_while(path);
    }
    return OK;
}

static int pre_connection(conn_rec *c, void *socket)
{
    const char *path = getenv("SLOW_ACCEPT");

    (void)socket;
    if (path != NULL && strcmp(c->client_ip, "127.0.0.9") == 0) {
        wait_while(path);
    }
    return DECLINED;
}

static void pre_read_request(request_rec *r, conn_rec *c)
{
    (void)r;
    if (c->sbh != NULL && strcmp(c->client_ip, "127.0.0.8") == 0) {
        ap_update_child_status_from_conn(c->sbh, SERVER_DEAD, c);
    }
}

static void register_hooks(apr_pool_t *p)
{
    (void)p;
    ap_hook_post_config(post_config, NULL, NULL, APR_HOOK_REALLY_FIRST);
    ap_hook_child_init(child_init, NULL, NULL, APR_HOOK_MIDDLE);
    ap_hook_pre_read_request(pre_read_request, NULL, NULL, APR_HOOK_MIDDLE);
    ap_hook_pre_connection(pre_connection, NULL, NULL, APR_HOOK_MIDDLE);
}

AP_DECLARE_MODULE(slow) = {STANDARD20_MODULE_STUFF, NULL, NULL, NULL, NULL, NULL,
                           register_hooks,          0};
