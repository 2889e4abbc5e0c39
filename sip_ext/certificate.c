/* SPDX-License-Identifier: Apache-2.0 */
#include <errno.h>
#include <limits.h>
#include <stdio.h>
#include <string.h>
#include <unistd.h>

#include <openssl/err.h>
#include <openssl/ssl.h>

#include "certificate.h"

/* Nobody is there to be asked for a passphrase. */
static int no_passphrase(char *to, int size, int writing, void *context)
{
    (void)to;
    (void)size;
    (void)writing;
    (void)context;
    return -1;
}

static bool fail(char *wrong, size_t size, const char *name, const char *what)
{
    const char *reason = ERR_reason_error_string(ERR_peek_last_error());

    snprintf(wrong, size, "%s %s: %s", name, what, reason != NULL ? reason : "no reason is known");
    return false;
}

static bool check_agent(SSL_CTX *context, const char *file, char *wrong, size_t size)
{
    static const char name[] = "agent.pem";

    if (SSL_CTX_use_certificate_chain_file(context, file) != 1) {
        return fail(wrong, size, name, "has no certificate that can be used");
    }
    if (SSL_CTX_use_PrivateKey_file(context, file, SSL_FILETYPE_PEM) != 1) {
        return fail(wrong, size, name, "has no key, without a passphrase, to the certificate");
    }
    return SSL_CTX_check_private_key(context) == 1 ||
           fail(wrong, size, name, "has a key that is not the certificate's");
}

bool certificate_check(const char *directory, char *wrong, size_t size)
{
    char agent[PATH_MAX], trusted[PATH_MAX];
    SSL_CTX *context;
    bool ok;

    snprintf(agent, sizeof(agent), "%s/agent.pem", directory);
    snprintf(trusted, sizeof(trusted), "%s/cafile.pem", directory);
    if (access(agent, R_OK) != 0) {
        snprintf(wrong, size, "agent.pem cannot be read: %s", strerror(errno));
        return false;
    }
    ERR_clear_error();
    context = SSL_CTX_new(TLS_server_method());
    if (context == NULL) {
        return fail(wrong, size, "agent.pem", "cannot be checked");
    }
    SSL_CTX_set_default_passwd_cb(context, no_passphrase);
    ok = check_agent(context, agent, wrong, size);
    if (ok && access(trusted, F_OK) == 0 &&
        SSL_CTX_load_verify_locations(context, trusted, NULL) != 1) {
        ok = fail(wrong, size, "cafile.pem", "has no certificate that can be used");
    }
    SSL_CTX_free(context);
    return ok;
}
