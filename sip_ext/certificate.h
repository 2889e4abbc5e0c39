/* SPDX-License-Identifier: Apache-2.0 */
/** What must be true of TLS certificates before the SIP library is given them: it does not say. */
#ifndef SIP_EXT_CERTIFICATE_H
#define SIP_EXT_CERTIFICATE_H

#include <stdbool.h>
#include <stddef.h>

/**
 * True if directory has an agent.pem with a key (no passphrase) and its certificate, and, where
 * there is one, a cafile.pem of certificates; else what is wrong with which, as the end of a
 * sentence.
 */
bool certificate_check(const char *directory, char *wrong, size_t size);

#endif
