/* SPDX-License-Identifier: Apache-2.0 */
/**
 * The list of the exempt, made for the configuration and searched through config_exempt_*(): a
 * look-up costs O(log n), also in lists of many thousands.
 */
#ifndef SIP_EXT_EXEMPT_H
#define SIP_EXT_EXEMPT_H

#include <stdbool.h>

typedef struct config_exempt config_exempt;

/** A list of the emergency services, urn:service:sos*, alone; NULL if there is no memory. */
config_exempt *exempt_create(void);

/**
 * Adds an ADDRESS[/BITS], an address-of-record (sip:user@host[:port]), a number (digits, one + at
 * its start) or a URN (a * at its end stands for anything). NULL, or what is wrong with it, as the
 * end of a sentence that begins with the entry; static.
 */
const char *exempt_add(config_exempt *list, const char *entry);

/** To be called once, after the last one and before the first look-up. */
void exempt_sort(config_exempt *list);

/** NULL does nothing. */
void exempt_free(config_exempt *list);

#endif
